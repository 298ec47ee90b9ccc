"""Other observations: waits and reads, a batch, cores and disks, the machine, and the ranks of a job."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from bottleneck.analysis.advice.saturation import find_saturation
from bottleneck.analysis.ranks import by_slowness, called, extremes, loader_s, shared_name
from bottleneck.reports import sanitize
from bottleneck.reports.answer import Measured, rate_unit
from bottleneck.reports.document import PAGES, Bar, Column, Items, Paragraph, Section, Table
from bottleneck.results.evidence import Evidence, ExperimentUsage, NetworkPace, Saving, TensorSeen, Utilisation
from bottleneck.results.format import (
    UNKNOWN,
    bare,
    count,
    duration,
    frequency,
    gain_interval,
    known,
    names,
    number,
    percent,
    percent_interval,
    plural,
    size,
    whole,
)
from bottleneck.results.names import COLD, RAW, is_cpu
from bottleneck.results.records import Rank, Result
from bottleneck.results.values import LARGEST

_SOURCES = {"page cache": "from the page cache", "disk": "from the disk", "unknown": "from an unknown source"}


def reading(result: Result) -> Iterator[Section]:
    """Yield waits, stalls, the gap between two epochs, sources of reads, and the unknown parts of these."""
    evidence, device = result.evidence, result.environment.get("device")
    # The main process need not wait for an accelerator.
    whose = " of the main process" if device and not is_cpu(device) else ""
    # It is steps ahead of one that limits the job.
    idle = bool(whose) and result.verdict.state == "device_bound"
    sentences = [
        *_waits(evidence, whose, idle=idle),
        *_stalls(evidence, whose, idle=idle),
        *_epoch_gap(evidence),
        *_sources(evidence),
        *_network(evidence),
        *evidence.reads.missing,
    ]
    yield Section("Waiting and reading", (Items(tuple(sentences)),))


def cold_epoch(result: Result) -> str:
    """Return the throughput of an epoch whose files are not in memory; empty if not measured."""
    cold, raw = result.coupled(COLD), result.coupled(RAW)
    stage = next((stage for stage in result.stages if stage.outer == COLD), None)
    if cold is None or raw is None or stage is None:
        return ""
    text = (
        f"The first epoch, whose files are not in memory, reaches {count(cold.samples_per_s)} {rate_unit(result)}, and "
        f"one that finds them there {count(raw.samples_per_s)}: that is the gain of {stage.name}, which is not part of "
        "the verdict."
    )
    files, dropped = result.evidence.cold.files, result.evidence.cold.bytes
    if files is None or dropped is None:
        return text
    return f"{text} {whole(files)} files ({size(dropped)}) were dropped before each of its blocks."


def _waits(evidence: Evidence, whose: str, *, idle: bool) -> Iterator[str]:
    wait_s, first_batch_s = evidence.wait_s, evidence.first_batch_s
    measured = {"p50": wait_s.p50, "p95": wait_s.p95, "p99": wait_s.p99, "max": wait_s.max}
    known = [f"{name} {duration(seconds)}" for name, seconds in measured.items() if seconds is not None]
    parts = []
    if known:
        busy = "has work, so it costs the job next to nothing" if idle else "may be busy"
        rest = f", while the device {busy}" if whose else ""
        parts.append(f"Wait{whose} for a batch{rest}: {', '.join(known)}.")
    if first_batch_s is not None:
        parts.append(f"First batch of an epoch: {duration(first_batch_s)}.")
    if parts:
        yield " ".join(parts)


def _stalls(evidence: Evidence, whose: str, *, idle: bool) -> Iterator[str]:
    stalls = evidence.stalls
    period, period_s = stalls.period_batches, stalls.period_s
    if not stalls.count or stalls.threshold_s is None or stalls.lost_share is None:
        return
    every = "at no regular interval" if not period else f"one every {whole(period)} batches"
    if period and period_s is not None:
        every += f" ({duration(period_s)})"
    yield (
        f"Stalls, waits{whose} over {duration(stalls.threshold_s)}: {whole(stalls.count)}, {every}, "
        f"{percent(stalls.lost_share)} of the time of raw{', in which the device has work' if idle else ''}."
    )


def _epoch_gap(evidence: Evidence) -> Iterator[str]:
    gap_s, restarted = evidence.epoch_gap.seconds, evidence.epoch_gap.started_anew
    if gap_s is not None and restarted is not None:
        how = "the workers start again" if restarted else "the workers stay"
        yield f"Between two epochs {how}: {duration(gap_s)} to the first batch."


def _sources(evidence: Evidence) -> Iterator[str]:
    parts = []
    for row in evidence.reads.experiments:
        asked, stored = row.asked_bytes_per_sample, row.storage_bytes_per_sample
        if not row.name or row.source not in _SOURCES or asked is None or stored is None:
            continue
        # What is read without asking, from mapped files, shows where it comes from storage.
        read = size(max(asked, stored) if row.source == "disk" else asked)
        parts.append(f"{row.name} {read} a sample {_SOURCES[row.source]}")
    if parts:
        yield f"Read: {', '.join(parts)}."


def _network(evidence: Evidence) -> Iterator[str]:
    seen, job = evidence.network, evidence.network.job
    if seen.requests_per_sample is None:
        return
    yield (
        f"Network: {frequency(seen.requests_per_sample)} requests a sample, {size(seen.bytes_per_sample)}. First byte "
        f"after {duration(job.first_byte_s)}, the rest in {duration(job.transfer_s)}. {_pace(job)}; at least one is "
        f"open for {percent(seen.share)} of a worker's time, and {percent(seen.computing_share)} of that computes."
    )
    more = evidence.network.more
    if more.bytes_per_s:
        yield f"Network, in a trial: {_pace(more)}; first byte after {duration(more.first_byte_s)}."


def _pace(pace: NetworkPace) -> str:
    return (
        f"{plural(pace.num_workers or 0, 'worker')}: {count(pace.in_flight)} requests at once, "
        f"{count(pace.requests_per_s)} and {size(pace.bytes_per_s)} a second"
    )


_PAYLOAD_COLUMNS = (
    Column("tensor", "path"),
    Column("shape", "number"),
    Column("type"),
    Column("bytes", "number"),
    Column("what could be saved"),
)


def payload(result: Result) -> Iterator[Section]:
    """Yield the tensors of one batch, in its order."""
    savings = {_place(found): found for found in result.evidence.payload.savings}
    rows = tuple(
        (
            _place(found),
            "x".join(map(bare, found.shape)) or "scalar",
            found.dtype or UNKNOWN,
            size(found.bytes),
            _saving(savings.get(_place(found))),
        )
        for found in result.evidence.payload.tensors
    )
    if rows:
        yield Section("What one batch holds", (Table(_PAYLOAD_COLUMNS, rows), Paragraph(_summary(result), "note")))


def _summary(result: Result) -> str:
    """Return the contents of one batch, in one or two sentences; empty if none was examined."""
    held = result.evidence.payload
    if held.bytes is None:
        return ""
    what = plural(len(held.tensors), "tensor")
    if held.objects:
        what += f" and {whole(held.objects)} object{'' if held.objects == 1 else 's'} that are not tensors"
    listed = sum(found.bytes or 0 for found in held.tensors)
    more = "more than " if listed < held.bytes else ""  # of very many, only the first are kept
    text = f"One batch holds {more}{what}, {size(held.bytes)}."
    bytes_saved = sum(saving.bytes_saved or 0 for saving in held.savings)
    if 0 < bytes_saved <= held.bytes:
        text += f" Of these, {size(bytes_saved)} need not be sent."
    return text


def _place(found: TensorSeen | Saving) -> str:
    return f"batch{found.path or ''}"


def _saving(found: Saving | None) -> str:
    if found is None:
        return ""
    return f"{found.what or '?'}; saves {size(found.bytes_saved)}: {found.how or '?'}"


_USAGE_NUMBERS = ("cores busy", "workers", "main", "others", "disk", "network", "device")
_USAGE_COLUMNS = (
    Column("experiment", "code", on=PAGES),
    Column("mode", on=PAGES),
    *(Column(title, "number", on=PAGES) for title in _USAGE_NUMBERS),
)


def utilisation(result: Result) -> Iterator[Section]:
    """Yield the saturated resources, and on a page all observations."""
    seen = result.evidence.utilisation
    found = find_saturation(result.evidence, result.verdict.state)
    yield Section(
        "Cores, disk, network and device in each experiment",
        (
            Paragraph(found.sentence if found is not None else ""),
            Paragraph(_memory(seen), on=PAGES),
            Items(seen.missing, "Not seen"),
            Table(_USAGE_COLUMNS, tuple(map(_usage_row, seen.experiments)), on=PAGES),
        ),
    )


def _memory(seen: Utilisation) -> str:
    """Return the memory of the workers, as a sentence; empty if unknown."""
    workers = seen.workers
    private, cached = workers.private_bytes, workers.cache_bytes
    total, peak = seen.shared_memory.size_bytes, seen.shared_memory.peak_used_bytes
    parts = []
    if private is not None:
        caches = f" ({size(cached)} of it caches of this diagnosis)" if cached else ""
        parts.append(f"The workers together had {size(private)} of private memory{caches}.")
    if total is not None and peak is not None:
        parts.append(f"Of the {size(total)} of /dev/shm, {size(peak)} were in use at most.")
    return " ".join(parts)


def _usage_row(found: ExperimentUsage) -> tuple[str, ...]:
    read, written = found.disk_read_bytes_per_s, found.disk_write_bytes_per_s
    disk = None if read is None and written is None else (read or 0.0) + (written or 0.0)
    cores = (found.cores_busy, found.cores_workers, found.cores_main, found.cores_other)
    return (
        found.name or "",
        found.mode or "",
        *(f"{amount:,.2f}" if known(amount) else UNKNOWN for amount in cores),
        *(UNKNOWN if speed is None else f"{size(speed)}/s" for speed in (disk, found.network_bytes_per_s)),
        percent(found.gpu.busy_share),
    )


_DEVICE_COLUMNS = (Column("device", "text"), Column("time per batch", "number"), Column("share", "number"))
_WHILE_IDLE = (
    "Idle, it waits for a batch, or for the host to launch the next step. Copies that a script makes itself count as "
    "training."
)


def on_device(result: Result) -> Iterator[Section]:
    """Yield the time in which an accelerator copies, trains and idles, by its own events."""
    seen = result.evidence.device_time
    parts = (("copying", seen.copy_s_per_batch), ("training", seen.step_s_per_batch), ("idle", seen.idle_s_per_batch))
    whole_s = sum(seconds or 0.0 for _, seconds in parts)
    if not known(whole_s) or whole_s <= 0:
        return
    rows = tuple((name, duration(seconds), percent((seconds or 0.0) / whole_s)) for name, seconds in parts)
    trains = f" Training takes {percent_interval(seen.efficiency)} of it." if seen.efficiency is not None else ""
    note = f"Timed by events in the device's stream, over {whole(seen.batches)} batches of raw.{trains} {_WHILE_IDLE}"
    yield Section("Time on the device", (Table(_DEVICE_COLUMNS, rows), Paragraph(note, "note")))


MAX_VALUE = 300
"""Characters of a value of the environment or the pipeline that are shown."""


def setting(result: Measured) -> Iterator[Section]:
    """Yield environment and pipeline."""
    for title, part in (("Environment", result.environment), ("Pipeline", result.pipeline)):
        rows = tuple((key, described(key, value)) for key, value in part.items())
        yield Section(title, (Table((Column("", "code"), Column("", "path")), rows),))


def described(key: str, value: Any) -> str:
    """Return a value of the environment or the pipeline as text, secrets hidden."""
    value = _presentable(key, value)
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return _by_unit(key, value)
    if isinstance(value, (Mapping, list)):
        value = json.dumps(value, ensure_ascii=False, default=str)
    text = str(value)
    return text if len(text) <= MAX_VALUE else text[:MAX_VALUE] + "…"


def _by_unit(key: str, value: float) -> str:
    """Return a number in the unit that its key names, else unchanged."""
    if not abs(value) < LARGEST:
        return str(value)
    if key.endswith("_bytes"):
        return size(value)
    if key.endswith("_s"):
        return duration(value)
    return number(value) if isinstance(value, int) else f"{value:g}"


def _presentable(key: str, value: Any) -> Any:
    if sanitize.SECRET_KEY.search(key):
        return "[hidden]"
    if isinstance(value, Mapping):
        return {sanitize.one_line(str(name)): _presentable(str(name), item) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_presentable("", item) for item in value]
    # Before it becomes part of some JSON, whose escapes would keep text that is to be removed.
    return sanitize.one_line(value) if isinstance(value, str) else value


# --- many ranks ---------------------------------------------------------------------------------------------

_NAMES = {1: ("the only one",), 2: ("slowest", "fastest"), 3: ("slowest", "median", "fastest")}
MAX_RANKS = 32
"""Ranks of a page."""
_COLUMNS = (
    Column("ranks", "text"),
    Column("rank", "number"),
    Column("host", "text"),
    Column("device", "text"),
    Column("waits", "number"),
    Column("loader", "number"),
    Column("slow in", "text"),
    Column("if free", "interval"),
)


def ranks(result: Result) -> Iterator[Section]:
    """Yield a few of the ranks as a table, and notes on all of them."""
    if not result.ranks:
        return
    shown = extremes(result.ranks, result.evidence.ranks)
    rows = tuple((name, *_row(rank)) for name, rank in zip(_NAMES[len(shown)], shown, strict=True))
    straggler = result.verdict.straggler
    marked = frozenset(at for at, rank in enumerate(shown) if straggler is not None and rank.rank == straggler)
    table = Table(_COLUMNS, rows, marked)
    yield Section("Ranks", (table, Paragraph(_together(result), "note")), folded=False)


def all_ranks(result: Result) -> Iterator[Section]:
    """Yield a row for each rank, the slowest first, with its loader's time as a bar."""
    if len(result.ranks) <= len(_NAMES):
        return
    shown = by_slowness(result.ranks, result.evidence.ranks)[:MAX_RANKS]
    longest_s = max((alone_s for rank in shown if known(alone_s := loader_s(rank))), default=0.0)
    columns = (*_COLUMNS[:6], Column("", "bar"), *_COLUMNS[6:])
    rows: list[tuple[str | Bar, ...]] = []
    for rank in shown:
        row, alone_s = _row(rank), loader_s(rank)
        bar = Bar(alone_s / longest_s if known(alone_s) and longest_s else None)
        rows.append((*row[:5], bar, *row[5:]))
    which = "Each rank" if len(shown) == len(result.ranks) else f"The {len(shown)} slowest ranks"
    note = Paragraph(f"{which}, the slowest first; the bar is the time of its loader.", "note")
    yield Section("All ranks", (Table(columns[1:], tuple(rows)), note))


def _row(rank: Rank) -> tuple[str, ...]:
    free = gain_interval(rank.held) if rank.held is not None else ""
    alone, waits = duration(loader_s(rank)), duration(rank.wait_s_per_batch)
    return whole(rank.rank), rank.host, rank.device, waits, alone, rank.stage or "", free


def _together(result: Result) -> str:
    """Return the seconds per batch of all ranks together, and their contention."""
    together = result.evidence.ranks
    notes = [
        "Per batch: how long a rank waits for data in the job, and how long its loader takes alone, all ranks at once."
    ]
    if any(rank.held is not None for rank in extremes(result.ranks, together)):
        held = together.straggler
        whose = "this rank's data" if held is None or not held.ranks else f"the data of {called(held)}"
        notes.append(f"If free: throughput of the job with {whose} served from a cache.")
    ratio = together.contention.ratio
    if ratio is not None and known(ratio.estimate):
        what = f", by sharing {shared_name(together.contention.what)}" if together.contention.what else ""
        notes.append(f"Together a batch takes them {gain_interval(ratio)} as long as alone{what}.")
    cost_s, reason = together.sync.cost_s_per_batch, together.sync_reason
    if known(cost_s):
        notes.append(f"Sharing gradients takes {duration(max(0.0, cost_s))} of each step.")
    elif reason:
        notes.append(f"The time that sharing gradients takes is unknown: {reason}.")
    lengths = {rank.samples_per_epoch for rank in result.ranks if rank.samples_per_epoch is not None}
    if len(lengths) > 1:
        notes.append(f"Their epochs have {names([count(n) for n in (min(lengths), max(lengths))])} samples.")
    return " ".join(notes)

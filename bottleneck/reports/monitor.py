"""The report on a monitored run: the answer, waits by loader, origins of slow batches, and time without training."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec

from bottleneck.analysis.growth import REMEDY_OF, Growth, find_growth, growth_sentence, what_grows
from bottleneck.analysis.monitor import is_due, sentence
from bottleneck.reports.document import PAGES, TERMINAL, Bar, Block, Column, Document, Items, Paragraph, Section, Table
from bottleneck.results.format import duration, long_duration, percent, plural, size, whole
from bottleneck.results.monitor import EVENTS_VERSION, Monitored, SlowBatch, percentile

_SHORT = 10
"""Maximum rows of a table in a terminal."""
_MAX_INDICES = 4


def monitored_document(run: Monitored) -> Document:
    """Return the report on a run, which need not have ended."""
    grows = find_growth(run)
    beside = (*_memory(run, grows), *_beside(run))
    sections = (*_answer(run, grows), *_waits(run), *_places(run), *_worst(run), *beside)
    return Document(sections, "bottleneck monitor")


def monitored_json(run: Monitored) -> str:
    """Return the totals of a run as JSON."""
    grows = {(one.rank, one.worker, one.pid): one for one in find_growth(run)}
    found: dict[str, Any] = {
        "kind": "monitored",
        "version": EVENTS_VERSION,
        "command": list(run.command),
        "world": run.world,
        "ended": run.ended,
        "sentence": sentence(run),
        "due": is_due(run),
        "loaders": [
            {
                "rank": one.rank,
                "loader": one.loader,
                "batches": one.batches,
                "steps": one.steps,
                "wait_s": one.wait_s,
                "wait_share": run.share([one]),
                "p50_s": percentile(one.counts, 0.5),
                "p99_s": percentile(one.counts, 0.99),
            }
            for one in run.waits.values()
        ],
        "worst": run.worst,
        "epochs": run.epochs,
        "validations": run.validations,
        "checkpoints": run.checkpoints,
        "memory": [
            {
                "rank": rank,
                "worker": worker,
                "pid": pid,
                "private_bytes": looks[-1].private_bytes,
                "bytes_per_hour": None if (one := grows.get((rank, worker, pid))) is None else one.bytes_per_hour,
                "grows": None if one is None else what_grows(one),
            }
            for (rank, worker, pid), looks in run.memory.items()
        ],
    }
    return json.dumps(msgspec.to_builtins(found), indent=2, ensure_ascii=False) + "\n"


def _answer(run: Monitored, grows: Sequence[Growth]) -> Iterator[Section]:
    blocks: list[Block] = [Paragraph(sentence(run), "answer")]
    if grows:
        blocks.append(Paragraph(growth_sentence(run, grows)))
    if run.world > 1:
        files = len({one.rank for one in run.waits.values()})
        blocks.append(Paragraph(f"{plural(files, 'rank')} of {run.world}."))
    if is_due(run):
        command = f"`bottleneck run {' '.join(run.command) or 'train.py'}`"
        blocks.append(Items((f"{command} says why it waits, and what fixing it gains.",), label="Next"))
    yield Section("", tuple(blocks), folded=False)


def _waits(run: Monitored) -> Iterator[Section]:
    columns = (
        Column("loader", "code"),
        Column("rank", "number"),
        Column("batches", "number"),
        Column("waited", "number"),
        Column("usual", "number"),
        Column("1 in 100", "number"),
        Column("1 in 10,000", "number"),
    )
    rows = tuple(
        (
            one.loader,
            str(one.rank) if run.world > 1 else "",
            whole(one.batches),
            f"{_time(one.wait_s)} ({percent(run.share([one]))})",
            *(duration(percentile(one.counts, share)) for share in (0.5, 0.99, 0.9999)),
        )
        for one in run.waits.values()
    )
    yield Section("Waiting for batches", (Table(columns, rows),), folded=False)


def _places(run: Monitored) -> Iterator[Section]:
    """Yield the section on slow batches by stage, line and worker."""
    groups: dict[tuple[str, str], list[SlowBatch]] = {}
    for batch in run.worst:
        groups.setdefault((batch.stage or "not known", _line(batch)), []).append(batch)
    all_s = sum(batch.seconds for batch in run.worst)
    rows = []
    for (stage, line), batches in sorted(groups.items(), key=lambda group: -sum(batch.seconds for batch in group[1])):
        waited_s = sum(batch.seconds for batch in batches)
        rows.append(
            (stage, line, _workers(batches, run.world), str(len(batches)), duration(waited_s), Bar(waited_s / all_s))
        )
    columns = (
        Column("stage", "code"),
        Column("line", "path"),
        Column("worker"),
        Column("batches", "number"),
        Column("waited", "number"),
        Column("", "bar", on=(*TERMINAL, "html")),
    )
    title = f"Where the {len(run.worst)} slowest batches come from"
    yield Section(title, (Table(columns, tuple(rows), most=_SHORT),), folded=False)


def _workers(batches: Sequence[SlowBatch], world: int) -> str:
    made_by = sorted({(batch.rank, -1 if batch.worker is None else batch.worker) for batch in batches})
    if len(made_by) > 3:
        return f"{len(made_by)} of them"
    named = ["main process" if worker < 0 else str(worker) for _, worker in made_by]
    if world > 1:
        named = [f"{worker} of rank {rank}" for (rank, _), worker in zip(made_by, named, strict=True)]
    return ", ".join(named)


def _time(seconds: float) -> str:
    return duration(seconds) if seconds < 10 else long_duration(seconds)


def _line(batch: SlowBatch) -> str:
    if batch.file is None:
        return ""
    calls = f" ({batch.calls})" if batch.calls else ""
    return f"{Path(batch.file).name}:{batch.line} {batch.function}{calls}"


def _worst(run: Monitored) -> Iterator[Section]:
    columns = (
        Column("waited", "number"),
        Column("step", "number"),
        Column("rank", "number"),
        Column("worker", "number"),
        Column("stage", "code"),
        Column("sample"),
        Column("line", "path", on=PAGES),
    )
    rows = tuple(
        (
            duration(batch.seconds),
            f"{batch.step:,}",
            str(batch.rank) if run.world > 1 else "",
            "" if batch.worker is None else str(batch.worker),
            batch.stage or "",
            _sample(batch),
            _line(batch),
        )
        for batch in run.worst
    )
    yield Section("The slowest batches", (Table(columns, rows, most=_SHORT),))


def _sample(batch: SlowBatch) -> str:
    if batch.slowest is not None and batch.slowest_s is not None:
        return f"{batch.slowest}, about {duration(batch.slowest_s)}"
    if not batch.indices:
        return ""
    more = f", … ({len(batch.indices)})" if len(batch.indices) > _MAX_INDICES else ""
    return ", ".join(map(str, batch.indices[:_MAX_INDICES])) + more


def _memory(run: Monitored, grows: Sequence[Growth]) -> Iterator[Section]:
    """Yield the section on processes whose memory grows."""
    if not grows:
        return
    columns = (
        Column("process"),
        Column("rank", "number"),
        Column("now", "number"),
        Column("an hour", "number"),
        Column("what grows"),
    )
    rows = tuple(
        (
            "main process" if one.worker is None else f"worker {one.worker}",
            str(one.rank) if run.world > 1 else "",
            size(one.private_bytes),
            f"+{size(one.bytes_per_hour.estimate)}",
            what_grows(one),
        )
        for one in grows
    )
    remedies = tuple(dict.fromkeys(REMEDY_OF[one.kind] for one in grows))
    blocks = (Table(columns, rows, most=_SHORT), Items(remedies, label="Fix"))
    yield Section("Memory that grows", blocks, folded=False)


def _beside(run: Monitored) -> Iterator[Section]:
    """Yield the section on epochs, validations and checkpoints."""
    told = []
    if run.epochs:
        starts = sorted(epoch.start_s for epoch in run.epochs)
        usual, longest = duration(starts[len(starts) // 2]), duration(starts[-1])
        told.append(f"Epochs: {len(starts)}. The first batch came after {usual}, at most after {longest}.")
    if run.validations:
        seconds = [one.seconds for one in run.validations]
        waited = percent(sum(one.wait_s for one in run.validations) / (sum(seconds) or 1.0))
        told.append(
            f"Validations: {len(seconds)}. They took {_time(sum(seconds))}, {waited} of it waiting for batches; the "
            f"longest took {_time(max(seconds))}."
        )
    if run.checkpoints:
        slowest = max(run.checkpoints, key=lambda one: one.seconds)
        place = "" if slowest.file is None else f", by {Path(slowest.file).name}:{slowest.line}"
        told.append(
            f"Checkpoints: {len(run.checkpoints)}. They took {_time(sum(one.seconds for one in run.checkpoints))}; the "
            f"slowest took {_time(slowest.seconds)}, after batch {slowest.step:,}{place}."
        )
    if run.memory:
        held = sum(looks[-1].private_bytes for looks in run.memory.values())
        told.append(
            f"Memory that is not shared, at the last look: {size(held)} in {plural(len(run.memory), 'process')}."
        )
    if run.unread:
        told.append(f"{plural(run.unread, 'line')} could not be read.")
    yield Section("Beside the loop's steps", (Items(tuple(told)),), folded=False)

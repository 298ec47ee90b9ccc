"""Waiting and reading, as sentences: waits and stalls, the epoch's edge, where data came from."""

from __future__ import annotations

from collections.abc import Iterator

from bottleneck.reports.content.job import rate_unit
from bottleneck.reports.document import Items, Section
from bottleneck.results.evidence import Evidence
from bottleneck.results.format import count, duration, percent, size, whole
from bottleneck.results.names import is_cpu
from bottleneck.results.records import Rate, Result

_RAW, _COLD = "raw", "cold"
_SOURCES = {
    "page cache": "from the page cache",
    "disk": "from the disk",
    "unknown": "from where is not known",
}


def reading(result: Result) -> Iterator[Section]:
    """Waits, stalls, the gap between two epochs, where each experiment reads from, and what of that is not known."""
    evidence = result.evidence
    whose = " of the main process" if _on_accelerator(result) else ""
    sentences = [
        *_waits(evidence, whose),
        *_stalls(evidence, whose),
        *_epoch_gap(evidence),
        *_sources(evidence),
        *evidence.reads.missing,
    ]
    yield Section("Waiting and reading", (Items(tuple(sentences)),))


def cold_epoch(result: Result) -> str:
    """What an epoch gets whose files are not in memory; empty where that was not measured."""
    cold, raw = _coupled(result, _COLD), _coupled(result, _RAW)
    stage = next((stage for stage in result.stages if stage.outer == _COLD), None)
    if cold is None or raw is None or stage is None:
        return ""
    text = (
        f"The first epoch, whose files are not in memory, gets {count(cold.samples_per_s)} {rate_unit(result)}, and "
        f"one that finds them there {count(raw.samples_per_s)}: that is the gain of {stage.name}, which is no part of "
        "the verdict."
    )
    files, dropped = result.evidence.cold.files, result.evidence.cold.bytes
    if files is None or dropped is None:
        return text
    return f"{text} {whole(files)} files ({size(dropped)}) were dropped before each of its blocks."


def _coupled(result: Result, name: str) -> Rate | None:
    return next((e.coupled for e in result.experiments if e.name == name and e.available), None)


def _on_accelerator(result: Result) -> bool:
    """Whether a device computes that the main process need not wait for."""
    device = result.environment.get("device")
    return bool(device) and not is_cpu(device)


def _waits(evidence: Evidence, whose: str) -> Iterator[str]:
    """How long the main process waits for a batch."""
    wait_s, first_batch_s = evidence.wait_s, evidence.first_batch_s
    measured = {"p50": wait_s.p50, "p95": wait_s.p95, "p99": wait_s.p99, "max": wait_s.max}
    known = [f"{name} {duration(seconds)}" for name, seconds in measured.items() if seconds is not None]
    parts = []
    if known:
        rest = ", while the device may be busy" if whose else ""
        parts.append(f"Wait{whose} for a batch{rest}: {', '.join(known)}.")
    if first_batch_s is not None:
        parts.append(f"First batch of an epoch: {duration(first_batch_s)}.")
    if parts:
        yield " ".join(parts)


def _stalls(evidence: Evidence, whose: str) -> Iterator[str]:
    stalls = evidence.stalls
    period, period_s = stalls.period_batches, stalls.period_s
    if not stalls.count or stalls.threshold_s is None or stalls.lost_share is None:
        return
    every = "at no regular distance" if not period else f"one every {whole(period)} batches"
    if period and period_s is not None:
        every += f" ({duration(period_s)})"
    yield (
        f"Stalls, waits{whose} over {duration(stalls.threshold_s)}: {whole(stalls.count)}, {every}, "
        f"{percent(stalls.lost_share)} of the time of raw."
    )


def _epoch_gap(evidence: Evidence) -> Iterator[str]:
    gap_s, anew = evidence.epoch_gap.seconds, evidence.epoch_gap.started_anew
    if gap_s is not None and anew is not None:
        how = "the workers start anew" if anew else "the workers stay"
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

"""What every format shows of waiting and reading, as sentences: stalls, the epoch's edge, where data came from."""

from __future__ import annotations

from collections.abc import Iterator

from bottleneck.reports import numbers, sanitize, view
from bottleneck.results.evidence import Evidence
from bottleneck.results.records import Rate, Result

_RAW, _COLD = "raw", "cold"
_SOURCES = {
    "page cache": "from the page cache",
    "disk": "from the disk",
    "unknown": "from where is not known",
}


def sentences(result: Result) -> list[str]:
    """The stalls, the gap between two epochs, where each experiment reads from, and what of that is not known."""
    evidence = result.evidence
    missing = map(sanitize.one_line, evidence.reads.missing)
    return [*_stalls(result), *_epoch_gap(evidence), *_sources(evidence), *missing]


def cold_epoch(result: Result) -> str:
    """What an epoch gets whose files are not in memory; empty where that was not measured."""
    cold, raw = _coupled(result, _COLD), _coupled(result, _RAW)
    stage = next((stage for stage in result.stages if stage.outer == _COLD), None)
    if cold is None or raw is None or stage is None:
        return ""
    text = (
        f"The first epoch, whose files are not in memory, gets {numbers.rate(cold.samples_per_s)} samples/s, and one "
        f"that finds them there {numbers.rate(raw.samples_per_s)}: that is the gain of "
        f"{sanitize.one_line(stage.name)}, which is no part of the verdict."
    )
    files, size = result.evidence.cold.files, result.evidence.cold.bytes
    if files is None or size is None:
        return text
    return f"{text} {numbers.count(files)} files ({numbers.size(size)}) were dropped before each of its blocks."


def _coupled(result: Result, name: str) -> Rate | None:
    return next((e.coupled for e in result.experiments if e.name == name and e.available), None)


def _stalls(result: Result) -> Iterator[str]:
    stalls = result.evidence.stalls
    period, period_s = stalls.period_batches, stalls.period_s
    if not stalls.count or stalls.threshold_s is None or stalls.lost_share is None:
        return
    every = "at no regular distance" if not period else f"one every {numbers.count(period)} batches"
    if period and period_s is not None:
        every += f" ({numbers.duration(period_s)})"
    whose = " of the main process" if view.on_accelerator(result) else ""
    yield (
        f"Stalls, waits{whose} over {numbers.duration(stalls.threshold_s)}: {numbers.count(stalls.count)}, {every}, "
        f"{numbers.percent(stalls.lost_share)} of the time of raw."
    )


def _epoch_gap(evidence: Evidence) -> Iterator[str]:
    gap_s, anew = evidence.epoch_gap.seconds, evidence.epoch_gap.started_anew
    if gap_s is not None and anew is not None:
        how = "the workers start anew" if anew else "the workers stay"
        yield f"Between two epochs {how}: {numbers.duration(gap_s)} to the first batch."


def _sources(evidence: Evidence) -> Iterator[str]:
    parts = []
    for row in evidence.reads.experiments:
        asked, stored = row.asked_bytes_per_sample, row.storage_bytes_per_sample
        if not row.name or row.source not in _SOURCES or asked is None or stored is None:
            continue
        # What is read without asking, from mapped files, shows where it comes from storage.
        read = numbers.size(max(asked, stored) if row.source == "disk" else asked)
        parts.append(f"{sanitize.one_line(row.name)} {read} a sample {_SOURCES[row.source]}")
    if parts:
        yield f"Read: {', '.join(parts)}."

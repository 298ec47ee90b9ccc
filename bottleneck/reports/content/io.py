"""What every format shows of waiting and reading, as sentences: stalls, the epoch's edge, where data came from."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from bottleneck.analysis import lookup
from bottleneck.reports import numbers, sanitize, view
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
    return [*_stalls(result), *_epoch_gap(evidence), *_sources(evidence), *_missing(evidence)]


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
    files, size = (lookup.number_at(result.evidence, _COLD, key) for key in ("files", "bytes"))
    if files is None or size is None:
        return text
    return f"{text} {numbers.count(files)} files ({numbers.size(size)}) were dropped before each of its blocks."


def _coupled(result: Result, name: str) -> Rate | None:
    return next((e.coupled for e in result.experiments if e.name == name and e.available), None)


def _stalls(result: Result) -> Iterator[str]:
    evidence = result.evidence
    count, over_s, lost, period, period_s = (
        lookup.number_at(evidence, "stalls", key)
        for key in ("count", "threshold_s", "lost_share", "period_batches", "period_s")
    )
    if not count or over_s is None or lost is None:
        return
    every = "at no regular distance" if not period else f"one every {numbers.count(period)} batches"
    if period and period_s is not None:
        every += f" ({numbers.duration(period_s)})"
    whose = " of the main process" if view.on_accelerator(result) else ""
    yield (
        f"Stalls, waits{whose} over {numbers.duration(over_s)}: {numbers.count(count)}, {every}, "
        f"{numbers.percent(lost)} of the time of raw."
    )


def _epoch_gap(evidence: Mapping[str, Any]) -> Iterator[str]:
    gap_s = lookup.number_at(evidence, "epoch_gap", "seconds")
    anew = lookup.flag_at(evidence, "epoch_gap", "started_anew")
    if gap_s is not None and anew is not None:
        how = "the workers start anew" if anew else "the workers stay"
        yield f"Between two epochs {how}: {numbers.duration(gap_s)} to the first batch."


def _sources(evidence: Mapping[str, Any]) -> Iterator[str]:
    parts = []
    for row in lookup.rows_at(evidence, "reads", "experiments"):
        name, source = lookup.text_at(row, "name"), lookup.text_at(row, "source")
        asked, stored = (lookup.number_at(row, key) for key in ("asked_bytes_per_sample", "storage_bytes_per_sample"))
        if not name or source not in _SOURCES or asked is None or stored is None:
            continue
        # What is read without asking, from mapped files, shows where it comes from storage.
        read = numbers.size(max(asked, stored) if source == "disk" else asked)
        parts.append(f"{sanitize.one_line(name)} {read} a sample {_SOURCES[source]}")
    if parts:
        yield f"Read: {', '.join(parts)}."


def _missing(evidence: Mapping[str, Any]) -> Iterator[str]:
    for line in lookup.list_at(evidence, "reads", "missing"):
        if isinstance(line, str):
            yield sanitize.one_line(line)

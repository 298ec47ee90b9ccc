"""What everything else rests on: where it was measured, on which pipeline, and the raw blocks."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from bottleneck.reports import sanitize
from bottleneck.reports.content.job import Measured
from bottleneck.reports.document import Column, Section, Table
from bottleneck.results.format import LARGEST, count, duration, long_duration, number, size, whole
from bottleneck.results.records import Rate, Result

MAX_VALUE = 300
"""Characters of a value of the environment or the pipeline that are shown."""

_COLUMNS = (
    Column("experiment", "name"),
    Column("mode"),
    *(Column(title, "number") for title in ("rounds", "blocks", "batches", "samples", "seconds", "slowest", "fastest")),
)


def setting(result: Measured) -> Iterator[Section]:
    """Environment and pipeline."""
    for title, part in (("Environment", result.environment), ("Pipeline", result.pipeline)):
        rows = tuple((key, described(key, value)) for key, value in part.items())
        yield Section(title, (Table((Column("", "name"), Column("", "path")), rows),))


def described(key: str, value: Any) -> str:
    """A value of the environment or the pipeline as text, secrets hidden."""
    value = _presentable(key, value)
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return _by_unit(key, value)
    if isinstance(value, (Mapping, list)):
        value = json.dumps(value, ensure_ascii=False, default=str)
    text = str(value)
    return text if len(text) <= MAX_VALUE else text[:MAX_VALUE] + "…"


def _by_unit(key: str, value: float) -> str:
    """A number whose unit its key says, else as it is."""
    if not abs(value) < LARGEST:
        return str(value)
    if key.endswith("_bytes"):
        return size(value)
    if key.endswith("_s"):
        return duration(value)
    return number(value) if isinstance(value, int) else f"{value:g}"


def _presentable(key: str, value: Any) -> Any:
    if sanitize.is_secret(key):
        return "[hidden]"
    if isinstance(value, Mapping):
        return {sanitize.one_line(str(name)): _presentable(str(name), item) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_presentable("", item) for item in value]
    # Before it becomes part of some JSON, whose escapes would keep what is to be removed.
    return sanitize.one_line(value) if isinstance(value, str) else value


def blocks(result: Result) -> Iterator[Section]:
    """The blocks of every experiment that has any, counted."""
    measured: list[tuple[str, str, Rate | None]] = []
    for experiment in result.experiments:
        measured.append((experiment.name, "coupled", experiment.coupled))
        measured.append((experiment.name, "drained", experiment.drained))
    measured.extend((without.stage, "without", without.coupled) for without in result.without)
    rows = tuple(_row(name, mode, rate) for name, mode, rate in measured if rate and rate.blocks)
    yield Section("Raw blocks", (Table(_COLUMNS, rows),))


def _row(name: str, mode: str, rate: Rate) -> tuple[str, ...]:
    speeds = [block.samples / block.seconds for block in rate.blocks if block.seconds > 0]
    return (
        name,
        mode,
        whole(len({block.round for block in rate.blocks})),
        whole(len(rate.blocks)),
        whole(sum(block.batches for block in rate.blocks)),
        whole(sum(block.samples for block in rate.blocks)),
        long_duration(sum(block.seconds for block in rate.blocks)),
        count(min(speeds, default=None)),
        count(max(speeds, default=None)),
    )

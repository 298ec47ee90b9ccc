"""What everything else rests on: where it was measured, on which pipeline, and the raw blocks."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from bottleneck.reports import sanitize
from bottleneck.reports.charts.blocks import plot_blocks
from bottleneck.reports.content.job import Measured
from bottleneck.reports.document import Column, Figure, Paragraph, Section, Table
from bottleneck.results.format import LARGEST, duration, number, size
from bottleneck.results.records import Result

MAX_VALUE = 300
"""Characters of a value of the environment or the pipeline that are shown."""


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
    """Every block, in a plot."""
    plot = plot_blocks(result)
    if plot is not None:
        yield Section(plot.title, (Figure(plot), Paragraph(plot.note, "note")))

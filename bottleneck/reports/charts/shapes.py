"""What charts are made of, in user units of an SVG: what is drawn where, and nothing of how.

Texts that are cut are ready to be shown; the template escapes all of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from bottleneck.reports import sanitize

WIDTH = 720
LABEL_WIDTH = 190
"""Room for letters of half again the size: on a narrow screen the chart shrinks and they do not."""


@dataclass(frozen=True)
class Rect:
    """A bar."""

    x: float
    y: float
    width: float
    height: float
    kind: Literal["bar", "hot", "soft", "faint", ""]
    tip: str = ""


@dataclass(frozen=True)
class Segment:
    """A line: an interval, an axis or a bound."""

    x1: float
    y1: float
    x2: float
    y2: float
    kind: Literal["interval", "axis", "bound"]


@dataclass(frozen=True)
class Dot:
    """A single measured block."""

    x: float
    y: float
    kind: Literal["bar", "hot"]
    tip: str


@dataclass(frozen=True)
class Label:
    """A text. The middle of a label and of a value is at `y`, the foot of the others."""

    x: float
    y: float
    text: str
    kind: Literal["label", "value", "title", "soft"]
    anchor: Literal["start", "middle", "end"] = "start"


@dataclass(frozen=True)
class Group:
    """Bars that belong together, with one text for all."""

    kind: Literal["job", "step", "loader"]
    tip: str
    rects: tuple[Rect, ...]


Shape = Rect | Segment | Dot | Label


@dataclass(frozen=True)
class Chart:
    """One chart."""

    title: str
    note: str
    height: float
    rects: tuple[Rect, ...] = ()
    segments: tuple[Segment, ...] = ()
    dots: tuple[Dot, ...] = ()
    labels: tuple[Label, ...] = ()
    groups: tuple[Group, ...] = ()
    line: str = ""
    """Points of a polyline."""
    width: float = WIDTH


def short(text: str, most: int = 18) -> str:
    """A name that fits beside a chart."""
    return sanitize.shown(text, most)

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
_MOST_WORDS = 80
"""Bars that are told one by one to those who do not see them; of more, what they mean."""


Heat = Literal["heat0", "heat1", "heat2", "heat3", "heat4"]
"""How far a cell of a map stands out, from not at all."""


@dataclass(frozen=True)
class Rect:
    """A bar."""

    x: float
    y: float
    width: float
    height: float
    kind: Literal["bar", "hot", "soft", "faint", ""] | Heat
    tip: str = ""
    fill: str = ""
    """A colour of its own, where it has no kind."""


@dataclass(frozen=True)
class Segment:
    """A line: an interval, an axis or a bound, or one that cuts a bar that is longer than there is room for."""

    x1: float
    y1: float
    x2: float
    y2: float
    kind: Literal["interval", "axis", "bound", "break"]


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
    legend: tuple[tuple[str, str], ...] = ()
    """Names and their colours."""

    @property
    def words(self) -> str:
        """What it shows, for those who do not see it."""
        tips = [rect.tip for rect in self.rects if rect.tip]
        return f"{self.title}. {'; '.join(tips) if 0 < len(tips) <= _MOST_WORDS else self.note}"


def short(text: str, most: int = 18) -> str:
    """A name that fits beside a chart."""
    return sanitize.shown(text, most)

"""Utilisation over time: a bar for each block, panel above panel.

What makes no sense is left out: a series may come from any file.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from bottleneck.reports.charts.shapes import LABEL_WIDTH, WIDTH, Chart, Group, Label, Rect, Segment, short
from bottleneck.results.evidence import BlocksOverTime
from bottleneck.results.format import LARGEST, percent, size
from bottleneck.results.records import Result

RIGHT = 12
ROOM = WIDTH - LABEL_WIDTH - RIGHT
MOST_GROUPS = 480
MOST_LANES = 24
_PANEL, _GAP, _LANE, _AXIS = 46, 22, 13, 24
_LONGEST_S = 1e6
_LEAST_WIDTH = 0.8
_MAX_LABEL = 20


@dataclass(frozen=True)
class _Block:
    begin_s: float
    end_s: float
    name: str
    mode: str
    row: BlocksOverTime

    def value(self, key: str) -> float | None:
        found: float | None = getattr(self.row, key)
        return found if found is not None and 0 <= found < LARGEST else None

    @property
    def kind(self) -> Literal["job", "step", "loader"]:
        """The job as it is; another experiment with the train step; the loader alone."""
        if self.mode in ("drained", "workers", "workers without", "serving"):
            return "loader"
        return "job" if (self.name, self.mode) == ("raw", "coupled") else "step"

    @property
    def lane(self) -> str:
        """What is written in front of it: many experiments have little to tell apart here."""
        if self.kind == "loader":
            return "loader alone"
        return self.name if self.mode == "coupled" else "without a stage" if self.mode == "without" else "several"


@dataclass(frozen=True)
class _Panel:
    title: str
    key: str
    behind: str | None
    written: Callable[[float], str]


_PANELS = (
    _Panel("cores busy", "cores_job", "cores_busy", lambda value: f"{value:,.1f}"),
    _Panel("device busy", "gpu_busy_share", None, percent),
    _Panel("read from disk", "disk_read_bytes_per_s", None, lambda value: f"{size(value)}/s"),
)


def draw_timeline(result: Result) -> Chart | None:
    """Utilisation over the time of the diagnosis; None where no series was kept."""
    blocks = list(_blocks(result))[:MOST_GROUPS]
    return _Drawing(result, blocks).draw() if blocks else None


def _blocks(result: Result) -> Iterator[_Block]:
    for row in result.evidence.utilisation.series.blocks:
        begin_s, end_s = row.begin_s, row.end_s
        if begin_s is not None and end_s is not None and 0 <= begin_s < end_s < _LONGEST_S:
            yield _Block(begin_s, end_s, row.name or "", row.mode or "", row)


class _Drawing:
    def __init__(self, result: Result, blocks: Sequence[_Block]) -> None:
        self._result, self._blocks = result, blocks
        self._end_s = max(block.end_s for block in blocks)
        self._bars: list[list[Rect]] = [[] for _ in blocks]
        self._labels: list[Label] = []
        self._lines: list[Segment] = []
        self._top = 0.0

    def draw(self) -> Chart:
        """Draw one panel below the other, then the lanes and the axis."""
        for panel in _PANELS:
            self._panel(panel)
        memory = self._memory()
        self._lanes()
        self._axis()
        together = self._result.evidence.utilisation.series.blocks_per_row or 1
        bar = "a block" if together == 1 else f"{together} neighbouring blocks"
        groups = (
            Group(block.kind, _tip(block), tuple(bars)) for block, bars in zip(self._blocks, self._bars, strict=True)
        )
        return Chart(
            "Utilisation while this was measured",
            "The diagnosis switches between experiments many times, so that this shows the measurement and not the job "
            f"by itself: each bar is {bar}, in the order in which they ran. Between them nothing was counted. Grey: "
            "cores that anything but the job kept busy.",
            round(self._top, 1),
            segments=tuple(self._lines),
            labels=tuple(self._labels),
            groups=tuple(groups),
            line=memory,
        )

    def _x(self, time_s: float) -> float:
        return LABEL_WIDTH + ROOM * time_s / self._end_s

    def _panel(self, panel: _Panel) -> None:
        """Draw a value of all blocks, as far as any has it; in front of it the part of the job itself."""
        keys = [key for key in (panel.behind, panel.key) if key is not None]
        values = [value for block in self._blocks for key in keys if (value := block.value(key)) is not None]
        if not values:
            return
        most = 1.0 if panel.key == "gpu_busy_share" else max(*values, self._usable() if panel.behind else 0.0)
        foot = self._begin_panel(panel.title, f"top: {panel.written(most)}" if most > 0 else "none")
        for block, bars in zip(self._blocks, self._bars, strict=True):
            for key in keys:
                value = block.value(key)
                if value is not None and most > 0:
                    height = _PANEL * min(1.0, value / most)
                    bars.append(self._bar(block, foot - height, height, faint=key == panel.behind))

    def _usable(self) -> float:
        usable = self._result.evidence.utilisation.cores.allowed
        return usable if usable is not None and 0 < usable < LARGEST else 0.0

    def _begin_panel(self, title: str, most: str) -> float:
        """Write what a panel is and what its top stands for; return its foot."""
        self._top += 8
        foot = self._top + _PANEL
        self._labels.append(Label(LABEL_WIDTH - 8, self._top + 16, title, "title", "end"))
        self._labels.append(Label(LABEL_WIDTH - 8, self._top + 32, most, "soft", "end"))
        self._lines.append(Segment(LABEL_WIDTH, foot, WIDTH - RIGHT, foot, "axis"))
        self._top = foot + _GAP - 8
        return foot

    def _bar(self, block: _Block, y: float, height: float, *, faint: bool = False) -> Rect:
        x = self._x(block.begin_s)
        return Rect(x, y, max(_LEAST_WIDTH, self._x(block.end_s) - x), height, "faint" if faint else "")

    def _memory(self) -> str:
        """Draw the memory of the workers as a line; return its points."""
        points = [
            (time_s, row.private_bytes + (row.shared_bytes or 0))
            for row in self._result.evidence.utilisation.series.memory[:MOST_GROUPS]
            if (time_s := row.time_s) is not None and row.private_bytes is not None and 0 <= time_s <= self._end_s
        ]
        points = [(time_s, held) for time_s, held in points if 0 < held < LARGEST]
        if len(points) < 2:
            return ""
        most = max(held for _, held in points)
        foot = self._begin_panel("memory of workers", f"top: {size(most)}")
        return " ".join(f"{self._x(time_s):.1f},{foot - _PANEL * held / most:.1f}" for time_s, held in sorted(points))

    def _lanes(self) -> None:
        """Draw which experiment ran when."""
        names = dict.fromkeys(e.name for e in self._result.experiments if e.available)
        lanes = dict.fromkeys([*names, "without a stage", "loader alone", *(block.lane for block in self._blocks)])
        there = {block.lane for block in self._blocks}
        tops = {}
        self._top += 6
        for lane in [lane for lane in lanes if lane in there][:MOST_LANES]:
            tops[lane] = self._top
            self._labels.append(Label(LABEL_WIDTH - 8, self._top + 10, short(lane, _MAX_LABEL), "soft", "end"))
            self._top += _LANE
        for block, bars in zip(self._blocks, self._bars, strict=True):
            if block.lane in tops:
                bars.append(self._bar(block, tops[block.lane] + 2, _LANE - 4))

    def _axis(self) -> None:
        y = self._top + 4
        self._lines.append(Segment(LABEL_WIDTH, y, WIDTH - RIGHT, y, "axis"))
        for tick_s in _ticks(self._end_s):
            x = self._x(tick_s)
            self._lines.append(Segment(x, y, x, y + 4, "axis"))
            self._labels.append(Label(x, y + 17, f"{tick_s:,.10g} s", "soft", "middle"))
        self._top = y + _AXIS


def _tip(block: _Block) -> str:
    what = " ".join(filter(None, (block.name, block.mode))) or "several experiments"
    if block.mode in ("without", "workers without"):
        what = f"without {block.name}" + (", loader alone" if block.mode != "without" else "")
    parts = [f"{what}, {block.begin_s:.1f} to {block.end_s:.1f} s"]
    busy, job = block.value("cores_busy"), block.value("cores_job")
    if busy is not None:
        parts.append(f"{busy:,.2f} cores busy" + (f", {job:,.2f} of them by the job" if job is not None else ""))
    for panel in _PANELS[1:]:
        value = block.value(panel.key)
        if value is not None:
            parts.append(f"{panel.title}: {panel.written(value)}")
    return "; ".join(parts)


def _ticks(end_s: float) -> list[float]:
    """Round times from zero on, some five of them."""
    step = 10.0 ** math.floor(math.log10(end_s / 5))
    step *= next(factor for factor in (1, 2, 5, 10) if end_s / (factor * step) <= 7)
    return [number * step for number in range(int(end_s / step) + 1)]

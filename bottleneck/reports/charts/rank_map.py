"""Ranks and what a batch takes on each: a cell is the warmer, the more of a step it takes than on other ranks.

Of many ranks a row is some that follow each other, and shows the slowest of them: so the page stays small, and none
that is slow is hidden.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import median

from bottleneck.analysis.gains import step_s
from bottleneck.reports.charts.shapes import LABEL_WIDTH, WIDTH, Chart, Heat, Label, Rect, short
from bottleneck.results.format import LARGEST, duration, percent, whole
from bottleneck.results.names import COMPUTE
from bottleneck.results.ranks import Rank
from bottleneck.results.records import Result, Stage

MOST_ROWS = 32
_MOST_COLUMNS = 8
_HEAD, _PITCH, _GAP = 24, 24, 2
_STEPS: tuple[tuple[float, Heat], ...] = ((1.0, "heat4"), (0.4, "heat3"), (0.15, "heat2"), (0.05, "heat1"))
"""What a cell takes more than the rank in the middle, as a part of the step, and its colour."""


@dataclass(frozen=True)
class _Column:
    name: str
    seconds: tuple[float | None, ...]
    """Of each rank."""

    @property
    def usual_s(self) -> float:
        return median(known) if (known := [s for s in self.seconds if s is not None]) else 0.0


def draw_ranks(result: Result) -> Chart | None:
    """The map of ranks and stages; None of a job of one process, and where nothing was measured of its ranks."""
    columns = [column for column in _columns(result) if any(column.seconds)][:_MOST_COLUMNS]
    ranks, whole_s = result.ranks, step_s(result)
    if len(ranks) < 2 or not columns or whole_s is None or not 0 < whole_s < LARGEST:
        return None
    each = -(-len(ranks) // MOST_ROWS)
    rows = [range(at, min(at + each, len(ranks))) for at in range(0, len(ranks), each)]
    width = (WIDTH - LABEL_WIDTH) / len(columns)
    rects, labels = [], []
    for at, column in enumerate(columns):
        x = LABEL_WIDTH + at * width
        labels.append(Label(x + width / 2, _HEAD - 8, short(column.name, 14), "soft", "middle"))
        for row, members in enumerate(rows):
            cell = _cell(column, members, ranks, whole_s)
            if cell is not None:
                y = _HEAD + row * _PITCH
                rects.append(Rect(x, y, width - _GAP, _PITCH - _GAP, cell.heat, cell.tip))
                labels.append(Label(x + width / 2, y + _PITCH / 2, cell.text, "value", "middle"))
    named = [Label(LABEL_WIDTH - 8, _HEAD + (row + 0.5) * _PITCH, _label(ranks, members), "label", "end")
             for row, members in enumerate(rows)]  # fmt: skip
    height = _HEAD + len(rows) * _PITCH
    return Chart("Ranks and stages", _note(each, rects), height, rects=tuple(rects), labels=(*labels, *named))


def _columns(result: Result) -> Iterator[_Column]:
    """What a rank waits and works in the job, then what each stage takes its loader, in the order of the data."""
    yield _Column("waits for data", tuple(_sane(rank.wait_s_per_batch) for rank in result.ranks))
    yield _Column("train step", tuple(_sane(rank.step_s_per_batch) for rank in result.ranks))
    drained = [_drained(rank) for rank in result.ranks]
    for stage in reversed(result.stages):
        if stage.name != COMPUTE:
            yield _Column(stage.name, tuple(_of_stage(found, stage, result) for found in drained))


def _drained(rank: Rank) -> dict[str, float | None]:
    return {found.name: _sane(found.drained_s_per_batch) for found in rank.experiments}


def _of_stage(drained: dict[str, float | None], stage: Stage, result: Result) -> float | None:
    """What a stage takes the loader of a rank: what it takes with the stage, less what it takes without."""
    outer_s, inner_s = drained.get(stage.outer), drained.get(stage.inner or "")
    if outer_s is None or (inner_s is None and stage.inner in _with_drained(result)):
        return None
    return max(0.0, outer_s - (inner_s or 0.0))


def _with_drained(result: Result) -> set[str]:
    """The experiments in which loaders ran alone: before the first of them there is nothing to take away."""
    return {experiment.name for experiment in result.experiments if experiment.drained is not None}


def _sane(seconds: float | None) -> float | None:
    return seconds if seconds is not None and seconds < LARGEST else None


@dataclass(frozen=True)
class _Cell:
    text: str
    tip: str
    heat: Heat


def _cell(column: _Column, members: Sequence[int], ranks: Sequence[Rank], whole_s: float) -> _Cell | None:
    """The slowest of the ranks of a row."""
    known = [(seconds, at) for at in members if (seconds := column.seconds[at]) is not None]
    if not known:
        return None
    seconds, at = max(known)
    more = (seconds - column.usual_s) / whole_s
    heat: Heat = next((heat for least, heat in _STEPS if more > least), "heat0")
    apart = f", {percent(more)} of a step more than usual" if heat != "heat0" else ""
    return _Cell(duration(seconds), f"Rank {whole(ranks[at].rank)}, {column.name}: {duration(seconds)}{apart}", heat)


def _label(ranks: Sequence[Rank], members: Sequence[int]) -> str:
    first, last = ranks[members[0]], ranks[members[-1]]
    if first is last:
        return f"{whole(first.rank)} {short(first.host, 12)}"
    hosts = f" {short(first.host, 10)}" if first.host == last.host else ""
    return f"{whole(first.rank)}–{whole(last.rank)}{hosts}"


def _note(each: int, rects: Sequence[Rect]) -> str:
    """What it means, and what stands out, for those who do not see colours."""
    warm = [rect for rect in rects if rect.kind != "heat0"]
    warmest = max(warm, key=lambda rect: rect.kind, default=None)
    row = "is a rank" if each == 1 else f"shows the slowest of {each} ranks"
    told = f" The most: {warmest.tip[0].lower()}{warmest.tip[1:]}." if warmest else " No rank stands out."
    return (
        f"Times per batch. Each row {row}; the train step is with what it waits for other ranks, the stages are as the "
        f"loader takes them alone. The warmer, the more of a step it takes than on the rank in the middle.{told}"
    )

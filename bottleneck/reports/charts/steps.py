"""Single steps of the job, one behind the other, and below them what each worker did meanwhile where that is known."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, TypeGuard

from bottleneck.analysis.settings import number
from bottleneck.reports.charts.flamegraph import SEVERAL, colours_of
from bottleneck.reports.charts.shapes import WIDTH, Chart, Label, Rect, Segment, short
from bottleneck.results.evidence import BatchWatched
from bottleneck.results.format import LARGEST, duration, percent, whole
from bottleneck.results.names import COPY
from bottleneck.results.records import Result

MOST_STEPS, MOST_LANES, MOST_BATCHES = 64, 16, 64
_LEFT, _LANES_LEFT, _RIGHT = 8, 130, 8
"""Room for letters of half again the size, as on a narrow screen."""
_TOP, _STEP, _LANE, _PITCH, _AXIS = 4, 40, 16, 24, 22
_TITLE, _WAITS, _WORKS = "Steps of the job", "waits for a batch", "copy and train step"
_WORK = colours_of((COPY,))[COPY]
"""The colour of no stage in a worker."""


@dataclass(frozen=True)
class _Step:
    begin_s: float
    wait_s: float
    work_s: float

    @property
    def end_s(self) -> float:
        return self.begin_s + self.wait_s + self.work_s


def step_chart(result: Result) -> Chart | None:
    """How evenly batches come, what waiting for them takes, and who makes them; None where no steps were kept."""
    watched = sorted(_watched_steps(result), key=lambda step: step.end_s)
    lanes = _lanes(result, watched[-1].end_s) if len(watched) > 1 else {}
    steps = watched if lanes else list(_kept_steps(result))
    if len(steps) < 2 or not 0 < steps[-1].end_s < LARGEST:
        return None
    return _Drawing(result, steps, lanes).draw()


def _kept_steps(result: Result) -> Iterator[_Step]:
    """Those of a timed block, right behind each other."""
    begin_s = 0.0
    for seen in result.evidence.steps[:MOST_STEPS]:
        if _is_time(seen.wait_s) and _is_time(seen.work_s):
            yield _Step(begin_s, seen.wait_s, seen.work_s)
            begin_s += seen.wait_s + seen.work_s


def _watched_steps(result: Result) -> Iterator[_Step]:
    for seen in result.evidence.watched.steps[:MOST_STEPS]:
        if _is_time(seen.begin_s) and _is_time(seen.wait_s) and _is_time(seen.work_s):
            yield _Step(seen.begin_s, seen.wait_s, seen.work_s)


def _lanes(result: Result, end_s: float) -> dict[int, list[BatchWatched]]:
    """The batches of each worker that were at least begun before the last step was done."""
    found: dict[int, list[BatchWatched]] = {}
    for batch in result.evidence.watched.batches:
        if batch.worker is not None and batch.stages_s and _is_bound(batch.begin_s) and _is_bound(batch.end_s):
            in_time = batch.begin_s < end_s and batch.end_s > 0 and batch.begin_s < batch.end_s
            if in_time and all(map(_is_time, batch.stages_s.values())):
                found.setdefault(batch.worker, []).append(batch)
    return {worker: found[worker][:MOST_BATCHES] for worker in sorted(found)[:MOST_LANES]}


class _Drawing:
    def __init__(self, result: Result, steps: Sequence[_Step], lanes: dict[int, list[BatchWatched]]) -> None:
        self._steps, self._lanes = steps, lanes
        self._in_main = number(result.pipeline, "num_workers") == 0
        self._end_s, self._left = steps[-1].end_s, _LANES_LEFT if lanes else _LEFT
        seen = dict.fromkeys(stage for made in lanes.values() for batch in made for stage in batch.stages_s or ())
        colours = colours_of([*(stage.name for stage in result.stages), *seen])
        self._colours = {stage: colours[stage] for stage in seen}

    def draw(self) -> Chart:
        """Draw the steps, then the lanes, then the axis."""
        rects, labels = list(self._step_rects()), list(self._names())
        for at, batches in enumerate(self._lanes.values()):
            rects += [rect for batch in batches for rect in self._batch_rects(batch, at)]
        foot = (self._top(len(self._lanes) - 1) + _LANE if self._lanes else _TOP + _STEP) + 4
        labels.append(Label(self._left, foot + 16, "0", "soft"))
        labels.append(Label(WIDTH - _RIGHT, foot + 16, duration(self._end_s), "soft", "end"))
        axis = (Segment(self._left, foot, WIDTH - _RIGHT, foot, "axis"),) if self._lanes else ()
        height, legend = foot + _AXIS, self._legend()
        return Chart(_TITLE, self._note(), height, tuple(rects), axis, labels=tuple(labels), legend=legend)

    def _top(self, lane: int) -> float:
        return _TOP + _STEP + 10 + lane * _PITCH

    def _who(self, lane: int) -> str:
        return "loading" if self._in_main else f"worker {list(self._lanes)[lane]}"

    def _names(self) -> Iterator[Label]:
        if self._lanes:
            yield Label(self._left - 8, _TOP + _STEP / 2 + 4, "main process", "soft", "end")
        for lane in range(len(self._lanes)):
            yield Label(self._left - 8, self._top(lane) + _LANE / 2 + 4, self._who(lane), "soft", "end")

    def _x(self, time_s: float) -> float:
        return self._left + (WIDTH - self._left - _RIGHT) * min(1.0, max(0.0, time_s / self._end_s))

    def _step_rects(self) -> Iterator[Rect]:
        waits: tuple[Literal["", "hot"], str] = ("", SEVERAL) if self._lanes else ("hot", "")
        works: tuple[Literal["", "bar"], str] = ("", _WORK) if self._lanes else ("bar", "")
        for at, step in enumerate(self._steps, 1):
            tip = f"step {at}: waits {duration(step.wait_s)}, works {duration(step.work_s)}"
            begin, middle, end = map(self._x, (step.begin_s, step.begin_s + step.wait_s, step.end_s))
            yield Rect(begin, _TOP, middle - begin, _STEP, waits[0], tip, waits[1])
            # A hair between two steps keeps them apart.
            yield Rect(middle, _TOP, end - middle - min(1.0, (end - middle) / 4), _STEP, works[0], tip, works[1])

    def _batch_rects(self, batch: BatchWatched, lane: int) -> Iterator[Rect]:
        """The stages of a batch in their order, each as long as it took with all samples."""
        begin_s, until_s, stages_s = batch.begin_s or 0.0, batch.end_s or 0.0, batch.stages_s or {}
        told = ", ".join(f"{short(stage)} {duration(seconds)}" for stage, seconds in stages_s.items())
        for stage, seconds in stages_s.items():
            end_s = min(until_s, begin_s + seconds)
            begin, end = self._x(begin_s), self._x(end_s)
            if end > begin:
                tip = f"{self._who(lane)}, a batch: {told}"
                yield Rect(begin, self._top(lane), end - begin, _LANE, "", tip, self._colours[stage])
            begin_s = end_s

    def _legend(self) -> tuple[tuple[str, str], ...]:
        stages = ((short(stage), colour) for stage, colour in self._colours.items())
        return ((_WAITS, SEVERAL), (_WORKS, _WORK), *stages) if self._lanes else ()

    def _note(self) -> str:
        waits = percent(sum(step.wait_s for step in self._steps) / self._end_s)
        steps = f"{whole(len(self._steps))} steps one behind the other."
        if not self._lanes:
            return (
                f"{steps} Orange, {waits}: the main process waits for a batch. Blue: it copies the batch and runs the "
                "train step; a device may work on meanwhile."
            )
        return (
            f"{steps} The main process waits for a batch {waits} of the time; a device may work on meanwhile. Each "
            "piece in a lane is a stage of one batch with all of its samples, which in truth take turns. Watched "
            "outside of the timed blocks."
        )


def _is_time(seconds: float | None) -> TypeGuard[float]:
    return seconds is not None and 0 <= seconds < LARGEST


def _is_bound(seconds: float | None) -> TypeGuard[float]:
    return seconds is not None and abs(seconds) < LARGEST

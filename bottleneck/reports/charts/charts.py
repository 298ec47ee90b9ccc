"""The charts of the HTML report, as shapes in user units of an SVG: what is drawn where, and nothing of how.

All texts are ready to be shown; the template escapes them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from bottleneck.reports import numbers, sanitize, view
from bottleneck.results.records import Block, Interval, Rate, Result, Stage

WIDTH = 720
# Room for letters of half again the size: on a narrow screen the chart shrinks and they do not.
LABEL_WIDTH = 190
VALUE_WIDTH = 210
ROOM = WIDTH - LABEL_WIDTH - VALUE_WIDTH
"""What bars have from left to right."""
MAX_LABEL = 18
MAX_ROWS = 40
MAX_DOTS = 4_000
"""Blocks that are drawn; a page of more takes browsers long."""

_BAR, _THIN_BAR, _PITCH, _PAIR_PITCH = 18, 6, 28, 38
_LANE = 34
_WIDEST_DEVIATION = 0.5
_LEAST_DEVIATION = 0.02

Kind = Literal["bar", "hot", "soft", "interval", "axis", "bound", "label", "value"]


@dataclass(frozen=True)
class Rect:
    """A bar."""

    x: float
    y: float
    width: float
    height: float
    kind: Kind
    tip: str


@dataclass(frozen=True)
class Segment:
    """A line: an interval or an axis."""

    x1: float
    y1: float
    x2: float
    y2: float
    kind: Kind


@dataclass(frozen=True)
class Dot:
    """A single measured block."""

    x: float
    y: float
    kind: Kind
    tip: str


@dataclass(frozen=True)
class Label:
    """A text beside a bar; `y` is its middle."""

    x: float
    y: float
    text: str
    kind: Kind
    anchor: Literal["start", "end"] = "start"


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
    width: float = WIDTH


Shape = Rect | Segment | Dot | Label


def charts(result: Result) -> tuple[Chart, ...]:
    """The charts of what was found, as far as there is something to draw."""
    made = (_ladder(result), _waterfall(result), _gains(result))
    return tuple(chart for chart in made if chart is not None)


# --- the charts -------------------------------------------------------------------------------------------


def _ladder(result: Result) -> Chart | None:
    """Throughput at each point, with the train step and, below it, of the loader alone."""
    rungs = [rung for rung in view.ladder(result) if _positive(rung.experiment.coupled)][:MAX_ROWS]
    if not rungs:
        return None
    fastest = max(rung.experiment.coupled.samples_per_s for rung in rungs if rung.experiment.coupled)
    shapes: list[Shape] = []
    hot_rung = any(rung.stage is not None and rung.stage.name == result.verdict.bottleneck for rung in rungs)
    for row, rung in enumerate(rungs):
        name, top = rung.experiment.name, row * _PAIR_PITCH
        hot = rung.stage is not None and rung.stage.name == result.verdict.bottleneck
        shapes.append(_name(name, top))
        coupled, drained = rung.experiment.coupled, rung.experiment.drained
        if coupled is not None:
            shapes.extend(_rate_bar(coupled, fastest, top, _BAR, "hot" if hot else "bar", name))
        if drained is not None and _positive(drained):
            shapes.extend(_rate_bar(drained, fastest, top + _BAR + 2, _THIN_BAR, "soft", f"{name}, loader alone"))
    return _chart(
        "Throughput with the data cached at each point",
        "Samples per second. Thick: with the train step. Thin: the loader alone, cut where it is beyond the chart."
        + (" In the other colour: where the bottleneck comes in." if hot_rung else ""),
        len(rungs) * _PAIR_PITCH,
        shapes,
    )


def _waterfall(result: Result) -> Chart | None:
    """A step from the device outwards: where each stage begins and ends."""
    stages = [stage for stage in result.stages if stage.exposed_s_per_batch is not None][:MAX_ROWS]
    exposed = [max(0.0, stage.exposed_s_per_batch.estimate) for stage in stages if stage.exposed_s_per_batch]
    unknown = [_short(stage.name) for stage in result.stages if stage.exposed_s_per_batch is None][:MAX_ROWS]
    whole_s = sum(exposed)
    if len(stages) < 2 or not 0 < whole_s < numbers.LARGEST:
        return None
    shapes: list[Shape] = []
    begin_s = 0.0
    for row, (stage, length_s) in enumerate(zip(stages, exposed, strict=True)):
        top = row * _PITCH
        x, width = LABEL_WIDTH + ROOM * begin_s / whole_s, ROOM * length_s / whole_s
        text = numbers.duration_interval(stage.exposed_s_per_batch)
        shapes.append(_name(stage.name, top))
        shapes.append(Rect(x, top, max(width, 1.0), _BAR, _kind(result, stage), f"{_shown(stage.name)}: {text}"))
        shapes.append(Label(x + max(width, 1.0) + 8, top + _BAR / 2, text, "value"))
        begin_s += length_s
    return _chart(
        "One step of the job",
        f"{numbers.duration(whole_s)}: what each stage adds to those inside it, from the device outwards."
        + (f" Not measured, and not in it: {', '.join(unknown)}." if unknown else ""),
        len(stages) * _PITCH,
        shapes,
    )


def _gains(result: Result) -> Chart | None:
    """What the job would gain if a stage were free."""
    known = [stage for stage in result.stages if _usable(stage.gain_if_free)][:MAX_ROWS]
    if not known:
        return None
    headroom = result.verdict.headroom
    tops = [stage.gain_if_free.high for stage in known if stage.gain_if_free]
    most = max(1.1, *tops, headroom.estimate if _usable(headroom) and headroom is not None else 1.0)
    scale = ROOM / (most - 1)
    height = len(known) * _PITCH
    shapes: list[Shape] = []
    for row, stage in enumerate(known):
        gain, top = stage.gain_if_free, row * _PITCH
        assert gain is not None
        width = max(0.0, (gain.estimate - 1) * scale)
        text = numbers.gain_interval(gain)
        shapes.append(_name(stage.name, top))
        shapes.append(
            Rect(LABEL_WIDTH, top, max(width, 1.0), _BAR, _kind(result, stage), f"{_shown(stage.name)}: {text}")
        )
        shapes.append(_interval((gain.low - 1) * scale, (gain.high - 1) * scale, top + _BAR / 2))
        shapes.append(Label(_at(max(width, (gain.high - 1) * scale)) + 8, top + _BAR / 2, text, "value"))
    note = "Throughput if the stage were free, everything else being real; measured."
    if headroom is not None and _usable(headroom):
        at = _at((headroom.estimate - 1) * scale)
        shapes.append(Segment(at, 0, at, height - 8, "bound"))
        note += f" The dashed line: all of the input free, {numbers.gain_interval(headroom)}."
    return _chart("Gain if free", note, height, shapes)


def block_chart(result: Result) -> Chart | None:
    """Every block with the train step, round by round: drift and outliers show."""
    lanes = [(e.name, e.coupled) for e in result.experiments if e.coupled and len(e.coupled.blocks) > 1][:MAX_ROWS]
    if not lanes:
        return None
    rounds = max(block.round for _, rate in lanes for block in rate.blocks)
    deviations = [_deviations(rate.blocks)[: MAX_DOTS // len(lanes)] for _, rate in lanes]
    largest = max((abs(value) for lane in deviations for _, value in lane), default=0.0)
    span = min(_WIDEST_DEVIATION, max(_LEAST_DEVIATION, largest))
    shapes: list[Shape] = []
    for row, ((name, _), lane) in enumerate(zip(lanes, deviations, strict=True)):
        middle = row * _LANE + _LANE / 2
        shapes.append(Label(LABEL_WIDTH - 8, middle, _short(name), "label", "end"))
        shapes.append(Segment(LABEL_WIDTH, middle, WIDTH - 8, middle, "axis"))
        for block, deviation in lane:
            x = LABEL_WIDTH + 8 + (WIDTH - LABEL_WIDTH - 24) * (block.round / rounds if rounds else 0.5)
            shown = min(span, max(-span, deviation))
            tip = f"{_shown(name)}, round {block.round}: {numbers.percent(deviation)} from the mean"
            outlier = abs(deviation) > _WIDEST_DEVIATION
            shapes.append(Dot(x, middle - shown / span * (_LANE / 2 - 4), "hot" if outlier else "bar", tip))
    return _chart(
        "Blocks, round by round",
        f"Time per sample against the mean of the experiment; each lane reaches ±{numbers.percent(span)}. "
        "A slope is drift, a dot by itself an outlier; one in the other colour lies further out.",
        len(lanes) * _LANE,
        shapes,
    )


def _deviations(blocks: Sequence[Block]) -> list[tuple[Block, float]]:
    usable = [block for block in blocks if block.samples > 0 and 0 < block.seconds < numbers.LARGEST]
    samples, seconds = sum(block.samples for block in usable), sum(block.seconds for block in usable)
    if not usable or not 0 < samples / seconds < numbers.LARGEST:
        return []
    return [(block, block.seconds / block.samples * samples / seconds - 1) for block in usable]


# --- shapes -----------------------------------------------------------------------------------------------


def _chart(title: str, note: str, height: float, shapes: Sequence[Shape]) -> Chart:
    return Chart(
        title,
        note,
        height,
        tuple(shape for shape in shapes if isinstance(shape, Rect)),
        tuple(shape for shape in shapes if isinstance(shape, Segment)),
        tuple(shape for shape in shapes if isinstance(shape, Dot)),
        tuple(shape for shape in shapes if isinstance(shape, Label)),
    )


def _rate_bar(rate: Rate, fastest: float, top: float, height: float, kind: Kind, name: str) -> Iterator[Shape]:
    scale = ROOM / fastest
    length = rate.samples_per_s * scale
    text = numbers.rate_with_half_width(rate)
    yield Rect(LABEL_WIDTH, top, min(length, ROOM), height, kind, f"{_shown(name)}: {text} samples/s")
    if height < _BAR:
        return
    reach = length
    if math.isfinite(rate.low) and math.isfinite(rate.high) and rate.low < rate.high:
        yield _interval(rate.low * scale, rate.high * scale, top + height / 2)
        reach = max(length, rate.high * scale)
    yield Label(_at(reach) + 8, top + _BAR / 2, text, "value")


def _name(name: str, top: float) -> Label:
    return Label(LABEL_WIDTH - 8, top + _BAR / 2, _short(name), "label", "end")


def _interval(low: float, high: float, y: float) -> Segment:
    return Segment(_at(low), y, _at(high), y, "interval")


def _at(length: float) -> float:
    """The place at the end of a bar; what leaves the chart is cut at its edge."""
    return LABEL_WIDTH + min(max(length, 0.0), ROOM + 20.0)


def _kind(result: Result, stage: Stage) -> Kind:
    return "hot" if stage.name == result.verdict.bottleneck else "bar"


def _positive(rate: Rate | None) -> bool:
    return rate is not None and 0 < rate.samples_per_s < numbers.LARGEST


def _usable(interval: Interval | None) -> bool:
    return interval is not None and all(
        abs(bound) < numbers.LARGEST for bound in (interval.estimate, interval.low, interval.high)
    )


def _short(text: str) -> str:
    text = _shown(text)
    return text if len(text) <= MAX_LABEL else text[: MAX_LABEL - 1] + "…"


def _shown(text: str) -> str:
    return sanitize.public(sanitize.one_line(text))

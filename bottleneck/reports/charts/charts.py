"""The charts of the HTML report."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TypeGuard

from bottleneck.analysis.gains import gain_of, sure_gain_of
from bottleneck.reports.charts.shapes import LABEL_WIDTH, WIDTH, Chart, Dot, Label, Rect, Segment, Shape, short
from bottleneck.reports.content.advice import promise_of
from bottleneck.reports.content.job import rate_unit
from bottleneck.reports.content.ladder import rungs
from bottleneck.reports.content.step import parts
from bottleneck.results.format import LARGEST, duration, gain, gain_interval, percent, rate_with_half_width
from bottleneck.results.names import COLD
from bottleneck.results.records import Block, Interval, Rate, Result
from bottleneck.results.tuning import Rung, TuningResult

_VALUE_WIDTH = 210
ROOM = WIDTH - LABEL_WIDTH - _VALUE_WIDTH
"""What bars have from left to right."""
MAX_ROWS = 40
MAX_DOTS = 4_000
"""Blocks that are drawn; a page of more takes browsers long."""

_BAR, _THIN_BAR, _PITCH, _PAIR_PITCH = 18, 6, 28, 46
_LANE = 34
_MOST_OF_A_SETTING, _MOST_OF_A_PROMISE = 16, 20
"""Letters, whose size is half again as large on a telephone."""
_WIDEST_DEVIATION = 0.5
_NOT_SURE = "no sure gain"
_LEAST_DEVIATION = 0.02


@dataclass(frozen=True)
class _Row:
    """A bar with its name and its value; lengths are in units of the chart."""

    name: str
    value: str
    begin: float
    length: float
    hot: bool
    interval: tuple[float, float] = (0.0, 0.0)
    unit: str = ""
    thin: tuple[float, str] | None = None
    """The length of a second bar below it, which is cut where it is longer than there is room, and its value."""
    adds: str = ""
    """A second, smaller name below the first."""
    label: str = ""
    """The name as it is shown, where it is another one."""


def draw_charts(result: Result) -> tuple[Chart, ...]:
    """The charts of what was found, as far as there is something to draw."""
    made = (_ladder(result), _waterfall(result), _gains(result))
    return tuple(chart for chart in made if chart is not None)


def _ladder(result: Result) -> Chart | None:
    """Throughput at each point, with the train step and, below it, of the loader alone."""
    shown = [(rung, rung.experiment.coupled) for rung in rungs(result)]
    known = [(rung, rate) for rung, rate in shown if rate is not None and _positive(rate)][:MAX_ROWS]
    if not known:
        return None
    scale, unit, rows = ROOM / max(rate.samples_per_s for _, rate in known), rate_unit(result), []
    for rung, rate in known:
        drained = rung.experiment.drained
        thin = None
        if drained is not None and _positive(drained):
            thin = drained.samples_per_s * scale, rate_with_half_width(drained)
        rows.append(
            _Row(
                rung.experiment.name,
                rate_with_half_width(rate),
                begin=0.0,
                length=min(ROOM, rate.samples_per_s * scale),
                hot=rung.stage is not None and rung.stage.name == result.verdict.bottleneck,
                interval=(rate.low * scale, rate.high * scale),
                unit=f" {unit}",
                thin=thin,
                adds=f"+ {short(rung.stage.name)}" if rung.stage is not None and rung.stage.inner is not None else "",
            )
        )
    return _chart(
        "Throughput with the data cached at each point",
        f"{unit.removesuffix('/s').capitalize()} per second, each row with one stage more at work. Thick: with the "
        "train step. Thin: the loader alone; a gap and its number where it is longer than the chart."
        + (" Orange: the first row in which the bottleneck works." if any(row.hot for row in rows) else ""),
        len(rows) * _PAIR_PITCH,
        _draw(rows, _PAIR_PITCH),
    )


def _waterfall(result: Result) -> Chart | None:
    """A step from the device outwards: where each stage begins and ends, by the steps of the ladder itself."""
    added = {part.name: part for part in parts(result)}
    measured = [stage for stage in result.stages if stage.outer != COLD]
    known = [stage for stage in measured if stage.name in added][:MAX_ROWS]
    unknown = [short(stage.name) for stage in measured if stage.name not in added][:MAX_ROWS]
    whole_s = max((part.end_s for part in added.values()), default=0.0)
    if len(known) < 2 or not 0 < whole_s < LARGEST:
        return None
    scale, rows = ROOM / whole_s, []
    for stage in known:
        part = added[stage.name]
        begin, length = (part.end_s - part.seconds) * scale, max(1.0, part.seconds * scale)
        rows.append(_Row(stage.name, part.time, begin, length, stage.name == result.verdict.bottleneck))
    height, shapes = len(rows) * _PITCH, _draw(rows, _PITCH)
    shapes += [
        Segment(LABEL_WIDTH, height, _at(ROOM), height, "axis"),
        Label(LABEL_WIDTH, height + 16, "0", "soft", "middle"),
        Label(_at(whole_s * scale), height + 16, duration(whole_s), "soft", "middle"),
    ]
    return _chart(
        "One step of the job",
        f"{duration(whole_s)}, from the device outwards: what each stage adds to the stages before it."
        + (f" Not measured, and not in it: {', '.join(unknown)}." if unknown else ""),
        height + 22,
        shapes,
    )


def _gains(result: Result) -> Chart | None:
    """What the job would gain if a stage were free."""
    found = ((stage, gain_of(result, stage)) for stage in result.stages)
    known = [(stage, gain) for stage, gain in found if gain is not None and _usable(gain)][:MAX_ROWS]
    if not known:
        return None
    headroom = result.verdict.headroom if result.verdict.headroom and _usable(result.verdict.headroom) else None
    scale = ROOM / (max(1.1, *(gain.high for _, gain in known), headroom.estimate if headroom else 1.0) - 1)
    rows = [
        _Row(
            stage.name,
            gain_interval(gain) if sure_gain_of(result, stage) else _NOT_SURE,
            begin=0.0,
            length=max(1.0, (gain.estimate - 1) * scale),
            hot=stage.name == result.verdict.bottleneck,
            interval=((gain.low - 1) * scale, (gain.high - 1) * scale),
        )
        for stage, gain in known
    ]
    bound = _at((headroom.estimate - 1) * scale) if headroom is not None else None
    height, shapes = len(rows) * _PITCH, _draw(rows, _PITCH, bound)
    shapes += [
        Segment(LABEL_WIDTH, 0, LABEL_WIDTH, height, "axis"),
        Label(LABEL_WIDTH, height + 14, "no gain", "soft", "middle"),
    ]
    note = "Throughput if the stage were free, everything else being real; measured."
    if bound is not None:
        shapes.insert(0, Segment(bound, 0, bound, height, "bound"))
        note += f" The dashed line: all of the input free, {gain_interval(headroom)}."
    return _chart("Gain if free", note, height + 20, shapes)


def tuning_chart(tuned: TuningResult) -> Chart | None:
    """Throughput with each change that was kept on top of those before, against the job as it was."""
    known = [rung for rung in tuned.ladder if _positive(rung.rate)][:MAX_ROWS]
    if len(known) < 2 or known[0] is not tuned.ladder[0]:
        return None
    scale = ROOM / max(rung.rate.samples_per_s for rung in known)
    rows = [
        _Row(
            rung.label,
            (f"{gain(rung.total.estimate)}, " if _is_gain(rung.total) else "") + rate_with_half_width(rung.rate),
            begin=0.0,
            length=rung.rate.samples_per_s * scale,
            hot=False,
            interval=(rung.rate.low * scale, rung.rate.high * scale),
            unit=" samples/s",
            adds=_adds(rung, promise_of(rung.predicted, tuned.before)),
            label=short(rung.settings[0] if rung.settings else rung.label, _MOST_OF_A_SETTING),
        )
        for rung in known
    ]
    pitch = _PAIR_PITCH if any(row.adds for row in rows) else _PITCH
    height, before = len(rows) * pitch, _at(known[0].rate.samples_per_s * scale)
    note = "Samples per second with each change on top of those above it, and the factor of all of them together. "
    note += "The dashed line: the job as it is."
    shapes = [Segment(before, 0, before, height, "bound"), *_draw(rows, pitch)]
    return _chart("Throughput with each change", note, height, shapes)


def _adds(rung: Rung, promised: str) -> str:
    """What stands below the name of a change: those that came with it, and what was promised."""
    others = f"+ {', '.join(rung.settings[1:])}" if rung.settings[1:] else ""
    return short(others or (f"promised {promised.partition(' (')[0]}" if promised else ""), _MOST_OF_A_PROMISE)


def _is_gain(interval: Interval | None) -> TypeGuard[Interval]:
    return interval is not None and _usable(interval)


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
        shapes.append(Label(LABEL_WIDTH - 8, middle, short(name), "label", "end"))
        shapes.append(Segment(LABEL_WIDTH, middle, WIDTH - 8, middle, "axis"))
        for block, deviation in lane:
            x = LABEL_WIDTH + 8 + (WIDTH - LABEL_WIDTH - 24) * (block.round / rounds if rounds else 0.5)
            shown = min(span, max(-span, deviation))
            tip = f"{name}, round {block.round}: {percent(deviation)} from the mean"
            outlier = abs(deviation) > _WIDEST_DEVIATION
            shapes.append(Dot(x, middle - shown / span * (_LANE / 2 - 4), "hot" if outlier else "bar", tip))
    return _chart(
        "Blocks, round by round",
        f"Time per sample against the mean of the experiment; each lane reaches ±{percent(span)}. "
        "A slope is drift, a dot by itself an outlier; an orange one lies further out than its lane.",
        len(lanes) * _LANE,
        shapes,
    )


def _deviations(blocks: Sequence[Block]) -> list[tuple[Block, float]]:
    usable = [block for block in blocks if block.samples > 0 and 0 < block.seconds < LARGEST]
    samples, seconds = sum(block.samples for block in usable), sum(block.seconds for block in usable)
    if not usable or not 0 < samples / seconds < LARGEST:
        return []
    return [(block, block.seconds / block.samples * samples / seconds - 1) for block in usable]


def _draw(rows: Sequence[_Row], pitch: float, bound: float | None = None) -> list[Shape]:
    """The rows, one below the other; no value is written across the line of a bound."""
    shapes: list[Shape] = []
    for at, row in enumerate(rows):
        top, middle = at * pitch, at * pitch + _BAR / 2
        x, end = LABEL_WIDTH + row.begin, row.begin + row.length
        tip = f"{row.name}: {row.value}{row.unit}"
        shapes.append(Label(LABEL_WIDTH - 8, middle, row.label or short(row.name), "label", "end"))
        shapes.append(Rect(x, top, row.length, _BAR, "hot" if row.hot else "bar", tip))
        if row.adds:
            shapes.append(Label(LABEL_WIDTH - 8, top + _BAR + 15, row.adds, "soft", "end"))
        if row.thin is not None:
            shapes += _thin(row, *row.thin, x, top + _BAR + 2)
        low, high = row.interval
        if math.isfinite(low) and math.isfinite(high) and low < high:
            shapes.append(Segment(_at(low), middle, _at(high), middle, "interval"))
            end = max(end, high)
        value_x = _at(end) + 8
        if bound is not None and value_x - 8 < bound < value_x + _VALUE_WIDTH:
            value_x = bound + 8
        shapes.append(Label(value_x, middle, row.value, "value"))
    return shapes


def _thin(row: _Row, length: float, value: str, x: float, top: float) -> Iterator[Shape]:
    """A second bar; one that is longer than the chart has a gap near its end, and its number."""
    yield Rect(x, top, min(ROOM, length), _THIN_BAR, "soft", f"{row.name}, loader alone: {value}{row.unit}")
    if length > ROOM:
        yield Segment(x + ROOM - 16, top + _THIN_BAR + 2, x + ROOM - 10, top - 2, "break")
        yield Label(x + ROOM + 8, top + _THIN_BAR + 7, value, "soft")


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


def _at(length: float) -> float:
    """The place at the end of a bar; what leaves the chart is cut at its edge."""
    return LABEL_WIDTH + min(max(length, 0.0), ROOM + 20.0)


def _positive(rate: Rate) -> bool:
    return 0 < rate.samples_per_s < LARGEST


def _usable(interval: Interval) -> bool:
    return all(abs(bound) < LARGEST for bound in (interval.estimate, interval.low, interval.high))

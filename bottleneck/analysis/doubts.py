"""Reasons not to trust a number that the numbers themselves give. The words are in `results.warnings`."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np

from bottleneck.analysis.attribution import drop, drop_confidence, got_more
from bottleneck.analysis.costs import Costs
from bottleneck.analysis.readings import Readings
from bottleneck.analysis.settings import LOSS_WORTH_TOUCHING, MARGIN, dataset_bytes, number, raw_source, unit_of
from bottleneck.analysis.statistics import align, mean_spread
from bottleneck.analysis.verdict import MIN_ROUNDS, Answer, cost_s
from bottleneck.results.names import COLLATE, COMPUTE, COPY, DEVICE, HANDOFF, RAW
from bottleneck.results.records import Block, Interval, Rate, Result, Stage, Warning, blocks_of
from bottleneck.results.warnings.disagreement import (
    contradiction,
    cost_differs_from_clock,
    costs_do_not_add_up,
    device_time,
    faster_than_loader,
    negative_drop,
    no_single_gain,
    tiny_batches,
)
from bottleneck.results.warnings.job import warm_reads
from bottleneck.results.warnings.machine import (
    device_clock_differs,
    step_slow_alone,
    stolen_time,
    trend,
    unsteady_blocks,
)
from bottleneck.results.warnings.too_little import gain_not_measured, too_few_rounds

# Halves that differ by 6 % mean a block that is off by 3 %, the margin below which nothing is called real.
_EVENTS_DIFFER = 0.05
"""Points between two efficiencies above which they differ."""
_HALVES_MARGIN = 1.06
_MIN_BLOCKS_WITH_HALVES = 3
_FAMILY_ERROR = 0.05
"""Share of a step above which the time of the sampler gets a warning, like any lost throughput."""
_STOLEN_SHARE = 0.05
"""Share of the time of the job's cores above which a hypervisor's use for others gets a warning."""
_MIN_ROUNDS = 4
"""Rounds below which Student's factor is over 4: a 95 % interval is wide even with little noise."""
_TINY_STEP_S = 1e-3
"""The code that can replay each stage costs a batch 40 µs, which is 4 % of this."""
_TREND_CORRELATION = 0.8
_TREND_CHANGE = 1.25
"""Rank correlation with the round, and ratio of the last to the first third, that make a trend."""


def find_warnings(measurement: Result, readings: Readings, answer: Answer, costs: Costs) -> tuple[Warning, ...]:
    """Return the warnings of the measuring, then those that its numbers give rise to."""
    held = answer.steady_state == "input_bound"
    return (
        *measurement.warnings,
        *_contradictions(measurement, readings, answer),
        *_slow_alone(readings),
        *_too_few_rounds(measurement, readings, answer),
        *_tiny_batches(readings),
        *_negative_drops(readings, costs.serving),
        *_unsteady_blocks(measurement),
        *_trends(readings),
        *_warm_reads(measurement),
        *_stolen_time(measurement),
        *differing_clocks(measurement),
        *(_doubtful_choice(measurement, readings, answer) if held else ()),
        *_unlike_the_events(measurement, answer),
        *_unlike_the_clocks(readings, costs),
        *_not_additive(readings, costs),
    )


def ended_early(measurement: Result) -> bool:
    """Return True if it was interrupted, or the job failed; then a larger budget is no remedy: a warning says why."""
    return any(warning.id == "ended-early" for warning in measurement.warnings)


def _contradictions(measurement: Result, readings: Readings, answer: Answer) -> Iterator[Warning]:
    """Warn if numbers leave no answer, or if the answer covers two readings."""
    found, raw, loader = answer.contradiction, readings.raw, readings.drained.get(RAW)
    if found is not None:
        yield contradiction(found.id, found.what, found.remedy)
    elif raw is not None and loader is not None and readings.faster_than_loader:
        yield faster_than_loader(got_more(unit_of(measurement), raw, "the loader alone", loader))


def _slow_alone(readings: Readings) -> Iterator[Warning]:
    """Warn if the train step alone is slower than next to a loader that works."""
    bound, device = readings.upper_bound, readings.device
    if bound is None or device is None or bound[1] is device:
        return
    slow, quick = align((device, bound[1]))
    yield step_slow_alone(slow.seconds_per_batch, bound[0], quick.seconds_per_batch)


def _stolen_time(measurement: Result) -> Iterator[Warning]:
    """Warn if a hypervisor took much of the job's time, also in the blocks that were kept."""
    share = measurement.evidence.stolen_share
    if share is not None and share > _STOLEN_SHARE:
        yield stolen_time(share)


def _too_few_rounds(measurement: Result, readings: Readings, answer: Answer) -> Iterator[Warning]:
    """Warn if there is no interval, or if so few rounds left the state open; otherwise the interval says it."""
    rounds = readings.common_rounds
    missing = [name for name in (DEVICE, RAW) if name not in readings.coupled]
    if missing or rounds < 2 or (rounds < _MIN_ROUNDS and answer.state == "undecided"):
        yield too_few_rounds(missing, rounds, MIN_ROUNDS, ended_early=ended_early(measurement))


def _tiny_batches(readings: Readings) -> Iterator[Warning]:
    """Warn if a step is so short that the diagnosis's own overhead counts."""
    if readings.raw is not None and readings.raw.seconds_per_batch < _TINY_STEP_S:
        yield tiny_batches(readings.raw.seconds_per_batch)


def _trends(readings: Readings) -> Iterator[Warning]:
    """Warn if the job got steadily faster or slower from round to round, beyond the drift of the device."""
    if readings.raw is None or readings.device is None:
        return
    raw, device = align((readings.raw, readings.device))
    if len(raw) < MIN_ROUNDS:
        return
    own, of_device = (np.log(arm.seconds / arm.samples) for arm in (raw, device))
    ranks = np.argsort(np.argsort(own - of_device))
    third = max(1, len(own) // 3)
    change, beyond_device = (math.exp(float(x[-third:].mean() - x[:third].mean())) for x in (own, own - of_device))
    if abs(float(np.corrcoef(ranks, np.arange(len(ranks)))[0, 1])) < _TREND_CORRELATION:
        return
    if not any(min(x, y) > _TREND_CHANGE for x, y in ((change, beyond_device), (1 / change, 1 / beyond_device))):
        return  # the device's own drift among them, which is no reason to say that the job got faster or slower
    yield trend(change)


def _warm_reads(measurement: Result) -> Iterator[Warning]:
    """Warn if the job found data in memory that training will have to read from the disk."""
    evidence, pipeline = measurement.evidence, measurement.pipeline
    if raw_source(evidence) != "page cache" or evidence.cold.verified:
        return
    dataset, memory = dataset_bytes(evidence, pipeline), number(measurement.environment, "memory_bytes")
    if dataset is not None and memory is not None and dataset > memory:
        yield warm_reads(dataset, memory)


def _negative_drops(readings: Readings, serving: Interval | None) -> Iterator[Warning]:
    """Warn if doing more was clearly faster than doing less, which no stage can explain."""
    confidence = drop_confidence(readings)
    for span in readings.spans:
        if span.inner is None:
            continue
        spread = drop(readings, span)
        if spread is not None and spread.interval(confidence).high < -math.log(MARGIN):
            lost_s = readings.coupled[span.outer].seconds_per_batch * (math.exp(-spread.estimate) - 1)
            explains = serving is not None and serving.low > 0 and span.inner != DEVICE and lost_s <= serving.high
            less = 1 - math.exp(spread.estimate)
            yield negative_drop(span.outer, span.inner, span.name, less, serving if explains else None)


def _unsteady_blocks(measurement: Result) -> Iterator[Warning]:
    """Warn when the halves of an experiment's blocks disagree in the same direction again and again."""
    measured: list[tuple[str, Rate | None]] = [(e.name, e.coupled) for e in measurement.experiments]
    measured += [(f"{e.name} (loader alone)", e.drained) for e in measurement.experiments]
    measured += [(f"raw without {w.stage}", w.coupled) for w in measurement.without]
    halves = {name: drifts for name, rate in measured if (drifts := _half_drifts(blocks_of(rate)))}
    unsteady = {}
    for name, drifts in halves.items():
        if len(drifts) < _MIN_BLOCKS_WITH_HALVES:
            continue
        spread = mean_spread(np.array(drifts))
        half_width = spread.half_width(1 - _FAMILY_ERROR / len(halves))
        if abs(spread.estimate) - half_width > math.log(_HALVES_MARGIN):
            unsteady[name] = math.expm1(spread.estimate)
    if unsteady:
        yield unsteady_blocks(unsteady)


def _half_drifts(blocks: Sequence[Block]) -> list[float]:
    """Return the log ratio of the times per batch of second and first half, for blocks that have both.

    The first half is the whole batches of half the block, rounded down.
    """
    drifts = []
    for block in blocks:
        first_batches = block.batches // 2
        first_s = block.first_half_seconds
        if first_batches == 0 or first_s is None or not 0 < first_s < block.seconds:
            continue
        rest = (block.seconds - first_s) / (block.batches - first_batches)
        drifts.append(math.log(rest / (first_s / first_batches)))
    return drifts


def _unlike_the_events(measurement: Result, answer: Answer) -> Iterator[Warning]:
    """Warn if events of the device's own stream clearly show a different efficiency of raw."""
    seen, found = measurement.evidence.device_time.efficiency, answer.efficiency
    if seen is None or found is None:
        return
    if max(seen.low - found.high, found.low - seen.high) > _EVENTS_DIFFER:
        yield device_time(seen, found)


def _doubtful_choice(measurement: Result, readings: Readings, answer: Answer) -> Iterator[Warning]:
    """Warn if the bottleneck does not rest on its own measured gain."""
    stages, choice, ended = answer.stages, answer.choice, ended_early(measurement)
    unmeasured = [
        stage.name for stage in stages if stage.is_input and stage.gain_if_free is None and _matters(readings, stage)
    ]
    if choice.basis == "inferred" and choice.bottleneck is not None:
        yield gain_not_measured((), ended_early=ended)
    elif unmeasured and not answer.settled:
        yield gain_not_measured(unmeasured, ended_early=ended)
    if choice.basis == "shared":
        yield no_single_gain()


def _matters(readings: Readings, stage: Stage) -> bool:
    """Return True if a stage may take more of the job's step than the margin."""
    if readings.raw is None:
        return True
    step_s = readings.raw.seconds_per_batch
    exposed_s = stage.exposed_s_per_batch.estimate if stage.exposed_s_per_batch else 0.0
    return max(cost_s(stage), exposed_s) > (MARGIN - 1) * step_s


# --- clocks of the device -----------------------------------------------------------------------------------


_MIN_CLOCKS = 3
"""Rounds in which both were read."""


def differing_clocks(measurement: Result) -> Iterator[Warning]:
    """Warn if the clocks of `device` and `raw` clearly differ, and explain the effect on the upper bound."""
    blocks = {e.name: blocks_of(e.coupled) for e in measurement.experiments}
    device, raw = (_by_round(blocks.get(name, ())) for name in (DEVICE, RAW))
    common = sorted(device.keys() & raw.keys())
    if len(common) < _MIN_CLOCKS:
        return
    spread = mean_spread(np.array([math.log(device[number] / raw[number]) for number in common]))
    # As for the drops of the ladder: a step goes with the clock at most.
    if abs(spread.estimate) - spread.half_width() <= math.log(MARGIN):
        return
    device_hz, raw_hz = (float(np.mean([clocks[number] for number in common])) for clocks in (device, raw))
    yield device_clock_differs(device_hz, raw_hz, 1 - math.exp(-spread.estimate) if spread.estimate > 0 else None)


def _by_round(blocks: Sequence[Block]) -> dict[int, float]:
    """Return the mean clock of each round, weighted by time."""
    sums: dict[int, tuple[float, float]] = {}
    for block in blocks:
        if block.device_clock_hz and block.seconds > 0:
            cycles, seconds = sums.get(block.round, (0.0, 0.0))
            sums[block.round] = cycles + block.device_clock_hz * block.seconds, seconds + block.seconds
    return {number: cycles / seconds for number, (cycles, seconds) in sums.items()}


# --- costs --------------------------------------------------------------------------------------------------


_TOLERANCE = 0.1


def _not_additive(readings: Readings, costs: Costs) -> Iterator[Warning]:
    """Warn if much of the loader's time belongs to no single stage, or is counted twice.

    Much is a tenth of the time of the loader alone, or of half a step of the job if that is longer: a tenth of a very
    fast loader does not matter. There is no warning if a stage could not be left out: then its time is missing.
    """
    apart = (COMPUTE, COPY, HANDOFF)  # no part of what the workers take by themselves
    within = (span.name for span in readings.spans if span.name not in apart and not span.is_alternative)
    if not all((costing := costs.costing(name)) is not None and costing.left_out for name in within):
        return
    together = costs.together
    all_s, total, rest = together.all_s_per_batch, together.sum_s_per_batch, together.rest_s_per_batch
    if all_s is None or total is None or rest is None:
        return
    step_s = 0.0 if readings.raw is None else readings.raw.seconds_per_batch
    tenth_s = _TOLERANCE * max(all_s, step_s / 2)
    if rest.low > tenth_s or rest.high < -tenth_s:
        yield costs_do_not_add_up(max(0.0, total.estimate), all_s, rest)


def _unlike_the_clocks(readings: Readings, costs: Costs) -> Iterator[Warning]:
    """Warn of each stage whose cost clearly differs from the clocks around it, if that matters to the step."""
    # Reading the clocks takes a moment: they show more than the loader takes by this much at most [s per batch].
    clocks_s, alone = sum(span.wall_s_per_batch or 0.0 for span in readings.spans), readings.alone
    price_s = 0.0 if alone is None else max(0.0, clocks_s - alone.seconds_per_batch)
    matters_s = 0.0 if readings.raw is None else LOSS_WORTH_TOUCHING * readings.raw.seconds_per_batch
    for span in readings.spans:
        costing = costs.costing(span.name)
        cost = costing.interval() if costing is not None and costing.left_out else None
        wall_s = span.wall_s_per_batch
        if costing is None or cost is None or wall_s is None:
            continue
        # Those around `collate` have the writing into shared memory in them, which is part of the hand-off's cost.
        written = costs.interval(HANDOFF) if span.name == COLLATE else None
        written_s = max(0.0, written.high) if written is not None else 0.0
        away_s = max(cost.low - wall_s, wall_s - price_s - written_s - cost.high)
        if away_s > max(_TOLERANCE * wall_s, matters_s, costing.below_s, costing.above_s):
            yield cost_differs_from_clock(span.name, cost, wall_s)

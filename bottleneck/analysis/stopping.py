"""Stopping rules: the answer stands, or all printed numbers are precise."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import NormalDist

from scipy.special import stdtr

from bottleneck.analysis.attribution import exposed_share, gain_if_free
from bottleneck.analysis.costs import Costs
from bottleneck.analysis.readings import Readings
from bottleneck.analysis.settings import LOSS_CLEARLY_SMALL, LOSS_WORTH_TOUCHING, MARGIN
from bottleneck.analysis.statistics import Anytime, Confidence, Spread, log_ratio, shared_by
from bottleneck.analysis.verdict import CLEARLY_LONGER, MIN_ROUNDS, Answer, choose, state
from bottleneck.results.names import COMPUTE
from bottleneck.results.records import Interval, Leaning, Stage, State

_WANTED_HALF_WIDTH = 0.03
_WANTED_RELATIVE_HALF_WIDTH = 0.1
_WANTED_RELATIVE_COST_HALF_WIDTH = 0.05
_MIN_COST_SHARE = 0.005
"""Share of a step that the half width of a cost need not be smaller than."""
_SURE = Anytime(0.05)
"""Error of the state or name at which the measuring stops, over all of its rounds. Simulated, under 1 % are wrong: the
bound covers every look at every number at once."""
_AS_GOOD = 1.05
"""Ratio of two gains up to which naming either stage is right: less is not worth touching a job for."""
_MIN_SURE_ROUNDS, _MIN_CONFIRMED_ROUNDS = 4, 3
"""Minimum rounds: fewer may agree by chance; if an experiment confirms the workers' clocks, the second."""
_WANTED_PART = 0.25
"""Relative precision of the numbers that a person acts on: 24x (19-32) leads to the same action."""


# --- the answer stands ---------------------------------------------------------------------------------------


def stands(readings: Readings, costs: Costs, answer: Answer) -> bool:
    """Return True if state and name are right, with an error of 5 % however often this is asked.

    A name stands if the job clearly gains from it, and no other stage may gain the job notably more.
    """
    if answer.deciding is None or answer.state == "undecided":
        return False
    confirmed = _confirms_clocks(readings, answer)
    if answer.deciding.rounds < (_MIN_CONFIRMED_ROUNDS if confirmed else _MIN_SURE_ROUNDS):
        return False
    sure: Confidence = 1 - _SURE.error if confirmed else _SURE
    if state(answer.deciding.exponentiated(sure)) != answer.state:
        return False
    if answer.state == "device_bound" or answer.choice.basis == "epoch":
        return True
    named = _named(answer)
    if named is None or answer.choice.basis != "gain":
        return False
    inputs = [stage for stage in answer.stages if stage.is_input]
    confidence = shared_by(sure, len(inputs))
    gained = gain_if_free(readings, costs, named, confidence)
    tied = [stage.name for stage in inputs if _is_tied(stage, named, readings, answer)]
    rivals = (stage for stage in inputs if stage is not named and stage.name not in tied)
    return (
        gained is not None
        and gained.low > MARGIN
        and all(
            _is_no_better(rival, named, readings, costs, confidence, rival.name in answer.choice.contributors)
            for rival in rivals
        )
    )


def _is_tied(stage: Stage, named: Stage, readings: Readings, answer: Answer) -> bool:
    """Return True if a stage is also named because slow workers take nearly as long for it: not a rival."""
    if stage.name not in answer.choice.contributors or readings.clocks is None or not readings.clocks.are_slow:
        return False
    return CLEARLY_LONGER * readings.clocks.share(stage.name) > readings.clocks.share(named.name)


def _confirms_clocks(readings: Readings, answer: Answer) -> bool:
    """Return True if the measured gain of the named stage is the one that the workers' clocks predicted.

    Two witnesses that know nothing of each other agree then, and are looked at a few times: an ordinary interval does.
    """
    named = _named(answer)
    predicted = readings.predicted_gain(named.name) if named is not None else None
    measured = named.gain_if_free if named is not None else None
    if predicted is None or measured is None:
        return False
    return predicted.low <= measured.high and measured.low <= predicted.high


def is_of_use(answer: Answer) -> bool:
    """Return True if the lost throughput, and the named stage's gain over 1, are known to a quarter or 3 points."""
    if answer.efficiency is None or not _is_known(answer.efficiency, 1 - answer.efficiency.estimate):
        return False
    named = _named(answer)
    gain = named.gain_if_free if named is not None else None
    return gain is None or _is_known(gain, gain.estimate - 1)


def _is_known(interval: Interval, size: float) -> bool:
    return _half_width(interval) <= max(_WANTED_PART * abs(size), _WANTED_HALF_WIDTH)


def _named(answer: Answer) -> Stage | None:
    return next((stage for stage in answer.stages if stage.name == answer.choice.bottleneck), None)


def _is_no_better(
    rival: Stage, named: Stage, readings: Readings, costs: Costs, confidence: Confidence, is_named_too: bool
) -> bool:
    """Return True if the job clearly gains no more without a stage than without the named one, or it costs less.

    Of two stages that the answer names both, an ordinary interval does: which comes first matters little.
    """
    gained = gain_if_free(readings, costs, rival, confidence)
    if gained is not None and gained.high < MARGIN:
        return True  # and it is no longer measured
    gained_named = named.gain_if_free
    if gained_named is not None and readings.most_gain(rival.name) < gained_named.low:
        return True
    without, without_named = readings.without.get(rival.name), readings.without.get(named.name)
    if without is not None and without_named is not None:
        by_gain = log_ratio(without, without_named)
        if by_gain is not None and by_gain.interval(confidence).low > -math.log(_AS_GOOD):
            return True
        if by_gain is not None and is_named_too and by_gain.interval().low > -math.log(_AS_GOOD):
            return True
    by_cost = costs.clearly_over(named.name, rival.name, confidence)
    if by_cost is None and readings.clocks is not None and readings.clocks.explained:
        return readings.clocks.clearly_longer(named.name, rival.name)
    return bool(by_cost)


def _half_width(interval: Interval) -> float:
    return (interval.high - interval.low) / 2


def settled_stages(readings: Readings, costs: Costs, stages: Sequence[Stage]) -> frozenset[str]:
    """Return the stages without which the job clearly gains nothing worth acting on, measured or by the clocks."""
    confidence = shared_by(_SURE, len(stages))
    gains = {stage.name: gain_if_free(readings, costs, stage, confidence) for stage in stages}
    return frozenset(
        name
        for name, gained in gains.items()
        if (gained is not None and gained.high < MARGIN) or readings.most_gain(name) < MARGIN
    )


def find_leaning(readings: Readings, costs: Costs, answer: Answer) -> Leaning | None:
    """Return the probable state of the job before it is certain; None if nothing is likely.

    The chance is that of Student's t: that the efficiency is on its side of the edge, and that the job gains anything
    without the stage.
    """
    spread = answer.deciding
    if answer.contradiction is not None:
        return None
    if spread is None:
        return _leaning_by_clocks(readings)
    lost = 1 - math.exp(min(0.0, spread.estimate))
    likely: State = answer.state
    if likely == "undecided":
        likely = "input_bound" if lost > (LOSS_WORTH_TOUCHING + LOSS_CLEARLY_SMALL) / 2 else "device_bound"
    edge = LOSS_WORTH_TOUCHING if likely == "input_bound" else LOSS_CLEARLY_SMALL
    chance = _chance_over(spread, math.log(1 - edge), below=likely == "input_bound")
    if likely == "device_bound":
        return Leaning(likely, COMPUTE, None, chance)
    choice = answer.choice if answer.state == likely else choose(likely, answer.stages, costs)
    without = readings.without.get(choice.bottleneck or "")
    gained = log_ratio(readings.raw, without) if readings.raw is not None and without is not None else None
    if gained is None:
        return Leaning(likely, None, None, chance)
    chance = min(chance, _chance_over(gained, 0.0, below=False))
    # A stage that was visited in a disturbance, and the job since, promise more than there is.
    bound, raw = readings.upper_bound, readings.raw
    most = math.inf if bound is None or raw is None else raw.seconds_per_sample / bound[1].seconds_per_sample
    return Leaning(likely, choice.bottleneck, min(math.exp(gained.estimate), max(1.0, most)), chance)


def _leaning_by_clocks(readings: Readings) -> Leaning | None:
    """Return the probable state by the workers' clocks, before there are two rounds to compare."""
    if readings.clocks is None or readings.device is None:
        return None
    found = readings.clocks.efficiency(readings.device.seconds_per_batch)
    lost, error = 1 - found.estimate, max(_half_width(found), 1e-6) / NormalDist().inv_cdf(0.975)
    likely: State = "input_bound" if lost > (LOSS_WORTH_TOUCHING + LOSS_CLEARLY_SMALL) / 2 else "device_bound"
    distance = lost - LOSS_WORTH_TOUCHING if likely == "input_bound" else LOSS_CLEARLY_SMALL - lost
    return Leaning(likely, COMPUTE if likely == "device_bound" else None, None, NormalDist().cdf(distance / error))


def _chance_over(spread: Spread, edge: float, *, below: bool) -> float:
    """Return the probability that the true value is over an edge, or below it."""
    distance = edge - spread.estimate if below else spread.estimate - edge
    if not spread.standard_error:
        return 1.0 if distance > 0 else 0.5
    return float(stdtr(spread.rounds - 1, distance / spread.standard_error))


# --- all that is printed is precise --------------------------------------------------------------------------


def is_precise(readings: Readings) -> bool:
    """Return True if every share of interest, and the lost throughput, is known well enough to stop.

    Well enough: a half width of 3 points, or of a tenth of the largest share of an input stage where that is
    more. The share of `compute` does not widen the allowance, because that of a device-bound job is near one, and
    `storage`, which varies as a disk does, does not keep the measuring going.
    """
    efficiency = readings.log_efficiency()
    if efficiency is None or efficiency.rounds < MIN_ROUNDS:
        return False
    shares = {span.name: exposed_share(readings, span) for span in readings.spans if not span.is_alternative}
    known = {name: share for name, share in shares.items() if share is not None}
    if len(known) < len(shares):
        return False
    largest = max((s.estimate for name, s in known.items() if name != COMPUTE), default=0.0)
    wanted = max(_WANTED_HALF_WIDTH, _WANTED_RELATIVE_HALF_WIDTH * largest)
    half_widths = [share.half_width() for share in known.values()]
    return max([*half_widths, _half_width(efficiency.exponentiated())]) <= wanted


def costs_are_precise(readings: Readings, costs: Costs) -> bool:
    """Return True if the cost of each stage that was left out of the loader alone is known well enough.

    Well enough: a half width of a twentieth of the cost, or of half a per cent of a step where that is more. What no
    repetition would show does not count.
    """
    if readings.raw is None:
        return False
    step_s = readings.raw.seconds_per_batch
    found = [costing for span in readings.spans if (costing := costs.costing(span.name)) is not None]
    spreads = [spread for costing in found if costing.left_out and (spread := costing.spread()) is not None]
    return all(
        spread.half_width() <= max(_WANTED_RELATIVE_COST_HALF_WIDTH * abs(spread.estimate), _MIN_COST_SHARE * step_s)
        for spread in spreads
    )

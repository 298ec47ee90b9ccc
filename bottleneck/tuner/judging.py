"""Judgement of a change: by pairs of blocks, or by its train step alone. Logic that knows no pipelines.

A change is judged by pairs of blocks, seconds apart, so that other load of the machine cancels in their ratio, unless
it hits one of the two: the mean is trimmed by a fifth at each end, with the interval of Tukey and McLaughlin (1963).
Everything kept is measured again with all its effects, stalls included, when the ladder is. Pairs are examined only a
few times, and strictly, because each examination is a chance for a false positive.

A block costs its workers' warm-up, a step does not. If a change can only shorten the step, and steps with and without
it take equally long, no block would show more.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from scipy.special import stdtrit

from bottleneck.analysis.statistics import FloatArray
from bottleneck.results.format import duration
from bottleneck.results.records import Block, Interval
from bottleneck.results.tuning import Outcome, Pair

if TYPE_CHECKING:
    from bottleneck.tuner.lane import Lane

# --- pairs of blocks ----------------------------------------------------------------------------------------

WORTH = 1.02
"""Factor of throughput that the lower end of the interval has to exceed for a change to be kept."""
_PROMISING = 1.01
"""Factor that half of the pairs have to reach for more of them to be measured."""
MIN_PAIRS = 4
_MAX_PAIRS = 24
_LOOKS = (4, 6, 8, 10, 13, 16, 20)
"""Numbers of pairs at which the outcome may be decided."""
_KEEP_CONFIDENCE = 0.99
_DROP_CONFIDENCE = 0.9
"""Lower than for keeping: a change that is dropped by mistake costs only its gain."""
_EARLY_PAIRS = 3
"""Number of pairs that decides extreme cases, and pairs that agree."""
_HOPELESS = 0.85
"""Largest factor of any pair below which three pairs are enough to drop a change."""
_LARGE = 1.5
"""Smallest factor of any pair above which three pairs are enough to keep a change."""
_ALIKE = 0.1
"""Range of the logarithms within which three pairs agree, so that none of them was disturbed."""
_TRIMMED = 0.2
"""Share of the values that is cut off at each end."""
_MAX_LOG = 50.0
"""Limit of a logarithm: the interval of two pairs that disagree extends over many orders of magnitude."""


def log_gains(pairs: Sequence[Pair]) -> FloatArray:
    """Return the logarithm of the factor of throughput of each pair."""

    def pace_s(block: Block) -> float:
        return max(block.seconds, 1e-9) / max(block.samples, 1)

    return np.array([math.log(pace_s(pair.base) / pace_s(pair.changed)) for pair in pairs])


def gain(pairs: Sequence[Pair]) -> Interval | None:
    """Return the factor of throughput with its 95 % interval; None with fewer than two pairs."""
    if len(pairs) < 2:
        return None
    found = interval_of_mean(log_gains(pairs), 0.95)
    return Interval(*(math.exp(min(_MAX_LOG, max(-_MAX_LOG, v))) for v in (found.estimate, found.low, found.high)))


def interval_of_mean(gains: FloatArray, confidence: float) -> Interval:
    """Return the trimmed mean with its interval; with fewer than five values nothing is trimmed.

    The same as scipy.stats.mstats.trimmed_mean_ci, whose import takes long and adds a filter to the process's warnings.
    """
    count, cut = len(gains), int(_TRIMMED * len(gains))
    kept = np.sort(gains)[cut : count - cut]
    mean = float(kept.mean())
    # Winsorized: each value that was cut counts as the nearest that was kept.
    winsorized = np.concatenate([np.repeat(kept[0], cut), kept, np.repeat(kept[-1], cut)])
    error = float(winsorized.std(ddof=1)) / ((1 - 2 * _TRIMMED) * math.sqrt(count))
    away = float(stdtrit(len(kept) - 1, (1 + confidence) / 2)) * error
    return Interval(mean, mean - away, mean + away)


def judge(pairs: Sequence[Pair], *, last: bool = False) -> Outcome | None:
    """Return the outcome of a change by its pairs of blocks; None if more pairs are needed.

    Args:
        pairs: All pairs so far.
        last: True if there is no time for further pairs: `undecided` replaces None.
    """
    count = len(pairs)
    last = last or count >= _MAX_PAIRS
    is_early = count == _EARLY_PAIRS
    if not is_early and (count < MIN_PAIRS or (count not in _LOOKS and not last)):
        return None
    gains = log_gains(pairs)
    is_worth_it = interval_of_mean(gains, _KEEP_CONFIDENCE).low > math.log(WORTH)
    is_not_worth_it = interval_of_mean(gains, _DROP_CONFIDENCE).high < math.log(WORTH)
    promises_little = np.median(gains) < math.log(_PROMISING)
    if is_early:
        if is_not_worth_it and gains.max() < math.log(_HOPELESS):
            return "dropped"
        if promises_little and np.ptp(gains) < _ALIKE:
            return "dropped" if is_not_worth_it else "undecided"
        return "kept" if is_worth_it and is_far_faster(pairs) else None
    if is_worth_it:
        return "kept"
    if is_not_worth_it:
        return "dropped"
    return "undecided" if last or promises_little else None


def is_far_faster(pairs: Sequence[Pair]) -> bool:
    """Return True if each pair gains more than noise can explain."""
    return bool(log_gains(pairs).min() > math.log(_LARGE))


# --- the step alone -----------------------------------------------------------------------------------------

_HOPELESS_TIMES = 3.0
"""Ratio of a step to the time per batch of the job without the change, above which the step alone decides."""
_QUICKER = 0.9
"""Ratio of a step to one without the change, below which it is faster."""
_MIN_STEP_PAIRS = 3
_MAX_STEP_PAIRS = 6
_MAX_STEPS_S = 10.0
"""Total time after which no further pair of steps is run."""


def why_hopeless(lane: Lane, job_s: float) -> str | None:
    """Return the reason not to measure blocks of a variant whose step alone far exceeds the job's time per batch."""
    if lane.bare_step_s < _HOPELESS_TIMES * job_s:
        return None
    return f"a step takes {duration(lane.bare_step_s)}, and the whole job {duration(job_s)} per batch without it"


def is_quicker(lane: Lane, given: Lane, sizes: tuple[int, int]) -> bool:
    """Return True if a variant's step alone is faster than that of the job without the change.

    Args:
        lane: The variant.
        given: The job without the change.
        sizes: Samples per batch of both.
    """
    return 0 < lane.bare_step_s / sizes[0] < _QUICKER * given.bare_step_s / sizes[1]


def compare_steps(lane: Lane, given: Lane) -> tuple[Outcome | None, str, float]:
    """Run steps of a variant and of the job without the change in turns.

    Returns:
        The outcome if the step is no faster, None if it may be; the reason; the factor by which it is faster.
    """
    steps_s: list[tuple[float, float]] = []
    outcome: Outcome | None = None
    while len(steps_s) < _MAX_STEP_PAIRS and outcome is None:
        # A B, B A, A B: drift cancels.
        order = (given, lane) if len(steps_s) % 2 == 0 else (lane, given)
        taken_s = {each: each.bare_step() for each in order}
        steps_s.append((taken_s[given], taken_s[lane]))
        if len(steps_s) < _MIN_STEP_PAIRS:
            continue
        logs = np.array([math.log(without / with_it) for without, with_it in steps_s])
        gains = interval_of_mean(logs, _DROP_CONFIDENCE)
        if gains.high < math.log(WORTH):
            outcome = "dropped"
        elif len(steps_s) == _MAX_STEP_PAIRS and gains.estimate < math.log(_PROMISING):
            outcome = "undecided"
        elif gains.low > math.log(WORTH) or sum(map(sum, steps_s)) > _MAX_STEPS_S:
            break
    without_s, with_s = np.mean(steps_s, axis=0)
    reason = f"the step alone takes {duration(with_s)}, and {duration(without_s)} without it"
    return outcome, reason, math.exp(gains.estimate)

"""Interval estimates from blocks: the delete-one-round jackknife.

The unit of replication is the round, because blocks of one round share the state of the machine. Times per
sample are total seconds over total samples, never means of rates, which are biased high.

Sources: B. Efron, 'The Jackknife, the Bootstrap and Other Resampling Plans', SIAM 1982 (chapter 3, standard
error of the delete-one jackknife); Student's t for the quantile, and for intervals that are looked at after every round
M. Lindon, D. W. Ham, M. Tingley and I. Bojinov, 'Anytime-Valid Inference in Linear Models', 2022 (the t-test with a
normal prior of the effect in units of its standard deviation).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtrit

from bottleneck.results.records import Block, Interval

FloatArray = NDArray[np.float64]

_PRIOR_ROUNDS = 0.05
"""Weight of the prior of an anytime-valid interval, in rounds: intervals are narrowest from five rounds on with it."""
_USELESS = 1e6


@dataclass(frozen=True)
class Anytime:
    """A confidence that holds over all looks at growing data, however many there are.

    Attributes:
        error: The chance that one of the intervals of a quantity ever misses it.
    """

    error: float

    def quantile(self, degrees_of_freedom: int) -> float:
        """Return the replacement of Student's t; huge if there are too few rounds to be sure of anything."""
        rounds = degrees_of_freedom + 1
        shrinkage = _PRIOR_ROUNDS / (_PRIOR_ROUNDS + rounds)
        odds = (1 / (self.error**2 * shrinkage)) ** (1 / rounds)
        if odds * shrinkage >= 1:
            return _USELESS
        return math.sqrt(degrees_of_freedom * (odds - 1) / (1 - odds * shrinkage))


Confidence = float | Anytime

CONFIDENCE = 0.95

# Two rounds that disagree have an interval over many orders of magnitude (t = 12.7). It is cut at exp(50),
# so that no bound overflows; at that width nothing is known anyway.
_WIDEST_LOG_HALF_WIDTH = 50.0
_LARGEST_LOG = 700.0
"""Largest logarithm whose exponential, and its inverse, fit a float."""


@dataclass(frozen=True, eq=False)
class Series:
    """Blocks of one experiment, summed within each round; all arrays have the shape (rounds,)."""

    rounds: NDArray[np.int64]
    """Round numbers, ascending."""
    samples: FloatArray
    batches: FloatArray
    seconds: FloatArray

    def __len__(self) -> int:
        return len(self.rounds)

    @property
    def seconds_per_sample(self) -> float:
        """Total time over total samples."""
        return float(self.seconds.sum() / self.samples.sum())

    @property
    def samples_per_s(self) -> float:
        """Total samples over total time."""
        return 1 / self.seconds_per_sample

    @property
    def samples_per_batch(self) -> float:
        """Mean batch size; 1 if the batches were not counted, so that a batch then means a sample."""
        batches = float(self.batches.sum())
        return float(self.samples.sum()) / batches if batches > 0 else 1.0

    @property
    def seconds_per_batch(self) -> float:
        """Total time over total batches."""
        return self.seconds_per_sample * self.samples_per_batch


@dataclass(frozen=True)
class Spread:
    """An estimate, its standard error and the number of rounds that they come from (two at least)."""

    estimate: float
    standard_error: float
    rounds: int
    below: float = 0.0
    """By how much the truth may be lower for a reason that is the same in every round; it widens the interval."""
    above: float = 0.0
    """By how much it may be higher."""

    def half_width(self, confidence: Confidence = CONFIDENCE) -> float:
        """Return half the width of the two-sided Student t interval."""
        return t_quantile(self.rounds - 1, confidence) * self.standard_error

    def interval(self, confidence: Confidence = CONFIDENCE) -> Interval:
        """Return the two-sided Student t interval."""
        half = self.half_width(confidence)
        return Interval(self.estimate, self.estimate - half - self.below, self.estimate + half + self.above)

    def exponentiated(self, confidence: Confidence = CONFIDENCE) -> Interval:
        """Return the interval of exp(estimate); all of it is positive."""
        half = min(self.half_width(confidence), _WIDEST_LOG_HALF_WIDTH)
        return _exponentiated(self.estimate, half + self.below, half + self.above)


def shared_by(confidence: Confidence, comparisons: int) -> Confidence:
    """Return the confidence of each of several comparisons that gives all together this one (Bonferroni)."""
    if isinstance(confidence, Anytime):
        return Anytime(confidence.error / max(comparisons, 1))
    return 1 - (1 - confidence) / max(comparisons, 1)


def t_quantile(degrees_of_freedom: int, confidence: Confidence = CONFIDENCE) -> float:
    """Return the Student t quantile of a two-sided interval."""
    if isinstance(confidence, Anytime):
        return confidence.quantile(degrees_of_freedom)
    return float(stdtrit(degrees_of_freedom, 0.5 + confidence / 2))


def series(blocks: Iterable[Block]) -> Series:
    """Sum blocks within their rounds; those without a sample or without time have no rate and are left out."""
    usable = [b for b in blocks if b.samples > 0 and b.seconds > 0]
    table = np.array([(b.samples, b.batches, b.seconds) for b in usable], dtype=np.float64).reshape(-1, 3)
    rounds, position = np.unique(np.array([b.round for b in usable], dtype=np.int64), return_inverse=True)
    sums = np.zeros((len(rounds), 3))
    np.add.at(sums, position, table)
    return Series(rounds, *sums.T)


def align(group: Sequence[Series]) -> tuple[Series, ...]:
    """Keep the rounds that all series of the group have in common."""
    common = group[0].rounds
    for other in group[1:]:
        if not np.array_equal(common, other.rounds):
            common = np.intersect1d(common, other.rounds)
    return tuple(_restrict(member, common) for member in group)


def jackknife(statistic: Callable[..., FloatArray], group: Sequence[Series]) -> Spread | None:
    """Estimate a function of times per sample, with its delete-one-round standard error.

    Args:
        statistic: Takes one array of times per sample [s] for each series and works element by element.
        group: The series; rounds that one of them lacks are left out.

    Returns:
        None with fewer than two common rounds.
    """
    aligned = align(group)
    rounds = len(aligned[0])
    if rounds < 2:
        return None
    with np.errstate(all="ignore"):  # a file may hold blocks of any size; then the result is not finite
        whole = statistic(*(np.array([member.seconds_per_sample]) for member in aligned))
        left_out = statistic(*((m.seconds.sum() - m.seconds) / (m.samples.sum() - m.samples) for m in aligned))
        deviations = left_out - left_out.mean()
        variance = (rounds - 1) / rounds * float(deviations @ deviations)
    return Spread(float(whole[0]), math.sqrt(variance), rounds)


def log_ratio(numerator: Series, denominator: Series) -> Spread | None:
    """Estimate the logarithm of the ratio of two times per sample (a ratio of sums).

    On the log scale the interval of a ratio and that of its inverse say the same, and both are positive.
    """
    return jackknife(lambda a, b: np.log(a / b), (numerator, denominator))


def ratio(numerator: Series, denominator: Series, confidence: Confidence = CONFIDENCE) -> Interval | None:
    """Estimate the ratio of two times per sample; None with fewer than two common rounds."""
    spread = log_ratio(numerator, denominator)
    return None if spread is None else spread.exponentiated(confidence)


def welch(base: Spread, head: Spread, confidence: float = CONFIDENCE) -> Interval:
    """Estimate exp(base - head) of two independent estimates, with Welch's interval for unequal variances.

    Source: B. L. Welch, 'The generalization of Student's problem when several different population variances are
    involved', Biometrika 34 (1947), with the degrees of freedom of Welch and Satterthwaite.
    """
    variances = [spread.standard_error * spread.standard_error for spread in (base, head)]
    total = sum(variances)
    # Relative to their sum: a file may hold blocks of any size, and squares of squares have no room.
    pieces = (
        sum((v / total) ** 2 / (s.rounds - 1) for v, s in zip(variances, (base, head), strict=True)) if total else 0
    )
    freedom = 1 / pieces if pieces > 0 else float(base.rounds + head.rounds - 2)
    half = min(float(stdtrit(freedom, 0.5 + confidence / 2)) * math.sqrt(total), _WIDEST_LOG_HALF_WIDTH)
    return _exponentiated(base.estimate - head.estimate, half, half)


def _exponentiated(estimate: float, below: float, above: float) -> Interval:
    bounds = np.array([estimate, estimate - below, estimate + above])
    return Interval(*np.exp(np.clip(bounds, -_LARGEST_LOG, _LARGEST_LOG)).tolist())


def mean_spread(values: FloatArray) -> Spread:
    """Estimate the mean of independent values, at least two."""
    return Spread(float(values.mean()), float(values.std(ddof=1)) / math.sqrt(len(values)), len(values))


def _restrict(member: Series, rounds: NDArray[np.int64]) -> Series:
    """Keep the given rounds, all of which the series has."""
    if len(rounds) == len(member.rounds):
        return member
    keep = np.isin(member.rounds, rounds)
    return Series(member.rounds[keep], member.samples[keep], member.batches[keep], member.seconds[keep])

"""Costs of each stage in the loader: the time saved by leaving out just this stage.

Everything else is the same as in the job. A difference of neighbouring rungs would compare a loop that is hot in the
processor's caches with a cold one, and charge the difference to the first stage that is made real.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from bottleneck.analysis.readings import Readings
from bottleneck.analysis.statistics import CONFIDENCE, Confidence, FloatArray, Series, Spread, jackknife
from bottleneck.results.evidence import CostsTogether, Evidence
from bottleneck.results.names import BEFORE_COLLATE, COLLATE, COMPUTE, COPY, DEVICE, HOST, LOAD, OTHER
from bottleneck.results.records import Interval, Stage

_OWN_SHARE_OF_SERVING = 0.5
"""Uncertainty of the replay overhead assumed for a stage, as a part of the whole replay overhead."""
_SHARES_OF_SERVING = {LOAD: 0.0, OTHER: 1.0}
"""Part of the replay overhead that leaving out a stage takes; for other stages half is assumed, and the interval is
widened by the possible error. Loaded data is replayed as an argument, and the code around it is left out with it, which
saves about the replay overhead; without the code around them, each marked stage is replayed separately."""
_REPEATABLE = 0.003
"""Relative repeatability of the time of the same code across processes: twice the standard deviation
of a plain loop around a sleep of 10 to 16 ms from one process to the next, however well the blocks of each agree."""
_TINY_BATCH_S = 1e-3
"""Seconds per batch of the loader alone below which a call more or less counts."""
_NEAR = 1.5
"""Multiple of the receiving time that a batch has to take for receiving to hide nothing of it."""


Term = tuple[float, Series]
"""A factor and a time per sample."""


@dataclass(frozen=True, eq=False)
class Costing:
    """A cost as a sum of measured times, and its errors that no repetition would show [s per batch]."""

    terms: tuple[Term, ...]
    """Times per sample and their factors, which include the samples of a batch."""
    below_s: float = 0.0
    """Seconds by which the cost may be lower, because of replay overhead."""
    above_s: float = 0.0
    """Seconds by which it may be higher, because of replay overhead or hidden receiving."""
    sampling_error_s: float = 0.0
    """Sampling error of the recorded batches."""
    left_out: bool = False
    """Just this stage is left out, so that the rest is as in the job."""

    def spread(self) -> Spread | None:
        """Estimate the cost [s per batch]; None with fewer than two common rounds."""
        return _combine(self.terms)

    def interval(self, confidence: Confidence = CONFIDENCE) -> Interval | None:
        """Return the cost with everything that it may be off by [s per batch]."""
        spread = self.spread()
        if spread is None:
            return None
        found = spread.interval(confidence)
        either_s = self.sampling_error_s + _REPEATABLE * abs(found.estimate)
        below_s, above_s = self.below_s + either_s, self.above_s + either_s
        return Interval(found.estimate, found.low - below_s, found.high + above_s)


def _combine(terms: Iterable[Term]) -> Spread | None:
    """Estimate a sum of times per sample, each with its factor; terms that cancel are left out, with their rounds."""
    factors: dict[int, float] = {}
    members: dict[int, Series] = {}
    for factor, member in terms:
        members[id(member)] = member
        factors[id(member)] = factors.get(id(member), 0.0) + factor
    kept = [(factors[key], member) for key, member in members.items() if factors[key]]

    def total(*times: FloatArray) -> FloatArray:
        return sum((f * t for (f, _), t in zip(kept, times, strict=True)), start=0 * times[0])

    return jackknife(total, [member for _, member in kept]) if kept else None


class Costs:
    """The costs of all stages."""

    def __init__(self, readings: Readings) -> None:
        self._readings = readings
        # The stages inside `__getitem__` are those beyond the samples that are replayed whole.
        outers = [span.outer for span in readings.spans]
        begin = outers.index(BEFORE_COLLATE) + 1 if BEFORE_COLLATE in outers else len(outers)
        self._within_sample = {span.name for span in readings.spans[begin:] if not span.is_alternative}
        serving, alone = readings.serving, readings.alone
        self.serving = None if serving is None or alone is None else _difference(serving, alone).interval()
        """Replay overhead [s per batch]: of the whole sample, or of as much as is replayed of it."""
        self._of = {span.name: self._costing(span) for span in readings.spans}
        self.together = self._together()

    def costing(self, name: str) -> Costing | None:
        """Return the costing of a stage; None if it was not measured."""
        return self._of.get(name)

    def interval(self, name: str, confidence: Confidence = CONFIDENCE) -> Interval | None:
        """Return the cost of a stage [s per batch]; None if not measured."""
        found = self._of.get(name)
        return None if found is None else found.interval(confidence)

    # --- comparing -----------------------------------------------------------------------------------------

    def unresolved_s(self, name: str) -> float | None:
        """Return the possible cost [s per batch] of a stage that costs less than measuring it; None for others."""
        found = self._of.get(name)
        spread = found.spread() if found is not None else None
        if found is None or spread is None or not 0 < max(found.below_s, found.above_s) >= spread.estimate:
            return None
        return spread.estimate + found.above_s

    def clearly_over(self, more: str, less: str, confidence: Confidence = CONFIDENCE) -> bool | None:
        """Return True if one stage clearly costs more than another, by the interval of the difference.

        Returns:
            None if the two have fewer than two rounds in common.
        """
        one, other = self._of.get(more), self._of.get(less)
        if one is None or other is None:
            return None
        difference = _combine([*one.terms, *_negated(other.terms)])
        if difference is None:
            return None
        return difference.interval(confidence).low > one.below_s + other.above_s

    # --- each stage ----------------------------------------------------------------------------------------

    def _costing(self, span: Stage) -> Costing | None:
        if span.name in (COMPUTE, COPY):
            found, loop_s = between(self._readings.coupled, span), self._readings.loop_s_per_batch
            # In `device` the step comes with the loop around it, which takes a moment, and may itself take longer.
            below_s = loop_s + (self._slower_alone_s() if span.name == COMPUTE else 0.0)
            return found if found is None else replace(found, below_s=below_s, above_s=loop_s)
        return (
            self._left_out(span)
            or between(self._readings.workers, span)
            or between(self._readings.drained, span, nothing_inside=(DEVICE, HOST))
        )

    def _slower_alone_s(self) -> float:
        """Return the extra time of the step in `device` over that in the job: an idle processor wakes up slowly."""
        device, step_s = self._readings.device, self._readings.step_s_per_batch
        if device is None or step_s is None:
            return 0.0
        return max(0.0, device.seconds_per_batch - self._readings.loop_s_per_batch - step_s)

    def _left_out(self, span: Stage) -> Costing | None:
        """Compare the loader alone with the one without the stage; with workers, these alone.

        Hand-off shares a process, and there Python's global lock, with the stages before it, and overlaps with them
        while they wait: with it, a stage that waits would seem to cost less, and one that computes more.
        """
        readings = self._readings
        rest, raw = readings.alone_without.get(span.name), readings.alone
        if rest is None or raw is None:
            return None
        size, serving = raw.samples_per_batch, readings.serving
        of_samples = serving is not None and span.name in self._within_sample
        paid = _SHARES_OF_SERVING.get(span.name, 0.5) if of_samples else 0.0
        terms = [(size * (1 - paid), raw), (-size, rest)]
        if serving is not None:
            terms.append((size * paid, serving))
        served_s = 0.0 if self.serving is None else _OWN_SHARE_OF_SERVING * max(0.0, self.serving.estimate)
        rest_s = rest.seconds_per_sample * size
        receiving_s = readings.receiving_s_per_batch
        hidden_s = min(rest_s, receiving_s) if rest_s < _NEAR * receiving_s else 0.0
        sampling_error_s = readings.sampling_error * rest_s
        above_s = max(
            served_s,
            hidden_s,
            self._small_batch_bias_s(span, size * (raw.seconds_per_sample - rest.seconds_per_sample)),
        )
        return Costing(tuple(terms), served_s, above_s, sampling_error_s, left_out=True)

    def _small_batch_bias_s(self, span: Stage, cost_s: float) -> float:
        """Return the underestimate of a tiny collation [s per batch].

        A replayed batch is copied, and copying a tiny one takes as many calls as making it.
        """
        alone, wall_s = self._readings.alone, span.wall_s_per_batch
        if span.name != COLLATE or wall_s is None or alone is None or alone.seconds_per_batch >= _TINY_BATCH_S:
            return 0.0
        return max(0.0, wall_s - cost_s)

    # --- all of them ---------------------------------------------------------------------------------------

    def add_to(self, evidence: Evidence) -> Evidence:
        """Return the evidence with the bounds of the costs, and their sum."""
        measured = self._left_out_stages()
        if not measured:
            return evidence
        return replace(
            evidence,
            resolution_s_per_batch=max(max(costing.below_s, costing.above_s) for costing in measured),
            serving_s_per_batch=self.serving,
            costs_together=self.together,
        )

    def _left_out_stages(self) -> list[Costing]:
        return [costing for costing in self._of.values() if costing is not None and costing.left_out]

    def _together(self) -> CostsTogether:
        """Return the sum of the costs, and the rest of the loader's time; empty if unknown."""
        alone = self._readings.alone
        terms = [term for costing in self._left_out_stages() for term in costing.terms]
        total = _combine(terms)
        if alone is None or total is None:
            return CostsTogether()
        rest = _combine([(alone.samples_per_batch, alone), *_negated(terms)])
        if rest is None:
            return CostsTogether()
        return CostsTogether(
            all_s_per_batch=alone.seconds_per_batch, sum_s_per_batch=total.interval(), rest_s_per_batch=rest.interval()
        )


def between(experiments: Mapping[str, Series], span: Stage, *, nothing_inside: tuple[str, ...] = ()) -> Costing | None:
    """Compare two neighbouring experiments, for a stage that cannot be left out alone.

    The innermost stage has no experiment inside it, or one in which nothing is at work: all of the time is its own.
    """
    whole, rest = experiments.get(span.outer), experiments.get(span.inner or "")
    if whole is None or (rest is None and span.inner is not None and span.inner not in nothing_inside):
        return None
    return _difference(whole, rest)


def _difference(whole: Series, rest: Series | None) -> Costing:
    size = whole.samples_per_batch
    return Costing(((size, whole),) if rest is None else ((size, whole), (-size, rest)))


def _negated(terms: Iterable[Term]) -> list[Term]:
    return [(-factor, member) for factor, member in terms]

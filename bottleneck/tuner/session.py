"""One tuning from beginning to end: diagnose, climb, measure the ladder, diagnose again."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import replace
from itertools import accumulate
from typing import Any

from bottleneck.errors import BottleneckError, MeasurementError, UsageError
from bottleneck.job.pipeline import Pipeline
from bottleneck.measure.explain_errors import lacks_memory, one_line
from bottleneck.measure.keep.interrupts import interrupts_deferred
from bottleneck.measure.keep.preserved import Preserved
from bottleneck.measure.machine.environment import OtherLoad
from bottleneck.measure.options import ProgressCallback, ProgressUpdate
from bottleneck.results.format import gain as as_gain
from bottleneck.results.records import Result
from bottleneck.results.tuning import Outcome, Pair
from bottleneck.results.warnings.job import loop_breaks_off
from bottleneck.results.warnings.machine import other_load_while_tuning
from bottleneck.results.warnings.too_little import not_diagnosed, rungs_left_out
from bottleneck.tuner.change import (
    Change,
    Settings,
    build,
    describe,
    needs_epochs,
    with_settings,
)
from bottleneck.tuner.changes.compiling import release_pools
from bottleneck.tuner.climb import Climb, OutOfTime, Verdict
from bottleneck.tuner.judging import MIN_PAIRS, compare_steps, gain, is_quicker, judge, why_hopeless
from bottleneck.tuner.lane import Lane, OpenLane, open_lane
from bottleneck.tuner.lanes import Lanes
from bottleneck.tuner.proposals import Proposals
from bottleneck.tuner.ranks import Ranks
from bottleneck.tuner.record import Tuned, rung_of, trial_of
from bottleneck.tuner.rungs import Rungs, confirmed_rungs

_ATTEMPT_SHARE = 0.3
"""Maximum share of the remaining time for one attempt."""
_DULL = 1.04
"""Factor of throughput below which an attempt promises too little for more than `_DULL_S`."""
_DULL_S = 12.0
_DIAGNOSIS_SHARE = 0.1
"""Share of the budget for each diagnosis."""
_MIN_DIAGNOSIS_S = 6.0
_MAX_DIAGNOSIS_S = 12.0
_OTHERS_MATTER = 0.1
"""Share of the cores that other processes use, above which there is a warning."""
_NOT_FINITE = "its loss is not a finite number, but the loss of the job without it is"

Diagnose = Callable[[Pipeline, float], Result]


class TuningSession:
    """State of one tuning while it runs.

    Args:
        diagnose: Diagnoses a job within a time [s].
        left_as_found: Saves the state of the job, and restores it.
        others: Reads the cores that other processes use.
        in_script: True if the train step is the loop of a script, in which nothing is changed.
    """

    def __init__(  # noqa: PLR0913 - some of them for tests
        self,
        given: Pipeline,
        changes: Sequence[Change],
        budget_s: float,
        *,
        diagnose: Diagnose,
        tell: ProgressCallback,
        left_as_found: Callable[[], AbstractContextManager[Preserved | None]],
        opener: OpenLane = open_lane,
        others: OtherLoad | None = None,
        clock: Callable[[], float] = time.perf_counter,
        in_script: bool = False,
        ranks: Ranks | None = None,
    ) -> None:
        self._given = given
        self._budget_s = budget_s
        self._ranks = ranks or Ranks()
        self._diagnose = diagnose
        self._tell = tell
        self._clock = clock
        self._left_as_found = left_as_found
        self._began_s = clock()
        self._diagnosis_s = max(_MIN_DIAGNOSIS_S, min(_MAX_DIAGNOSIS_S, _DIAGNOSIS_SHARE * budget_s))
        self._lanes = Lanes(given, opener, budget_s, clock, self._blocks_left_s, others, self._ranks)
        self._rungs = Rungs(self._lanes, self._blocks_left_s)
        self._proposals = Proposals(
            given,
            changes,
            self._lanes,
            self._ranks,
            left_s=lambda: self._left_s,
            ladder_s=lambda: self._ladder_s(True),
            in_script=in_script,
        )
        self._climb = Climb(
            changes,
            self._proposals.next_of,
            lambda left: self._proposals.by_promise(left, self._climb.best),
            self._measure,
            self._proposals.advised_together,
        )
        self._as_found = ExitStack()
        self._kept: Preserved | None = None
        self._confirmed: Settings | None = None
        self.found = Tuned()

    @property
    def best(self) -> Settings:
        """Settings kept so far; once the ladder is measured, those confirmed."""
        return self._climb.best if self._confirmed is None else self._confirmed

    # --- the course ----------------------------------------------------------------------------------------

    def run(self) -> None:
        """Tune; results up to a failure stay in `found`.

        Raises:
            UsageError: The budget is too short for one change.
            MeasurementError: The original job fails.
        """
        try:
            with warnings.catch_warnings():
                # More workers than cores are tried on purpose.
                warnings.filterwarnings("ignore", message="This DataLoader will create")
                self._run()
        except RuntimeError as error:  # for example, a change left the device unusable
            raise MeasurementError(f"The tuning ended early: {one_line(error)}") from error
        finally:
            release_pools(())
            self.found.seconds = self._clock() - self._began_s

    def _run(self) -> None:
        with self._lanes_open():
            self._open_first()
        self._say("diagnosing the job")
        self.found.before = before = self._diagnose(self._given, self._diagnosis_s)
        self._proposals.begin(before, self._ranks.cores(self._lanes.cores))
        with self._lanes_open():
            self._climb.run()
            for setting, outcome, why in self._proposals.untried(self.found.trials, self._climb.next_of):
                self._add_trial((setting,), (), outcome, why)
            self._measure_ladder()
        self._warn_of_others()
        self._diagnose_tuned()

    @contextmanager
    def _lanes_open(self) -> Iterator[None]:
        """Restore the present state when all lanes are closed again."""
        try:
            self._start_again()
            yield
        finally:
            self._restore()

    def _start_again(self) -> None:
        """Close all lanes and restore the state of the job, which a failed change may have damaged."""
        self._restore()
        self._kept = self._as_found.enter_context(self._left_as_found())

    def _restore(self) -> None:
        try:
            with interrupts_deferred():
                self._lanes.keep()
        finally:
            self._as_found.close()
        for warning in self._kept.notes if self._kept is not None else ():
            self.found.warn(warning)

    @property
    def _left_s(self) -> float:
        """Seconds left for attempts, without those that the ladder and the last diagnosis need."""
        return self._blocks_left_s() - self._ladder_s(needs_epochs(self._climb.best))

    def _ladder_s(self, whole_epochs: bool) -> float:
        rungs = list(accumulate([(), *self._climb.rungs], with_settings))
        return self._rungs.cost_s(rungs, self._climb.best, self._proposals.epoch_s if whole_epochs else None)

    def _blocks_left_s(self) -> float:
        return self._budget_s - (self._clock() - self._began_s) - self._diagnosis_s

    def _say(self, phase: str, known: str | None = None) -> None:
        elapsed_s = self._clock() - self._began_s
        self._tell(ProgressUpdate(phase, experiment=known, elapsed_s=elapsed_s, budget_s=self._budget_s))

    def _warn_of_others(self) -> None:
        if any(lane.breaks_off for lane in self._lanes.shown.values()):
            self.found.warn(loop_breaks_off())
        taken = self._lanes.others_cores
        if taken > _OTHERS_MATTER * self._lanes.cores:
            self.found.warn(other_load_while_tuning(taken))

    def _open_first(self) -> None:
        self._lanes.open_given()
        needed_s = self._diagnosis_s + self._attempt_s()
        if needed_s > self._left_s:
            minutes = int(2 * (self._budget_s - self._left_s + needed_s)) // 60 + 1
            raise UsageError(
                f"The budget of {self._budget_s:.0f} s is too short to try one change.",
                f"Increase it to {minutes} minutes: --budget {minutes}m.",
            )

    def _attempt_s(self) -> float:
        """Return the minimum seconds of an attempt that is not hopeless."""
        best = self._climb.best
        return self._lanes.start_s(best) + 2 * MIN_PAIRS * self._lanes.visit_s(best)

    def _diagnose_tuned(self) -> None:
        if not self.best:  # the tuned job is the original one
            self.found.after = self.found.before
            return
        self._say("diagnosing the tuned job")
        try:
            self.found.after = self._diagnose(build(self._given, self.best), self._diagnosis_s)
        except BottleneckError as error:
            self.found.warn(not_diagnosed(error.message))

    # --- one attempt ---------------------------------------------------------------------------------------

    def _measure(self, base: Settings, changed: Settings, tried: Settings) -> Verdict:
        """Measure the job with a change against the job without it.

        Raises:
            OutOfTime: There is no time for it.
            MeasurementError: The job without the change fails.
        """
        if self._attempt_s() > self._left_s:
            raise OutOfTime
        self._say(f"trying {describe(tried)}")
        whole = needs_epochs(tried)
        self._lanes.keep(base, whole_epochs=whole)
        release_pools(base)
        pairs: list[Pair] = []
        setup_s = reason = quicker = None
        no_memory = False
        given = self._lanes.open(base, whole_epochs=whole)
        try:
            lane = self._lanes.open(changed, whole_epochs=whole)
            setup_s = lane.setup_s
            settled, reason, quicker = self._by_its_step(base, changed, tried, given, lane)
            outcome = settled or self._pair_up(base, changed, tried, pairs)
            # Whole epochs do not show how long a lane waits.
            self._lanes.shown[changed] = self._lanes.stats(base) if whole or reason else lane
            if not whole:
                self._lanes.shown[base] = given
        except (Exception, SystemExit) as error:  # any failure of a change is listed, and the tuning continues
            if self._ranks.in_step:
                raise
            outcome, reason = "failed", _reason(error)
            no_memory = bool(self._ranks.most(lacks_memory(error)))
            if self._lanes.running is given and not no_memory:  # the job without the change failed
                raise
        self._add_trial(tried, base, outcome, reason, pairs, setup_s)
        self._rungs.note(base, changed, pairs, whole_epochs=whole)
        if outcome == "failed":
            self._start_again()
        found = gain(pairs)
        return Verdict(outcome, found.estimate if found is not None else quicker, no_memory)

    def _add_trial(self, tried: Settings, base: Settings, outcome: Outcome, reason: str | None, *measured: Any) -> None:
        predicted = self._proposals.predicted(tried[0].change) if len(tried) == 1 else None
        self.found.trials.append(trial_of(tried, base, outcome, reason, predicted, *measured))

    def _by_its_step(
        self, base: Settings, changed: Settings, tried: Settings, given: Lane, lane: Lane
    ) -> tuple[Outcome | None, str | None, float | None]:
        """Return the outcome if the step alone settles it, else None; the reason; and the factor if known."""
        sizes = [build(self._given, each).make_loader().batch_size or 1 for each in (changed, base)]
        if is_quicker(lane, given, (sizes[0], sizes[1])):  # the job may gain by it only once its input is faster, too
            self._proposals.note_quicker_step(base)
        reason = why_hopeless(lane, self._lanes.stats(base).step_s) if sizes[0] == sizes[1] else None
        if reason is not None:
            return "dropped", reason, None
        if not self._ranks.group.is_alone or not all(setting.change.step_only for setting in tried):
            return None, None, None
        outcome, reason, quicker = compare_steps(lane, given)
        return outcome, reason if outcome else None, quicker

    def _pair_up(self, base: Settings, changed: Settings, tried: Settings, pairs: list[Pair]) -> Outcome:
        began_s = self._clock()
        max_s = max(self._attempt_s(), _ATTEMPT_SHARE * self._left_s)
        whole = needs_epochs(tried)
        lanes = [self._lanes.open(each, whole_epochs=whole) for each in (base, changed)]
        rounds = self._lanes.in_turns(base, changed, whole_epochs=whole)
        while True:
            pairs[:] = map(Pair, *next(rounds))
            if [lane.loss_is_finite for lane in lanes] == [True, False]:
                raise MeasurementError(_NOT_FINITE)
            found = gain(pairs)
            limit_s = min(max_s, _DULL_S) if found is not None and found.estimate < _DULL else max_s
            outcome = judge(pairs, last=self._clock() - began_s > limit_s)
            self._say(f"trying {describe(tried)}", f"{as_gain(found.estimate)} so far" if found else None)
            if outcome is not None:
                return outcome

    # --- the ladder ----------------------------------------------------------------------------------------

    def _measure_ladder(self) -> None:
        """Measure all rungs in turns, because each change was kept at its luckiest moment."""
        added: list[Settings] = [(), *self._climb.rungs]
        rungs = list(accumulate(added, with_settings))
        self._say("measuring the ladder")
        self.found.whole_epochs = needs_epochs(self.best)
        blocks, epoch_s = None, self._proposals.epoch_s if self.found.whole_epochs else None
        try:
            blocks = self._rungs.measure(rungs, epoch_s)
        except Exception as error:  # the device may lack memory for all of them at once
            if len(rungs) < 3 or self._ranks.in_step:
                raise
            self.found.warn(rungs_left_out(_reason(error)))
        if blocks is None:  # here the error is released, with the memory that it referred to
            self._start_again()
            added = rungs = [(), self.best]
            blocks = self._rungs.measure(rungs, epoch_s)
        confirmed = confirmed_rungs(blocks)
        if confirmed < len(rungs):
            self.found.leave_out(added[confirmed:], blocks[0], blocks[-1])
        self._confirmed = rungs[confirmed - 1]
        for at, settings in enumerate(rungs[:confirmed]):
            peak_bytes, setup_s = self._lanes.peak_bytes[settings], self._lanes.setup_s[settings]
            rung = rung_of(added[at], blocks[: at + 1], peak_bytes, setup_s)
            promised = next(
                (p for setting in added[at] if (p := self._proposals.predicted(setting.change)) is not None), None
            )
            self.found.ladder.append(replace(rung, predicted=promised))


def _reason(error: BaseException) -> str:
    return error.message if isinstance(error, BottleneckError) else one_line(error)

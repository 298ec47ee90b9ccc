"""The smallest tuning: finds the number of workers within seconds by the loader alone, then proves it in the job."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

from torch.utils.data import IterableDataset

from bottleneck.errors import UsageError
from bottleneck.job.pipeline import Pipeline
from bottleneck.measure.explain_errors import one_line
from bottleneck.measure.keep.preserved import Preserved
from bottleneck.measure.machine.environment import rank_memory_bytes
from bottleneck.measure.options import ProgressCallback, ProgressUpdate
from bottleneck.results.format import count as as_count
from bottleneck.results.format import duration
from bottleneck.results.tuning import Outcome
from bottleneck.results.warnings.too_little import no_time
from bottleneck.tuner.change import Change, Setting, Settings
from bottleneck.tuner.lane import Lane, OpenLane, open_lane
from bottleneck.tuner.lanes import Lanes
from bottleneck.tuner.record import Tuned, rung_of, trial_of
from bottleneck.tuner.rungs import confirmed_rungs, is_useful
from bottleneck.tuner.search import Search, Visit
from bottleneck.tuner.visits import LoaderVisits

_MIN_ROUNDS = 2
_MAX_ROUNDS = 6
"""Rounds that compare the number found with the given one."""
_KEEPS_UP = 0.05
"""Share of its time that the job waits for batches, below which no other number is searched for."""

Visiting = Callable[[Any, float, Callable[[], float]], Callable[[int], Visit | None]]


class WorkerTuning:
    """Finds the number of workers of a job, and measures its gain.

    Args:
        given: The job.
        change: The change of the number of workers.
        seconds: Total time.
        tell: Called with progress.
        left_as_found: Saves the state of the job, and restores it.
        opener: Starts a variant of the job.
        visiting: Makes the function that visits the loader alone, until a time.
        clock: Returns seconds from any origin.
    """

    def __init__(
        self,
        given: Pipeline,
        change: Change,
        seconds: float,
        *,
        tell: ProgressCallback,
        left_as_found: Callable[[], AbstractContextManager[Preserved | None]],
        opener: OpenLane = open_lane,
        visiting: Visiting = LoaderVisits,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._given = given
        self._change = change
        self._seconds = seconds
        self._visiting = visiting
        self._tell = tell
        self._left_as_found = left_as_found
        self._clock = clock
        self._began_s = clock()
        self._lanes = Lanes(given, opener, seconds, clock, lambda: 0.0)  # no block is measured again
        self.found = Tuned()
        self.best: Settings = ()

    def run(self) -> None:
        """Search and measure; results up to a failure stay in `found`.

        Raises:
            UsageError: The dataset is a stream.
            MeasurementError: The original job fails.
        """
        if isinstance(self._given.make_loader().dataset, IterableDataset):
            raise UsageError(
                "The dataset is a stream, which divides itself among the workers in its own way.",
                "Tune the job without --seconds, which tries the other changes.",
            )
        try:
            with self._left_as_found(), warnings.catch_warnings():
                warnings.filterwarnings("ignore", message="This DataLoader will create")  # tried on purpose
                try:
                    self._run()
                finally:
                    self._lanes.keep()
        finally:
            self.found.seconds = self._clock() - self._began_s

    def _run(self) -> None:
        self._say("measuring the job")
        self._lanes.open_given()
        lane = self._lanes.shown[()]
        count = self._search(lane) if lane.waiting_share >= _KEEPS_UP else None
        changed: Settings = () if count is None else (Setting(self._change, count),)
        self._say("measuring the job")
        rungs = [(), changed] if changed else [()]
        self._lanes.keep(())
        turns = self._lanes.in_turns(*rungs, whole_epochs=False)
        for blocks in turns:
            done, round_s = len(blocks[0]), sum(map(self._lanes.visit_s, rungs))
            is_late = self._clock() + round_s > self._began_s + self._seconds
            if done >= _MAX_ROUNDS or (done >= _MIN_ROUNDS and (is_late or is_useful(blocks))):
                break
        confirmed = confirmed_rungs(blocks)
        if changed:
            self._add_trial(changed, "kept" if confirmed > 1 else "undecided", None)
        self.best = rungs[confirmed - 1]
        for at, settings in enumerate(rungs[:confirmed]):
            peak_bytes, setup_s = self._lanes.peak_bytes[settings], self._lanes.setup_s[settings]
            self.found.ladder.append(rung_of(settings, blocks[: at + 1], peak_bytes, setup_s))

    def _search(self, lane: Lane) -> int | None:
        """Return a number of workers that is better for the loader alone; None if there is none."""
        self._say("running the loader alone")
        loader = self._given.make_loader()
        reserved_s = self._lanes.start_s(()) + 2 * _MIN_ROUNDS * self._lanes.visit_s(())
        visits = self._visiting(loader, self._began_s + self._seconds - reserved_s, self._clock)
        given, step_s = loader.num_workers, max(lane.bare_step_s, 1e-6)
        search = Search(
            lambda count: self._visit(visits, count, given), given, self._lanes.cores, step_s, rank_memory_bytes(), 0
        )
        found = search.run()
        for count, seen in search.seen.items():
            if count not in (given, found):
                rate = as_count(seen.samples_per_batch / search.period_s(count))
                reason = f"by the loader alone, the job would have {rate} samples/s with a step of {duration(step_s)}"
                self._add_trial((Setting(self._change, count),), "dropped", reason)
        if not search.seen:
            self.found.warn(no_time())
        return None if found == given else found

    def _visit(self, visits: Callable[[int], Visit | None], count: int, given: int) -> Visit | None:
        try:
            return visits(count)
        except Exception as error:  # a number that does not run is listed, unless it is the original one
            if count == given:
                raise
            self._add_trial((Setting(self._change, count),), "failed", one_line(error))
            return None

    def _add_trial(self, tried: Settings, outcome: Outcome, reason: str | None) -> None:
        self.found.trials.append(trial_of(tried, (), outcome, reason, None))

    def _say(self, phase: str) -> None:
        self._tell(ProgressUpdate(phase, elapsed_s=self._clock() - self._began_s, budget_s=self._seconds))

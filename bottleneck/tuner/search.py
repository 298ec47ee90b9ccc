"""Search for a number of workers: logic that knows no loaders and no clocks.

A visit runs the loader alone with some workers and measures their time per batch, and the cores that they and the main
process use. From that follows what to visit next: more workers until the cores, the memory or the step are used up;
fewer, or none, if the main process is busy receiving batches.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

ALIKE = 1.02
"""Ratio of times up to which two numbers of workers are equally fast."""
_CLEARLY_BETTER = 1.1
"""Ratio by which another number has to be faster if there was no time to compare the two in turns."""
_MARGIN = 1.05
"""Batches that the loader has to make per batch of the step, because batches are uneven."""
_TAKING_SHARE = 0.5
"""Share of the time that the main process computes, above which it limits the loader, not the workers."""
_READY_SHARE = 0.5
"""Share of the prefetch queue that is filled, above which workers do not limit the loader."""
BEYOND_CORES = 4
"""Maximum workers per core if they mostly wait for something other than a core."""
_HARDLY_CORES = 0.05
"""Minimum share of a core that is assumed for a worker."""
_ROUNDING = 0.2
"""Fraction of a worker that may come from the resolution of clocks."""
_LINEAR = 0.85
"""Share of linear scaling below which the best number may lie between two numbers."""
_CHEAPER = 0.5
"""Time per batch of the main process over that of a worker, at best: it hands nothing over, and has threads."""
_MEMORY_SHARE = 0.5
"""Maximum share of the free memory for all workers."""
_TURNS = 3
"""Maximum comparisons of two numbers."""


@dataclass
class Visit:
    """Measurement of the loader alone, with one number of workers, over some batches."""

    batches: int
    samples: int
    seconds: float
    """Seconds for these batches."""
    worker_cpu_s: float = 0.0
    """CPU time of the processes that make the batches."""
    main_cpu_s: float = 0.0
    """CPU time of the main process."""
    ready_share: float = 0.0
    """Average share of the prefetch queue that is filled."""
    worker_bytes: int = 0
    """Private memory of a worker, with the batches that it may have in the prefetch queue."""


@dataclass
class Seen:
    """All visits with one number of workers."""

    workers: int
    visits: list[Visit] = field(default_factory=list)

    def _sum(self, name: str) -> float:
        return float(sum(getattr(visit, name) for visit in self.visits))

    @property
    def batch_s(self) -> float:
        """Seconds per batch of the loader alone."""
        return self._sum("seconds") / self._sum("batches")

    @property
    def samples_per_batch(self) -> float:
        return self._sum("samples") / self._sum("batches")

    @property
    def taking_s(self) -> float:
        """Seconds that the main process computes to receive a batch."""
        return self._sum("main_cpu_s") / self._sum("batches")

    @property
    def is_ahead(self) -> bool:
        """True if batches are waiting, so that the main process limits the loader."""
        is_taking = self._sum("main_cpu_s") >= _TAKING_SHARE * self._sum("seconds")
        return self.workers > 0 and (is_taking or self._sum("ready_share") >= _READY_SHARE * len(self.visits))

    @property
    def made_s(self) -> float:
        """Seconds in which one process makes a batch; an upper limit if workers are ahead."""
        return max(1, self.workers) * self.batch_s

    @property
    def core_share(self) -> float:
        """Share of a core that each process that makes batches uses."""
        return self._sum("worker_cpu_s") / (max(1, self.workers) * self._sum("seconds"))

    @property
    def worker_bytes(self) -> int:
        return max(visit.worker_bytes for visit in self.visits)

    def period_s(self, step_s: float | None) -> float:
        """Return the job's seconds per batch with a step that uses no cores; None: the loader alone."""
        if step_s is None:
            return self.batch_s
        return step_s + self.batch_s if not self.workers else max(self.batch_s, step_s + self.taking_s)


class Search:
    """Search for the number of workers with which a loader is fastest, or just keeps a step busy.

    Args:
        visit: Visits a number of workers; returns None if there is no time for it, or it does not run.
        given: The loader's present number, which is visited first.
        cores: Cores available to the job.
        step_s: Seconds per batch of the step alone; None: the loader alone.
        free_bytes: Free memory.
        turns: Comparisons of the number found with the given one; 0 if the caller compares them.
    """

    def __init__(
        self,
        visit: Callable[[int], Visit | None],
        given: int,
        cores: float,
        step_s: float | None = None,
        free_bytes: float = math.inf,
        turns: int = _TURNS,
    ) -> None:
        self._visit = visit
        self.given = given
        self._cores = max(1, math.ceil(cores))
        self._step_s = step_s
        self._free_bytes = free_bytes
        self._max_turns = turns
        self.seen: dict[int, Seen] = {}
        self.refused: set[int] = set()
        """Numbers worth a visit for which there was no time, or which do not run."""
        self._turns: dict[int, Seen] = {}
        """Visits in turns."""

    def run(self) -> int:
        """Visit numbers until none is worth it, or there is no time; return the number of workers to use."""
        if not self._add_visit(self.given):
            return self.given
        while True:
            best = min(self.seen, key=lambda count: (self.period_s(count), count))
            done = {*self.seen, *self.refused}
            count = next((each for each in self._candidates(best) if each >= 0 and each not in done), None)
            if count is None:
                break
            if not self._add_visit(count):
                self.refused.add(count)
        found = self._best(self.seen)
        return found if found == self.given else self._compared(found)

    def _add_visit(self, count: int) -> bool:
        visit = self._visit(count)
        if visit is None or not visit.batches:
            return False
        self.seen.setdefault(count, Seen(count)).visits.append(visit)
        return True

    def period_s(self, count: int, seen: Mapping[int, Seen] | None = None) -> float:
        """Return the job's seconds per batch with these workers."""
        return (self.seen if seen is None else seen)[count].period_s(self._step_s)

    def _best(self, seen: Mapping[int, Seen]) -> int:
        """Return the given number if none is faster, otherwise the smallest of those that are equally fast."""
        enough_s = ALIKE * min(self.period_s(count, seen) for count in seen)
        alike = [count for count in sorted(seen) if self.period_s(count, seen) <= enough_s]
        return self.given if self._step_s is None and self.given in alike else alike[0]

    # --- numbers worth a visit -----------------------------------------------------------------------------

    def _candidates(self, best: int) -> list[int]:
        """Return numbers that may be better than the best one, or as good and smaller; the most promising first."""
        at = self.seen[best]
        if at.is_ahead:
            return [0, 1] if best <= self._cores else [best // 2, 0, 1]
        target = self._target(at)
        if self._is_busy(at):
            return [target] if target < best else []  # fewer may do
        found = [min(target, max(self._cores, 2 * best))] if target > best else []
        below = max((count for count in self.seen if count < best), default=None)
        above = min((count for count in self.seen if count > best), default=None)
        if above is not None and above - best > 1 and self.period_s(above) > ALIKE * self.period_s(best):
            found.append((best + above) // 2)
        gained = self.seen[below].batch_s / self.seen[best].batch_s if below else 0.0
        if below and best - below > 1 and gained < _LINEAR * best / below:
            found.append((best + below) // 2)
        if below is None and best > 1 and best * at.core_share > _LINEAR * self._cores:
            found.append(min(best // 2, self._cores))  # they compete for the cores
        if at.made_s * _CHEAPER < at.batch_s or (self._step_s is not None and at.made_s < self._step_s / 10):
            found.append(0)
        return found

    def _target(self, at: Seen) -> int:
        """Return the largest number of workers for which there are cores, memory and steps."""
        limit = math.ceil(self._cores / max(_HARDLY_CORES, at.core_share) - _ROUNDING)
        limit = min(max(limit, 1), BEYOND_CORES * self._cores)
        if at.worker_bytes:
            limit = min(limit, max(self.given, int(_MEMORY_SHARE * self._free_bytes / at.worker_bytes)))
        if self._step_s:
            limit = min(limit, math.ceil(_MARGIN * at.made_s / self._step_s))
        return max(1, limit)

    # --- comparison in turns -------------------------------------------------------------------------------

    def _compared(self, found: int) -> int:
        """Compare the number found with the given one, by visits in turns; return the better one."""
        self._turns = {self.given: Seen(self.given), found: Seen(found)}
        for turn in range(self._max_turns):
            order = (found, self.given) if turn % 2 else (self.given, found)
            made = {count: visit for count in order if (visit := self._visit(count)) is not None}
            if len(made) < len(order):
                break
            for count, visit in made.items():
                self._turns[count].visits.append(visit)
            if turn and self._is_settled(found):
                break
        if not self._turns[found].visits:  # no time: judge by the first visits, with a margin
            is_better = _CLEARLY_BETTER * self.period_s(found) <= self.period_s(self.given)
            return found if is_better or self._is_enough(found) else self.given
        for count, seen in self._turns.items():
            self.seen[count] = seen  # the first visit to the given number read data that the later ones found in memory
        is_better = ALIKE * self.period_s(found) <= self.period_s(self.given)
        return found if is_better or self._is_enough(found) else self.given

    def _is_settled(self, found: int) -> bool:
        """Return True if each visit to the number found was faster than each to the given one."""
        slowest, fastest = (
            [Seen(count, [visit]).period_s(self._step_s) for visit in self._turns[count].visits]
            for count in (found, self.given)
        )
        return max(slowest) < min(fastest)

    def _is_enough(self, found: int) -> bool:
        """Return True if fewer workers keep the step busy, too."""
        return found < self.given and self._is_busy(self.seen[found])

    def _is_busy(self, seen: Seen) -> bool:
        """Return True if the step hardly waits with these workers."""
        step_s = self._step_s
        return step_s is not None and seen.period_s(step_s) <= ALIKE * (step_s + seen.taking_s * (seen.workers > 0))

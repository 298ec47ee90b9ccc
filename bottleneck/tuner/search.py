"""Which number of workers is visited next, and which one is enough: logic that knows no loaders and no clocks.

A visit runs the loader alone with some workers, so that it says how long they take for a batch, and how much of the
cores they and the main process use. From that follows what is worth a visit: more workers up to where the cores, the
memory or the step are used up; fewer, or none, where the main process is busy taking what they hand over.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

ALIKE = 1.02
"""Times by which two numbers of workers may differ without being told apart."""
_SURE_TIMES = 1.1
"""Times by which another number has to be faster where there was no time to compare the two in turns."""
_MARGIN = 1.05
"""Times as many batches as the step takes that the loader has to make: batches are uneven."""
_TAKING_SHARE, _READY_SHARE = 0.5, 0.5
"""Share of the time that the main process computes, and of the queue that lies ready, from which on it is not the
workers that take the time."""
_BEYOND_CORES = 4
"""Limit of the workers, in times the cores, where they hardly use any."""
_HARDLY_CORES = 0.05
"""Least share of a core that a worker counts with."""
_ROUNDING = 0.2
"""Part of a worker that may come of the clocks."""
_LINEAR = 0.85
"""Share of what twice the workers would bring, below which the best number may lie between."""
_CHEAPER = 0.5
"""Times what a worker takes for a batch that the main process may take: it hands nothing over, and has threads."""
_MEMORY_SHARE = 0.5
"""Share of the free memory that all workers may take."""
_TURNS = 3
"""How often two numbers are compared."""


@dataclass
class Visit:
    """The loader alone, with one number of workers for a moment."""

    batches: int
    samples: int
    seconds: float
    """All three of the batches that were timed."""
    worker_cpu_s: float = 0.0
    """Of the cores, in that time, by whoever makes the batches."""
    main_cpu_s: float = 0.0
    """The same by the main process."""
    ready_share: float = 0.0
    """Of the queue: how much of it lay ready, on average."""
    worker_bytes: int = 0
    """Memory of a worker that it shares with nobody, and of the batches that it may have ready."""


@dataclass
class Seen:
    """All visits with one number of workers."""

    workers: int
    visits: list[Visit] = field(default_factory=list)

    def _of(self, what: str) -> float:
        return float(sum(getattr(visit, what) for visit in self.visits))

    @property
    def batch_s(self) -> float:
        """What a batch takes the loader alone."""
        return self._of("seconds") / self._of("batches")

    @property
    def samples_per_batch(self) -> float:
        return self._of("samples") / self._of("batches")

    @property
    def taking_s(self) -> float:
        """What the main process takes for a batch that lies ready."""
        return self._of("main_cpu_s") / self._of("batches")

    @property
    def is_ahead(self) -> bool:
        """Whether batches lie ready: it is the main process that takes the time."""
        is_taking = self._of("main_cpu_s") >= _TAKING_SHARE * self._of("seconds")
        return self.workers > 0 and (is_taking or self._of("ready_share") >= _READY_SHARE * len(self.visits))

    @property
    def made_s(self) -> float:
        """What whoever makes a batch takes for it; of workers that are ahead, no more than this."""
        return max(1, self.workers) * self.batch_s

    @property
    def core_share(self) -> float:
        """Share of a core that each of those who make batches uses."""
        return self._of("worker_cpu_s") / (max(1, self.workers) * self._of("seconds"))

    @property
    def worker_bytes(self) -> int:
        return max(visit.worker_bytes for visit in self.visits)

    def period_s(self, step_s: float | None) -> float:
        """What the job takes for a batch with a step that leaves the cores alone; None: the loader alone."""
        if step_s is None:
            return self.batch_s
        return step_s + self.batch_s if not self.workers else max(self.batch_s, step_s + self.taking_s)


class Search:
    """Looks for the number of workers with which a loader is the fastest, or keeps a step busy.

    Args:
        visit: Visits a number of workers; None where there is no time for it, or it does not run.
        given: The number that the loader has; visited first.
        cores: What the job has of the cores.
        step_s: What the step takes for a batch that is there; None: the loader alone.
        free_bytes: Memory that is free.
        turns: How often the number that was found is compared with the one that is given; 0: somebody else does.
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
        self._visit, self.given, self._cores = visit, given, max(1, math.ceil(cores))
        self._step_s, self._free_bytes, self._most_turns = step_s, free_bytes, turns
        self.seen: dict[int, Seen] = {}
        self.refused: set[int] = set()
        """Numbers that were worth a visit, and for which there was no time, or which do not run."""
        self._turns: dict[int, Seen] = {}
        """What was visited in turns."""

    def run(self) -> int:
        """Visit until nothing is worth it, or there is no time; return the number of workers to take."""
        if not self._look(self.given):
            return self.given
        while (count := self._next()) is not None:
            if not self._look(count):
                self.refused.add(count)
        found = self._best(self.seen)
        return found if found == self.given else self._compared(found)

    def _look(self, count: int) -> bool:
        visit = self._visit(count)
        if visit is None or not visit.batches:
            return False
        self.seen.setdefault(count, Seen(count)).visits.append(visit)
        return True

    def period_s(self, count: int, seen: Mapping[int, Seen] | None = None) -> float:
        """What the job takes for a batch with these workers."""
        return (self.seen if seen is None else seen)[count].period_s(self._step_s)

    def _best(self, seen: Mapping[int, Seen]) -> int:
        """The number that is given where none is faster, else the fewest workers of those that are alike."""
        enough_s = ALIKE * min(self.period_s(count, seen) for count in seen)
        alike = [count for count in sorted(seen) if self.period_s(count, seen) <= enough_s]
        return self.given if self._step_s is None and self.given in alike else alike[0]

    # --- what is worth a visit -----------------------------------------------------------------------------

    def _next(self) -> int | None:
        best = min(self.seen, key=lambda count: (self.period_s(count), count))
        for count in self._candidates(best):
            if count not in self.seen and count not in self.refused and count >= 0:
                return count
        return None

    def _candidates(self, best: int) -> list[int]:
        """Numbers that may be better than the best one, or as good and smaller, the most promising first."""
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
        if below and best - below > 1 and self._gained(below, best) < _LINEAR * best / below:
            found.append((best + below) // 2)
        if below is None and best > 1 and best * at.core_share > _LINEAR * self._cores:
            found.append(min(best // 2, self._cores))  # they take the cores from each other
        if at.made_s * _CHEAPER < at.batch_s or (self._step_s is not None and at.made_s < self._step_s / 10):
            found.append(0)
        return found

    def _gained(self, fewer: int, more: int) -> float:
        return self.seen[fewer].batch_s / self.seen[more].batch_s

    def _target(self, at: Seen) -> int:
        """As many workers as the cores, the memory and the step have room for."""
        most = math.ceil(self._cores / max(_HARDLY_CORES, at.core_share) - _ROUNDING)
        most = min(max(most, 1), _BEYOND_CORES * self._cores)
        if at.worker_bytes:
            most = min(most, max(self.given, int(_MEMORY_SHARE * self._free_bytes / at.worker_bytes)))
        if self._step_s is not None:
            most = min(most, math.ceil(_MARGIN * at.made_s / self._step_s) if self._step_s else most)
        return max(1, most)

    # --- compared in turns ---------------------------------------------------------------------------------

    def _compared(self, found: int) -> int:
        """The number that was found, if it is no worse than the one that is given, by visits to both in turns."""
        self._turns = {self.given: Seen(self.given), found: Seen(found)}
        for turn in range(self._most_turns):
            order = (found, self.given) if turn % 2 else (self.given, found)
            made = {count: visit for count in order if (visit := self._visit(count)) is not None}
            if len(made) < len(order):
                break
            for count, visit in made.items():
                self._turns[count].visits.append(visit)
            if turn and self._is_settled(found):
                break
        if not self._turns[found].visits:  # no time: by the first visits, with a margin
            is_better = _SURE_TIMES * self.period_s(found) <= self.period_s(self.given)
            return found if is_better or self._is_enough(found) else self.given
        for count, seen in self._turns.items():
            self.seen[count] = seen  # the first visit to what is given has read what the others found in memory
        is_better = ALIKE * self.period_s(found) <= self.period_s(self.given)
        return found if is_better or self._is_enough(found) else self.given

    def _is_settled(self, found: int) -> bool:
        """Whether each visit to the number that was found was faster than each to the one that is given."""
        slowest, fastest = (
            [Seen(count, [visit]).period_s(self._step_s) for visit in self._turns[count].visits]
            for count in (found, self.given)
        )
        return max(slowest) < min(fastest)

    def _is_enough(self, found: int) -> bool:
        """Whether fewer workers keep the step busy, too."""
        return found < self.given and self._is_busy(self.seen[found])

    def _is_busy(self, seen: Seen) -> bool:
        """Whether the step hardly waits with these workers."""
        step_s = self._step_s
        return step_s is not None and seen.period_s(step_s) <= ALIKE * (step_s + seen.taking_s * (seen.workers > 0))

"""Arms in turns, for the ladder and for tune, each measured again if other processes took the cores.

A round visits each arm once, in random order, and the next one in reverse, so that drift cancels.

On a shared host the hypervisor gives the cores to other virtual machines for some seconds, in which a block takes
longer for reasons that say nothing about the job. Such blocks are measured again a little later. The decision is based
on a counter of the kernel (`steal` in /proc/stat, see proc(5)), or the load of other processes, never on the speed of
the block, and compares it with the other blocks of the same arm. Only a process that wants a core can lose it: an arm
that computes on all of them loses more than one that waits for the device, and by one level for all, only the former's
worst blocks would be replaced. If steal is constant, it is a property of the job's machine: measuring again ends as
soon as that shows.
"""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Generic, NamedTuple, TypeVar

import psutil

from bottleneck.measure.ledger import Blocks
from bottleneck.measure.machine.counters import allowed_cpu_times
from bottleneck.measure.machine.limits import allowed_cores
from bottleneck.results.records import Block

A = TypeVar("A", bound=Hashable)

_TICKS_S = 0.03
"""Three ticks of the kernel's clock: less is noise of the counter itself."""
_DISTURBED_SHARE = 0.05
"""Share of stolen time that a quiet machine does not reach: a shared one loses one or two per cent all the time."""
_TIMES_THE_USUAL = 2.0
"""Multiple of the median of its experiment's kept blocks above which a block is unusual."""
_REPEATING_SHARE = 0.25
"""Share of the time since the first block for measuring again."""
_MAX_REPEAT_SHARE = 0.03
"""Share of the time for measuring that one repeated visit may take; in long blocks, episodes average out."""


@dataclass(frozen=True)
class StealTime:
    """Time stolen during a block.

    Attributes:
        seconds: Seconds on all cores together.
        share: Share of the time of the cores that the job's processes could have used.
    """

    seconds: float = 0.0
    share: float = 0.0


def _read_stolen_s() -> float:
    """Return the seconds stolen so far from the CPUs that this process may use; 0 if unknown."""
    try:
        return float(sum(getattr(cpu, "steal", 0.0) for cpu in allowed_cpu_times()))
    except (OSError, psutil.Error):
        return 0.0


class StealTimeMeter:
    """Reads the counter before and after a block.

    Args:
        read_stolen_s: Returns the seconds stolen so far; None for the system's counter.
        cpus: CPUs that this process may use; None for the system's answer.
    """

    def __init__(
        self,
        read_stolen_s: Callable[[], float] | None = None,
        clock: Callable[[], float] = time.perf_counter,
        cpus: int | None = None,
    ) -> None:
        self._read_stolen_s = read_stolen_s or _read_stolen_s
        self._clock = clock
        self._cpus = cpus or allowed_cores()
        self._begun = (0.0, 0.0)

    def begin(self) -> None:
        self._begun = self._clock(), self._read_stolen_s()

    def end(self, processes: int) -> StealTime:
        """Return the time stolen since `begin` from a job with this number of processes."""
        begun_s, stolen_before_s = self._begun
        elapsed_s, stolen_s = self._clock() - begun_s, self._read_stolen_s() - stolen_before_s
        cores = max(1, min(self._cpus, processes))
        return StealTime(stolen_s, stolen_s / (elapsed_s * cores)) if elapsed_s > 0 and stolen_s > 0 else StealTime()


# --- a visit ------------------------------------------------------------------------------------------------


class Visit(NamedTuple):
    """A block, the seconds of switching and warming up before it, and the time stolen in it."""

    block: Block
    preparing_s: float
    stolen: StealTime
    broken: bool = False
    """True if a script's loop ended an epoch, or evaluated, in the block."""
    further: tuple[Block, ...] = ()
    """Blocks of later rounds, if several were measured one after the other."""


# --- rounds of visits ---------------------------------------------------------------------------------------


class OrderOfArms(Generic[A]):
    """Random orders, each followed by its reverse and what has joined since, so that drift within a round cancels."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self._reverse: list[A] = []

    def next_round(self, arms: Sequence[A], last: Sequence[A] = ()) -> list[A]:
        """Return the order of some arms; the last ones of a new order are the first of the next round."""
        turned = self._reverse if set(self._reverse) <= set(arms) else []
        new = [arm for arm in arms if arm not in turned]
        self._random.shuffle(new)
        new.sort(key=last.__contains__)
        self._reverse = [] if turned else new[::-1]
        return turned + new


class RepeatPolicy:
    """Decides on the blocks to measure again."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._begun_s = clock()
        self._kept: dict[Hashable, list[float]] = {}
        self._repeating_s = 0.0
        self.repeated = 0
        """Number of blocks that were measured again."""

    def keep(self, arm: Hashable, stolen: StealTime) -> None:
        self._kept.setdefault(arm, []).append(stolen.share)

    def repeat(self, seconds: float) -> None:
        self.repeated += 1
        self._repeating_s += seconds

    def wanted(self, arm: Hashable, stolen: StealTime) -> bool:
        """Return True if the time stolen during a block is unusual for its experiment and it should be repeated."""
        # Before the experiment has a block, those of others have to suffice.
        kept = self._kept.get(arm) or [share for shares in self._kept.values() for share in shares]
        usual = statistics.median(kept) if kept else 0.0
        return stolen.seconds >= _TICKS_S and stolen.share > max(_DISTURBED_SHARE, _TIMES_THE_USUAL * usual)

    def affordable(self, seconds: float, left_s: float) -> bool:
        """Return True if a visit of these seconds may be repeated, given the time left for all of the measuring."""
        passed_s = self._clock() - self._begun_s
        return (
            seconds <= min(left_s, _MAX_REPEAT_SHARE * (passed_s + left_s))
            and self._repeating_s + seconds <= _REPEATING_SHARE * passed_s
        )

    @property
    def stolen_share(self) -> float:
        """Mean share of stolen time in the kept blocks."""
        return statistics.fmean(chain.from_iterable(self._kept.values())) if self._kept else 0.0


class Turns(Generic[A]):
    """Visits arms in turns, and repeats disturbed visits; the less disturbed block of the two is kept.

    Args:
        clock: Monotonic seconds.
        visit: Measures a block of an arm; a repetition gets the number of batches. Returns None if it has none now.
        left_s: Returns the seconds left for all of the measuring.
    """

    def __init__(
        self, clock: Callable[[], float], visit: Callable[[A, int | None], Visit | None], left_s: Callable[[], float]
    ) -> None:
        self._visit = visit
        self._left_s = left_s
        self._clock = clock
        self.repeats = RepeatPolicy(clock)

    def round(self, arms: Iterable[A], kept: Blocks[A], once: Callable[[A], bool] = lambda _: False) -> None:
        """Add a block of each arm to the kept ones; arms for which `once` is True are never repeated.

        Disturbed visits are repeated at the end of the round, when the disturbance may be over.
        """
        disturbed: list[tuple[A, Visit]] = []
        for arm in arms:
            made = self._visit(arm, None)
            if made is None:
                continue
            kept.add(arm, made.block)
            if self.repeats.wanted(arm, made.stolen) and not once(arm):
                disturbed.append((arm, made))
            else:
                self.repeats.keep(arm, made.stolen)
        for arm, made in disturbed:
            self._measure_again(arm, made, kept)

    def _measure_again(self, arm: A, made: Visit, kept: Blocks[A]) -> None:
        stolen = made.stolen
        if self.repeats.affordable(made.preparing_s + made.block.seconds, self._left_s()):
            begun_s = self._clock()
            again = self._visit(arm, made.block.batches)
            if again is not None:
                self.repeats.repeat(self._clock() - begun_s)
                if not again.broken and again.stolen.share < stolen.share:
                    kept.exchange(arm, made.block, again.block)
                    stolen = again.stolen
        self.repeats.keep(arm, stolen)

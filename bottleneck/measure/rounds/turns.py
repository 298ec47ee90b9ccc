"""Arms in turns, of the ladder and of tune, each measured again where other processes took the cores.

A round visits each arm once, in random order, and the next one in the reverse of it, so that drift cancels.

On a shared host the hypervisor gives the cores to other virtual machines for some seconds, in which a block takes
longer by something that says nothing about the job. Such blocks are measured again a little later. What decides is a
counter of the kernel (`steal` in /proc/stat, see proc(5)), or the load of other processes, never the speed of the
block, and it is compared with that of the other blocks of the same arm. Only who wants a core can lose it: an arm that
computes on all of them loses more than one that waits for the device, and by one level for all only the former's worst
blocks would be exchanged. Where all of the time is like that, it is the machine that the job has: measuring again ends
as soon as that shows.
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
"""What a quiet machine does not reach: one that is shared loses one or two per cent all the time."""
_TIMES_THE_USUAL = 2.0
"""Times the median of the blocks of its experiment that were kept, from which on a block is out of the ordinary."""
_REPEATING_SHARE = 0.25
"""Share of the time since the first block that may go into measuring again."""
_MAX_REPEAT_SHARE = 0.03
"""Share of the time for measuring that one repeated visit may take; in long blocks episodes average out."""


@dataclass(frozen=True)
class StealTime:
    """Time that was stolen during a block.

    Attributes:
        seconds: On all cores together.
        share: Of the time of the cores that the job's processes could have used.
    """

    seconds: float = 0.0
    share: float = 0.0


def _read_stolen_s() -> float:
    """Seconds stolen so far from the CPUs that this process may use; 0 where that is unknown."""
    try:
        return float(sum(getattr(cpu, "steal", 0.0) for cpu in allowed_cpu_times()))
    except (OSError, psutil.Error):
        return 0.0


class StealTimeMeter:
    """Reads the counter before and after a block.

    Args:
        read_stolen_s: Seconds stolen so far; None: what the system says.
        cpus: CPUs that this process may use; None: as the system says.
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
        """Return what was stolen since `begin` from a job with this number of processes."""
        begun_s, stolen_before_s = self._begun
        elapsed_s, stolen_s = self._clock() - begun_s, self._read_stolen_s() - stolen_before_s
        cores = max(1, min(self._cpus, processes))
        return StealTime(stolen_s, stolen_s / (elapsed_s * cores)) if elapsed_s > 0 and stolen_s > 0 else StealTime()


# --- a visit ------------------------------------------------------------------------------------------------


class Visit(NamedTuple):
    """A block, the seconds of switching and warming up before it, and what others took of the cores."""

    block: Block
    preparing_s: float
    stolen: StealTime
    broken: bool = False
    """A script's loop ended an epoch, or evaluated, in the block."""
    further: tuple[Block, ...] = ()
    """Those of later rounds, where several were measured one after the other."""


# --- rounds of visits ---------------------------------------------------------------------------------------


class OrderOfArms(Generic[A]):
    """Random orders, each followed by its reverse and what has joined since, so that drift within a round cancels."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self._reverse: list[A] = []

    def next_round(self, arms: Sequence[A], last: Sequence[A] = ()) -> list[A]:
        """The order of some arms; of a new one, what comes last is what the next round begins with."""
        turned = self._reverse if set(self._reverse) <= set(arms) else []
        new = [arm for arm in arms if arm not in turned]
        self._random.shuffle(new)
        new.sort(key=last.__contains__)
        self._reverse = [] if turned else new[::-1]
        return turned + new


class RepeatPolicy:
    """Decides which blocks are measured again."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._begun_s = clock()
        self._kept: dict[Hashable, list[float]] = {}
        self._repeating_s = 0.0
        self.repeated = 0
        """Blocks that were measured again."""

    def keep(self, arm: Hashable, stolen: StealTime) -> None:
        self._kept.setdefault(arm, []).append(stolen.share)

    def repeat(self, seconds: float) -> None:
        self.repeated += 1
        self._repeating_s += seconds

    def wanted(self, arm: Hashable, stolen: StealTime) -> bool:
        """Whether so much was stolen during a block, compared with others of its experiment, that it is made again."""
        # Before there is a block of its own, those of the others have to do.
        kept = self._kept.get(arm) or [share for shares in self._kept.values() for share in shares]
        usual = statistics.median(kept) if kept else 0.0
        return stolen.seconds >= _TICKS_S and stolen.share > max(_DISTURBED_SHARE, _TIMES_THE_USUAL * usual)

    def affordable(self, seconds: float, left_s: float) -> bool:
        """Whether a visit that takes so long may be made again, with so much time left for all of the measuring."""
        passed_s = self._clock() - self._begun_s
        return (
            seconds <= min(left_s, _MAX_REPEAT_SHARE * (passed_s + left_s))
            and self._repeating_s + seconds <= _REPEATING_SHARE * passed_s
        )

    @property
    def stolen_share(self) -> float:
        """Mean share of the blocks that were kept."""
        return statistics.fmean(chain.from_iterable(self._kept.values())) if self._kept else 0.0


class Turns(Generic[A]):
    """Visits arms in turns, and once more those that were disturbed; the less disturbed block of the two is kept.

    Args:
        clock: Seconds from any beginning.
        visit: Measures a block of an arm; a repetition gets the number of batches. None: it has none now.
        left_s: Time left for all of the measuring.
    """

    def __init__(
        self, clock: Callable[[], float], visit: Callable[[A, int | None], Visit | None], left_s: Callable[[], float]
    ) -> None:
        self._visit = visit
        self._left_s = left_s
        self._clock = clock
        self.repeats = RepeatPolicy(clock)

    def round(self, arms: Iterable[A], kept: Blocks[A], once: Callable[[A], bool] = lambda _: False) -> None:
        """Add a block of each arm to those that are kept; of some arms none is measured again.

        What was disturbed is measured again at the end of the round, when that may be over.
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

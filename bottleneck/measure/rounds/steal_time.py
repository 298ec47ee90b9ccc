"""Time that the hypervisor gave to other virtual machines while this one wanted it, and what to do about it.

On a shared host that happens in episodes of some seconds, in which a block takes longer by something that says nothing
about the job. Such blocks are measured again a little later. What decides about it is a counter of the kernel's
(`steal` in /proc/stat, see proc(5)), never the speed of the block, and the counter is compared with that of the other
blocks of the same experiment. Only who wants a core can lose it: an experiment that computes on all of them loses more
than one that waits for the device, and by one level for all only the former's worst blocks would be exchanged.
Where all of the time is like that, it is the machine that the job has: measuring again ends as soon as that shows.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from itertools import chain

import psutil

from bottleneck.measure.ladder import Arm
from bottleneck.measure.system.cores import allowed_cores
from bottleneck.measure.system.cpu_times import allowed_cpu_times

_TICKS_S = 0.03
"""Three ticks of the kernel's clock: less is noise of the counter itself."""
_DISTURBED_SHARE = 0.05
"""What a quiet machine does not reach: one that is shared loses one or two per cent all the time."""
_TIMES_THE_USUAL = 2.0
"""Times the median of the blocks of its experiment that were kept, from which on a block is out of the ordinary."""
_REPEATING_SHARE = 0.25
"""Share of the time since the first block that may go into measuring again."""
_LONGEST_REPEAT_SHARE = 0.03
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
        self._read_stolen_s, self._clock = read_stolen_s or _read_stolen_s, clock
        self._cpus = cpus or allowed_cores()
        self._begun = (0.0, 0.0)

    def begin(self) -> None:
        self._begun = self._clock(), self._read_stolen_s()

    def end(self, processes: int) -> StealTime:
        """Return what was stolen since `begin` from a job of so many processes."""
        begun_s, stolen_before_s = self._begun
        elapsed_s, stolen_s = self._clock() - begun_s, self._read_stolen_s() - stolen_before_s
        cores = max(1, min(self._cpus, processes))
        return StealTime(stolen_s, stolen_s / (elapsed_s * cores)) if elapsed_s > 0 and stolen_s > 0 else StealTime()


class RepeatPolicy:
    """Decides which blocks are measured again."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock, self._begun_s = clock, clock()
        self._kept: dict[Arm, list[float]] = {}
        self._repeating_s = 0.0
        self.repeated = 0
        """Blocks that were measured again."""

    def keep(self, arm: Arm, stolen: StealTime) -> None:
        self._kept.setdefault(arm, []).append(stolen.share)

    def repeat(self, seconds: float) -> None:
        self.repeated += 1
        self._repeating_s += seconds

    def wanted(self, arm: Arm, stolen: StealTime) -> bool:
        """Whether so much was stolen during a block, compared with others of its experiment, that it is made again."""
        # Before there is a block of its own, those of the others have to do.
        kept = self._kept.get(arm) or [share for shares in self._kept.values() for share in shares]
        usual = statistics.median(kept) if kept else 0.0
        return stolen.seconds >= _TICKS_S and stolen.share > max(_DISTURBED_SHARE, _TIMES_THE_USUAL * usual)

    def affordable(self, seconds: float, left_s: float) -> bool:
        """Whether a visit that takes so long may be made again, with so much time left for all of the measuring."""
        passed_s = self._clock() - self._begun_s
        return (
            seconds <= min(left_s, _LONGEST_REPEAT_SHARE * (passed_s + left_s))
            and self._repeating_s + seconds <= _REPEATING_SHARE * passed_s
        )

    @property
    def stolen_share(self) -> float:
        """Mean share of the blocks that were kept."""
        return statistics.fmean(chain.from_iterable(self._kept.values())) if self._kept else 0.0

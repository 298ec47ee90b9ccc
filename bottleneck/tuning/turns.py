"""Blocks of several lanes in turns, measured again where other processes took the cores."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from bottleneck.measure.rounds.steal_time import RepeatPolicy, StealTime
from bottleneck.measure.system.cores import usable_cores
from bottleneck.measure.system.environment import OtherLoad
from bottleneck.results.records import Block
from bottleneck.tuning.lane import RAW, Lane

_OTHERS_MATTER = 0.1
"""Share of the cores that others take, from which on it is told."""


class Turns:
    """Measures a block of each lane, one directly after the other.

    Args:
        clock: Seconds from any beginning.
        others: Reads what other processes take of the cores.
    """

    def __init__(self, clock: Callable[[], float], others: OtherLoad | None = None) -> None:
        self._clock, self._others, self._repeats = clock, others or OtherLoad(), RepeatPolicy(clock)
        self.cores = usable_cores()
        self.running: Lane | None = None
        """The lane whose turn it is, or which failed in it."""

    def measure(self, lanes: Sequence[Lane], number: int, left_s: float) -> list[Block]:
        """A block of each lane; all of them again where others took far more of the cores than they usually do.

        Every second time the last lane comes first, so that a drift of the machine cancels.
        """
        forth = -1 if number % 2 else 1
        while True:
            began_s = self._clock()
            self._others.start()
            blocks = [self._block(lane, number) for lane in lanes[::forth]][::forth]
            seconds, cores = self._clock() - began_s, self._others.stop()
            taken = StealTime(cores * seconds, cores / self.cores)
            if not (self._repeats.wanted(RAW, taken) and self._repeats.affordable(seconds, left_s)):
                self._repeats.keep(RAW, taken)
                return blocks
            self._repeats.repeat(seconds)

    def _block(self, lane: Lane, number: int) -> Block:
        self.running = lane
        block = lane.block(number)
        self.running = None
        return block

    @property
    def repeated(self) -> int:
        """How many blocks were measured again."""
        return self._repeats.repeated

    def warnings(self) -> Iterator[tuple[str, str]]:
        """Yield (id, message) where others took much of the cores while blocks were measured."""
        share = self._repeats.stolen_share
        if share > _OTHERS_MATTER:
            yield (
                "other-load",
                f"Other processes, or virtual machines, kept {share * self.cores:.1f} cores busy while blocks were "
                "measured, so that small gains could not be told. Stop them, or tune again when they are done.",
            )

"""One tuning across all ranks of a job: all do the same at the same time, because all decide by the same numbers.

Every rank runs the whole tuning. Anything that may differ between ranks is shared before it decides something: time,
blocks, proposals, failures.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import msgspec

from bottleneck.errors import BottleneckError, MeasurementError
from bottleneck.measure.explain_errors import one_line
from bottleneck.measure.machine.environment import ProcessTimes, read_process_times
from bottleneck.measure.machine.limits import allowed_cpus
from bottleneck.measure.ranks.group import ALONE, World
from bottleneck.results.json import from_json, to_json
from bottleneck.results.records import Block, Result

if TYPE_CHECKING:
    from bottleneck.tuner.lane import Lane

_SHOWN = ("first_batch_s", "setup_s", "bare_step_s", "step_s", "waiting_share")
"""Statistics of a lane of which the largest of any rank counts, because the others wait for that rank."""


class Ranks:
    """Ranks of a job, seen from one of them; all ranks call the same methods in the same order.

    Args:
        group: Means of exchange.
        clock: Returns seconds from any origin.
    """

    def __init__(self, group: World = ALONE, clock: Callable[[], float] = time.perf_counter) -> None:
        self.group = group
        self._clock = clock
        self._began_s = clock()
        self._now_s = 0.0
        self._is_shared = False
        """True once this rank's failure or success in starting a lane was shared."""
        self.in_step = False
        """True during steps that ranks make together; a failure in them is not reported to the others."""

    def clock(self) -> float:
        """Return seconds from any origin; with several ranks, the time of rank 0 at their last exchange."""
        return self._clock() if self.group.is_alone else self._now_s

    def join(self) -> None:
        """Wait until all ranks are here."""
        self.group.join()
        self.share()

    def part(self) -> None:
        """Wait until all ranks are done; a rank that ends after that has not failed."""
        self.group.part()

    def share(self, value: Any = None) -> list[Any]:
        """Return the values of all ranks, in their order.

        Raises:
            MeasurementError: A rank has failed.
            KeyboardInterrupt: A rank was interrupted.
        """
        shared = self.group.share((self._clock() - self._began_s, value))
        self._now_s = shared[0][0]
        return [each for _, each in shared]

    def most(self, value: float) -> Any:
        """Return the largest value of any rank."""
        return max(self.share(value))

    def cores(self, usable: float) -> float:
        """Return the cores per rank of the rank with the fewest, if ranks with the same CPUs share them equally."""
        shared = self.share((self.group.host, usable, allowed_cpus() or ()))
        of_each = (
            have / max(1, sum(other == host and not set(its).isdisjoint(cpus) for other, _, its in shared))
            for host, have, cpus in shared
        )
        return float(min(of_each))

    def process_times(self) -> ProcessTimes:
        """Return the CPU time of all ranks of this host, none of which counts as other load."""
        return read_process_times([pid for host, pid in self.group.members.values() if host == self.group.host])

    # --- decisions -----------------------------------------------------------------------------------------

    def objection(self, why: str | None, proposed: str | None) -> str | None:
        """Return why a change is not tried: some rank has a reason, or not all propose the same; None if it is."""
        shared = self.share((why, proposed))
        for rank, (reason, _) in enumerate(shared):
            if reason is not None:
                return f"on rank {rank}, {reason}" if rank else str(reason)
        if all(each == proposed for _, each in shared):
            return None
        return (
            f"ranks would not try the same: {', '.join(f'{each} on rank {at}' for at, (_, each) in enumerate(shared))}"
        )

    def diagnosis(self, own: Result) -> Result:
        """Return the diagnosis of the job, which is that of rank 0."""
        if self.group.is_alone:
            return own
        text = self.group.agree(to_json(own) if self.group.leads else "")
        return own if self.group.leads else from_json(text)

    # --- lanes ---------------------------------------------------------------------------------------------

    def start(self, start: Callable[[], Lane]) -> Lane:
        """Start a lane, on all ranks or on none.

        Raises:
            Exception: It does not start on this rank.
            MeasurementError: It does not start on another rank.
        """
        self._is_shared = self.in_step = False
        try:
            lane = start()
        except (Exception, SystemExit) as error:
            if not self._is_shared:
                self._tell((error.message if isinstance(error, BottleneckError) else one_line(error), None))
            raise
        self._show(lane)
        self.in_step = False
        return lane

    def begin_steps(self, batches: int | None = None) -> None:
        """Let all ranks make the first steps of a lane together, once each has loaded their batches.

        Args:
            batches: Length of an epoch, which must be equal on all ranks.

        Raises:
            MeasurementError: Lengths differ, or a rank failed.
        """
        for rank, (failure, length) in enumerate(self._tell((None, batches))):
            if failure is not None:
                raise MeasurementError(f"On rank {rank}: {failure}")
            if length != batches:
                raise MeasurementError(f"Ranks have epochs of {batches} and {length} batches")
        self.in_step = not self.group.is_alone

    def _tell(self, said: Any) -> list[Any]:
        self._is_shared = True
        return self.share(said)

    def block(self, lane: Lane, number: int) -> Block:
        """Measure a block on all ranks at the same time; its duration is that of the slowest rank."""
        self.in_step = not self.group.is_alone
        block = lane.block(number)
        blocks = self._show(lane, block)
        self.in_step = False
        return block if self.group.is_alone else replace(blocks[0], seconds=max(each.seconds for each in blocks))

    def _show(self, lane: Lane, block: Block | None = None) -> list[Block]:
        """Give a lane the same statistics on all ranks; return the block of each."""
        if self.group.is_alone:
            return []
        shared = self.share(([getattr(lane, name) for name in _SHOWN], lane.loss_is_finite, block))
        for name, values in zip(_SHOWN, zip(*(shown for shown, _, _ in shared), strict=True), strict=True):
            setattr(lane, name, max(values))
        lane.loss_is_finite = all(is_finite for _, is_finite, _ in shared)
        return [msgspec.convert(each, Block) for _, _, each in shared if each is not None]

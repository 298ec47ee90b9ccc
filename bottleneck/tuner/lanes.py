"""The open lanes of a tuning: opened on request, measured in turns, closed when others are kept."""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace

from bottleneck.job.pipeline import Pipeline
from bottleneck.measure.ledger import Blocks
from bottleneck.measure.machine.environment import OtherLoad
from bottleneck.measure.machine.limits import usable_cores
from bottleneck.measure.rounds.turns import OrderOfArms, StealTime, Turns, Visit
from bottleneck.results.records import Block
from bottleneck.tuner.change import Settings, build
from bottleneck.tuner.lane import Clock, Lane, OpenLane
from bottleneck.tuner.ranks import Ranks

_FIRST_VISITS = 2
"""Visits to the original job that show the duration of one; the first also determines the length of a block."""
_LONG_VISIT_S = 3.0
"""Duration of a first visit above which a second one would show nothing more."""


class Lanes:
    """The open lanes of a job: opens them on request, closes them when others are kept, measures them in turns.

    Args:
        given: The original job.
        opener: Starts a variant of the job.
        budget_s: Time of the whole tuning, which limits the start of a lane.
        clock: Returns seconds from any origin.
        left_s: Returns the time left for all blocks.
        others: Reads the cores that other processes use.
        ranks: Ranks of the job.
    """

    def __init__(
        self,
        given: Pipeline,
        opener: OpenLane,
        budget_s: float,
        clock: Clock = time.perf_counter,
        left_s: Callable[[], float] = lambda: math.inf,
        others: OtherLoad | None = None,
        ranks: Ranks | None = None,
    ) -> None:
        self.given = given
        self._open = opener
        self._budget_s = budget_s
        self._clock = clock
        self._ranks = ranks or Ranks()
        self._others = others or OtherLoad(read_process_times=self._ranks.process_times)
        self.cores = usable_cores()
        self._order = OrderOfArms[Settings](seed=0)
        self._turns = Turns(clock, self._visit, left_s)
        self._in_turns: dict[Settings, Lane] = {}
        self._round = 0
        self._whole_epochs = False
        self._start_s: dict[tuple[Settings, bool], float] = {}
        self._visit_s: dict[tuple[Settings, bool], float] = {}
        """Seconds of the last visit to a lane, with its switch and its warm-up."""
        self.running: Lane | None = None
        """The lane that is being measured, or which failed while it was."""
        self._lanes: dict[tuple[Settings, bool], Lane] = {}
        self.shown: dict[Settings, Lane] = {}
        """Lanes with the statistics of each variant that has run, be they closed."""
        self.setup_s: dict[Settings, float] = {}
        """Values of the first time that a variant ran: compiled code is compiled once per process."""
        self.peak_bytes: dict[Settings, int | None] = {}
        """Peak device memory of the last block; None on a CPU."""

    def open(self, settings: Settings, *, whole_epochs: bool) -> Lane:
        """Return the lane of these settings, started if necessary.

        Raises:
            Exception: The variant does not run, for any reason.
        """
        key = (settings, whole_epochs)
        if key not in self._lanes:
            began_s = self._clock()
            self._lanes[key] = self._ranks.start(
                lambda: self._open(build(self.given, settings), self._budget_s, whole_epochs=whole_epochs)
            )
            self._start_s[key] = self._clock() - began_s
            self.setup_s.setdefault(settings, self._lanes[key].setup_s)
        return self._lanes[key]

    def keep(self, *kept: Settings, whole_epochs: bool = False) -> None:
        """Close all lanes except those of some settings."""
        with ExitStack() as closing:  # closes all, even if one fails
            for key in [key for key in self._lanes if key[0] not in kept or key[1] is not whole_epochs]:
                closing.callback(self._lanes.pop(key).close)

    def stats(self, settings: Settings) -> Lane:
        """Return the lane measured for these settings; the original job's if that failed."""
        return self.shown.get(settings, self.shown[()])

    # --- cost of blocks ------------------------------------------------------------------------------------

    def open_given(self) -> None:
        """Open the original job, and measure the duration of a visit to it."""
        lane = self.shown[()] = self.open((), whole_epochs=False)
        for number in range(_FIRST_VISITS):
            began_s = self._clock()
            self._ranks.block(lane, 0)
            self._visit_s[(), False] = self._clock() - began_s
            if number == 0 and self._visit_s[(), False] > _LONG_VISIT_S:
                break

    def start_s(self, settings: Settings, *, whole_epochs: bool = False) -> float:
        """Return the seconds for opening a lane: as the last time, otherwise as for the original job."""
        return self._start_s.get((settings, whole_epochs), self._start_s[(), False])

    def visit_s(self, settings: Settings, epoch_s: float | None = None) -> float:
        """Return the seconds of a visit to a lane: as the last time, otherwise as for the original job.

        Args:
            settings: The lane.
            epoch_s: Duration of an epoch if whole ones are measured.
        """
        known = self._visit_s.get((settings, epoch_s is not None))
        return known if known is not None else self._visit_s[(), False] if epoch_s is None else epoch_s

    # --- blocks in turns -----------------------------------------------------------------------------------

    def in_turns(
        self, *settings: Settings, whole_epochs: bool, known: Sequence[Sequence[Block]] = ()
    ) -> Iterator[tuple[list[Block], ...]]:
        """Yield all blocks so far of the lanes of these settings, after each round.

        Args:
            settings: The lanes.
            whole_epochs: True if each block is an epoch.
            known: Blocks of earlier rounds, equally many for each lane.

        Raises:
            Exception: A variant does not run, for any reason.
        """
        self._in_turns = {each: self.open(each, whole_epochs=whole_epochs) for each in settings}
        self._whole_epochs = whole_epochs
        kept: Blocks[Settings] = Blocks()
        for each, blocks in zip(settings, known, strict=False):
            for number, block in enumerate(blocks, 1):
                kept.add(each, replace(block, round=number))
        for self._round in itertools.count(1 + len(known[0] if known else ())):
            self._turns.round(self._order.next_round(settings), kept)
            yield tuple(kept.blocks[each] for each in settings)

    def _visit(self, settings: Settings, _: int | None) -> Visit:
        self.running = lane = self._in_turns[settings]
        began_s = self._clock()
        self._others.start()
        block = self._ranks.block(lane, self._round)
        cores = self._ranks.most(self._others.stop())
        seconds = self._visit_s[settings, self._whole_epochs] = self._clock() - began_s
        self.running = None
        self.peak_bytes[settings] = lane.peak_device_bytes
        return Visit(block, seconds - block.seconds, StealTime(cores * seconds, cores / self.cores))

    @property
    def others_cores(self) -> float:
        """Cores that other processes kept busy in blocks that count."""
        return self._turns.repeats.stolen_share * self.cores

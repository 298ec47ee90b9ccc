"""The steady state of a loader that has just been switched: the level of its queue, and workers out of phase.

After a switch the queue is empty and all workers begin at the same time. In the long run neither holds: the queue of a
loader that keeps up is nearly full, that of a slower one nearly empty, and near the balance of the two its level
drifts. A block is shorter than that takes, so that its first level would decide its result: with eight uneven workers,
14 % of lost throughput is measured as 1 % from a full queue, and none as 10 % from an empty one.

So the visits to an experiment are made one long run: each begins at the level at which the last one ended, runs for a
turn of the workers before the clock starts, and ends at the level it began with, or after four queues. If the loader is
clearly slower, it ends after whole turns of the workers as well: of two turns of three workers, a block from the first
batch of a burst to the last one would seem a third faster. The first visit begins at a guess, which matters less and
less.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable

from bottleneck.loader.switched import SwitchedLoader

_KEEPS_UP_SHARE = 0.03
"""Share of the time lost to waiting below which the loader keeps up: the margin of the ladder."""
_CLEARLY_FASTER = 0.8
"""A worker's first batch over the job's time for one batch of each worker, below which no look is needed."""
_CLEARLY_SLOWER = 1.3
"""The same ratio above which no look is needed."""
_MAX_TURN_S = 5.0
"""Seconds of a turn of the workers above which it is neither watched nor waited for."""
_LONG_TURN_S = 2.5
"""The same for a loader that is clearly slower, whose level is not restored either: its queue is empty after the first
batch already, and a block ends after whole turns or at the level it began with."""
_SLOW_BATCH_S = 0.25
_MIN_LOOKS = 3
_LOOK_EVERY_S = 2e-3
PATIENCE_S = 0.5
"""Seconds without a batch, or twice the first one's time, after which the queue no longer fills."""
_LONG_S = 5.0
"""Seconds after which a block need not wait for the queue to regain its level."""
_MAX_QUEUES = 4
"""Length of a block, in queues, at which it ends at any level."""


def looks(turn: int) -> int:
    """Return the batches after which it shows if a loader keeps up, from workers that began together."""
    return turn - 1 + max(_MIN_LOOKS, turn)


def is_clearly_slower(batch_s: float, workers: int, step_s: float | None) -> bool:
    """Return True if workers with these seconds per batch are clearly slower than the train step; False if unknown."""
    return step_s is not None and batch_s >= _CLEARLY_SLOWER * workers * step_s


class SteadyState:
    """Brings the loader's queue to its long-run level, experiment by experiment.

    Args:
        loader: The loader.
        clock: Monotonic seconds.
        pause: Waits for a number of seconds, by the clock.
        steps_ahead: Steps that the host launches ahead of its device; within a block, so many batches have been taken
            that the device has not begun.
    """

    def __init__(
        self,
        loader: SwitchedLoader,
        clock: Callable[[], float],
        pause: Callable[[float], None],
        steps_ahead: int = 0,
    ) -> None:
        self._loader = loader
        self._clock = clock
        self._pause = pause
        self._steps_ahead = steps_ahead
        self._levels: dict[Hashable, int] = {}
        self._began_at: int | None = None
        self._polled_at: int | None = None
        self._starves = False
        self.has_slow_batches = False
        """True if batches are so slow that work done before a block is a negligible part of one."""

    def reach(self, experiment: Hashable, run: Callable[[], float], step_s: float | None) -> None:
        """Run an experiment, right after the switch to it, until it is in its long-run state.

        Args:
            run: Runs a batch through the job and returns the wait for it [s].
            step_s: Seconds of the job per batch that is already on the device; None if unknown.
        """
        first_s = run()
        turn = max(1, self._loader.num_workers)
        self._starves = is_clearly_slower(first_s, self._loader.num_workers, step_s)
        self.has_slow_batches = self._starves and first_s > _SLOW_BATCH_S
        if not self._loader.num_workers:
            if self._loader.works_ahead:
                # Take the batches that were made while the job stood still; their number is unknown.
                self._run_for(run, math.inf, PATIENCE_S)
            return
        if self._loader.arrived() is None:  # a queue that cannot be looked into
            self._run_for(run, 2 * turn)
            return
        if first_s > _LONG_TURN_S and is_clearly_slower(first_s, self._loader.num_workers, step_s):
            return
        level = self._levels.get(experiment)
        if level is None:
            level = self._guess(run, first_s, step_s)
        self.fill(level, max(PATIENCE_S, 2 * first_s))
        self.drain(level)
        # Workers that all began at the same time run for a turn. If all their batches have arrived, they are idle until
        # they are asked one after the other.
        self._run_for(run, 1 if level >= self._loader.queue_length - 1 else turn)

    def _run_for(self, run: Callable[[], float], batches: float, longest_s: float = _MAX_TURN_S) -> None:
        started_s, done = self._clock(), 0
        while done < batches and self._clock() - started_s <= longest_s:
            run()
            done += 1

    def come_to_block(self) -> None:
        """Note the level at which a block may end; called before waiting for the device, as `may_end` is.

        A loader continues while a device finishes its last step, so that the level is higher afterwards.
        """
        self._polled_at = self._loader.arrived()

    def begin_block(self) -> int | None:
        """Return the level at which a block begins, in batches that have arrived; None if unknown.

        Called when the device is idle, as `end_block` is: production between the two belongs to the block.
        """
        self._began_at = self._loader.arrived()
        return self._began_at

    def may_end(self, batches: int, seconds: float) -> bool:
        """Return True if a block that is long enough may end after these batches."""
        if not self._loader.num_workers or batches >= _MAX_QUEUES * self._loader.queue_length:
            return True
        whole_turn = batches % self._loader.num_workers == 0
        if self._polled_at is None:
            return whole_turn
        # A slow loader may take minutes to regain a level; whole turns of its workers have to suffice then.
        if whole_turn and seconds > _LONG_S:
            return True
        arrived = self._loader.arrived() or 0
        if self._steps_ahead and not self._starves and arrived >= self._loader.num_workers:
            # The level was polled right after a step that had been waited for. The device limits this block, so batches
            # that the host has taken ahead of it cost nothing.
            return arrived >= self._polled_at - self._steps_ahead
        # Workers that the job waits for deliver a turn in a burst, within which the level repeats.
        return arrived == self._polled_at and (whole_turn or not self._starves)

    def end_block(self, experiment: Hashable) -> int | None:
        """Note the level at which a block ended, for the next visit to its experiment, and return it."""
        level = self._loader.arrived() if self._began_at is not None else None
        if level is not None:
            self._levels[experiment] = level
        return level

    def level(self, experiment: Hashable) -> int | None:
        """Return the level at which the last visit to an experiment ended; None before the first."""
        return self._levels.get(experiment)

    def begin_like(self, other: SteadyState) -> None:
        """Begin the first visits at the levels at which those of another run ended."""
        self._levels = dict(other._levels)

    def _guess(self, run: Callable[[], float], first_s: float, step_s: float | None) -> int:
        """Return the level for the beginning of the first visit: nearly full for a loader that keeps up."""
        turn, full = self._loader.num_workers, self._loader.queue_length
        # The first batch of a turn that has arrived as one has been taken.
        nearly_full = max(full - turn - 1, full // 2, 1)
        if step_s is not None and turn > 1:
            slow = turn * step_s > _MAX_TURN_S
            if first_s <= (1.0 if slow else _CLEARLY_FASTER) * turn * step_s:
                return nearly_full
            if slow or is_clearly_slower(first_s, self._loader.num_workers, step_s):
                return 0
        return self.look(run, turn)

    def look(self, run: Callable[[], float], turn: int) -> int:
        """Run for `looks(turn)` batches, and return the level for the beginning of a first visit, by their waits."""
        full = self._loader.queue_length
        nearly_full = max(full - turn - 1, full // 2, 1)
        for _ in range(turn - 1):
            run()
        started_s, lost_s, price_s = self._clock(), [], float("inf")
        for _ in range(looks(turn) - (turn - 1)):
            lies_ready = self._loader.next_has_arrived()
            wait_s = run()
            if lies_ready:
                price_s = min(price_s, wait_s)
            else:
                lost_s.append(wait_s)
        taken_s = self._clock() - started_s
        # Taking a batch costs a little even if it is ready.
        price_s = 0.0 if price_s == float("inf") else price_s
        lost = sum(max(0.0, wait_s - price_s) for wait_s in lost_s)
        return nearly_full if lost <= _KEEPS_UP_SHARE * taken_s else self._arrived()

    def _arrived(self) -> int:
        return self._loader.arrived() or 0

    def fill(self, level: int, patience_s: float) -> None:
        """Let the loader get ahead to a level."""
        arrived = self._arrived()
        until_s = self._clock() + patience_s
        while arrived < level and self._clock() < until_s and not self._loader.is_ahead():
            self._pause(_LOOK_EVERY_S)
            now = self._arrived()
            if now > arrived:
                until_s = self._clock() + patience_s
            arrived = now

    def drain(self, level: int) -> None:
        """Take the batches above a level from the queue."""
        # Not until the level is reached: a fast loader fills its queue as fast as it is emptied.
        for _ in range(self._arrived() - level):
            self._loader.next_batch()

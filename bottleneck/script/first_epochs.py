"""The real epochs before the measurement, and the script's work between two of them.

Most scripts evaluate, save and plot after the loop over their batches has ended, and a loop that is fed sees no end. So
short first epochs run to their end if another one certainly follows: then the script works on its own weights, as in
any run.
"""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable
from types import FrameType
from typing import TYPE_CHECKING, Any

from bottleneck.job.users_code import is_ours, is_users, shown_path
from bottleneck.loader.observing.lines import LineSampler, line_within
from bottleneck.loader.observing.meter import Spent
from bottleneck.loader.observing.observation import Line
from bottleneck.measure.evidence.stages import costliest_lines
from bottleneck.measure.evidence.waits import batches_of_epoch
from bottleneck.measure.options import Loop
from bottleneck.results.evidence import BetweenEpochs, LineSeen
from bottleneck.script.around import Around, Place, Within, common_frame, every, find_around, frames_of_script
from bottleneck.script.elsewhere import Elsewhere
from bottleneck.script.seen import Saved

if TYPE_CHECKING:
    from torch.utils.data import DataLoader

    from bottleneck.script.iterators import WatchedIterator

EVALUATING, BETWEEN = "evaluating", "between"
"""Parts of a loop for lines between two epochs."""
_MAX_ENDS = 3
"""Maximum ends of epochs to wait for. The first may start workers and load code: it counts only if it is alone."""


class FirstEpochs:
    """Observer of the first epochs, which decides if the measurement waits for one to end, and notes what follows.

    Args:
        steps: Returns the number of optimizer steps so far.
        limit_s: Maximum wait for all ends together; 0: none.
        clock: Monotonic time in seconds.
        sampler: Samples the lines of the calling thread.
    """

    def __init__(
        self,
        steps: Callable[[], int],
        limit_s: float = 0.0,
        clock: Callable[[], float] = time.perf_counter,
        sampler: Callable[[Callable[[FrameType, Spent], None]], Any] = LineSampler,
    ) -> None:
        self._steps, self._clock, self._make_sampler = steps, clock, sampler
        self.limit_s = limit_s
        self.within: Within | None = None
        """Beginning of the training, if that is not the beginning of the process."""
        self.spent_s = 0.0
        """Seconds for which the measurement has waited for ends of epochs."""
        self._since_s: float | None = None
        self._is_over = False
        self._waits_for: WatchedIterator | None = None
        self._around: Around | None = None
        self._epoch_s = 0.0
        """Seconds from the beginning of the last epoch to that of the next."""
        self._end: _End | None = None
        self._seen: list[_End] = []
        self._elsewhere = self._fresh()

    # --- the decision to wait ------------------------------------------------------------------------------

    def waits(self, giver: WatchedIterator) -> bool:
        """Return True if the measurement, which could begin, waits for the end of an epoch."""
        if self._is_over:
            return False
        now_s = self._clock()
        self._since_s = now_s if self._since_s is None else self._since_s
        if self._waits_for is not giver:
            self._around = find_around(sys._getframe(1), self.within)
        goes_on = self._around is not None and self._around.goes_on
        may_wait = goes_on and len(self._seen) < _MAX_ENDS
        left_s = self._left_s(giver, now_s) if may_wait else None
        self.spent_s = now_s - self._since_s
        self._waits_for = giver if left_s is not None and self.spent_s + left_s <= self.limit_s else None
        self._is_over = self._waits_for is None
        return not self._is_over

    def is_last(self, giver: WatchedIterator) -> bool:
        """Return True if the epoch that was waited for turns out to be the last."""
        if self._waits_for is not giver:
            return False
        self._around = find_around(sys._getframe(1), self.within)
        return self._around is None or not self._around.goes_on

    def _left_s(self, giver: WatchedIterator, now_s: float) -> float | None:
        """Return the rest of the epoch [s], at its pace since its second batch; None if unknown."""
        batches = None if giver.loader is None else batches_of_epoch(giver.loader)
        if batches is None or giver.second_s is None or giver.given_in_pass < 2:
            return self._epoch_s if self._seen else None
        return (batches - giver.given_in_pass) * (now_s - giver.second_s) / (giver.given_in_pass - 1)

    # --- the time between two epochs -----------------------------------------------------------------------

    @property
    def elsewhere(self) -> Elsewhere | None:
        """Record of the passes over loaders between two epochs; None within an epoch."""
        return None if self._end is None else self._elsewhere

    def ends(self, giver: WatchedIterator) -> None:
        """Note that a pass which gave training batches has ended."""
        self._waits_for = None
        if len(self._seen) == 1:  # the first end counts only if it is alone
            self._elsewhere = self._fresh()
        frames = frames_of_script(sys._getframe(1), self.within)
        self._end = _End(giver, frames, self._elsewhere, self._clock, self._make_sampler)

    def begins(self, giver: WatchedIterator) -> None:
        """Note that another such pass has begun."""
        if self._end is not None:
            self._elsewhere.trains()
            end, self._end = self._end, None
            end.close(giver.began_s)
            self._epoch_s = giver.began_s - end.began_s
            self._seen.append(end)

    def close(self) -> None:
        """Stop noting."""
        if self._end is not None:
            self._end.close(self._clock())
            self._end = None

    def _fresh(self) -> Elsewhere:
        return Elsewhere(Loop(), self._steps, lambda: (), self._clock, self._every)

    def _every(self) -> int:
        """Return the number of epochs for each run of the current statement."""
        frames = () if self._end is None else self._end.frames
        at, _ = common_frame(sys._getframe(1), frames)
        return 1 if at is None else every(frames, Place(at.f_code.co_filename, at.f_lineno))

    # --- results -------------------------------------------------------------------------------------------

    @property
    def _counted(self) -> list[_End]:
        return self._seen[1:] or self._seen

    def evidence(self, loader: DataLoader[Any] | None, batches_per_update: int) -> BetweenEpochs:
        """Return the evidence on the time between epochs.

        Args:
            loader: Training loader of the script; None if unknown.
            batches_per_update: Batches for each optimizer step.
        """
        ends = self._counted
        if not ends:
            return self._unseen(loader, batches_per_update)
        each = 1 / len(ends)
        return BetweenEpochs(
            ends=len(ends),
            batches=sum(end.batches for end in ends) * each,
            seconds=sum(end.seconds for end in ends) * each,
            each_epoch_share=sum(end.each_epoch_share for end in ends) * each,
            saves=sum(end.saved.count for end in ends),
            saving_s=sum(end.saved.seconds for end in ends) * each,
            others=self._elsewhere.evidence(None if loader is None else loader.dataset),
        )

    def _unseen(self, loader: DataLoader[Any] | None, batches_per_update: int) -> BetweenEpochs:
        if self._around is None:
            return BetweenEpochs()
        batches, follows = None if loader is None else batches_of_epoch(loader), self._around.follows
        return BetweenEpochs(
            ends=0,
            path=None if follows is None else shown_path(follows.path),
            line=None if follows is None else follows.line,
            skip_steps=None if batches is None else math.ceil(batches / batches_per_update) + 1,
        )

    def lines(self) -> tuple[LineSeen, ...]:
        """Return the statements that take the time between two epochs."""
        lines: dict[tuple[str, Line], Spent] = {}
        for end in self._counted:
            for at, spent in end.spent.items():
                lines.setdefault(at, Spent()).add(spent)
        return tuple(line for part in (EVALUATING, BETWEEN) for line in costliest_lines(lines, part))


class _End:
    """The time from the end of an epoch to the beginning of the next.

    Args:
        giver: Iterator over the batches of the epoch.
        frames: Frames from which the loop has asked for its batches.
        elsewhere: Record of the passes over other loaders.
        clock: Monotonic time in seconds.
        sampler: As for `FirstEpochs`.
    """

    def __init__(
        self,
        giver: WatchedIterator,
        frames: list[FrameType],
        elsewhere: Elsewhere,
        clock: Callable[[], float],
        sampler: Callable[[Callable[[FrameType, Spent], None]], Any],
    ) -> None:
        self.batches, self.began_s, self.frames = giver.given_in_pass, giver.began_s, frames
        self._elsewhere, self._clock, self._ended_s = elsewhere, clock, clock()
        self._samples: list[tuple[float, str, Line, Spent]] = []
        self.seconds, self.each_epoch_share = 0.0, 1.0
        self.spent: dict[tuple[str, Line], Spent] = {}
        self.saved = Saved()
        self.saved.begin()
        self._sampler = sampler(self._see)
        self._sampler.start()

    def close(self, at_s: float) -> None:
        """Add up the samples until then, and release the frames."""
        self._sampler.stop()
        self.saved.end()
        self.seconds = max(0.0, at_s - self._ended_s)
        for taken_s, part, line, spent in self._samples:
            if taken_s <= at_s:
                self.spent.setdefault((part, line), Spent()).add(spent)
        self.each_epoch_share = self._share_of_each_epoch()
        self.frames, self._samples = [], []

    def _share_of_each_epoch(self) -> float:
        rest = {at: spent.wall_s for (part, at), spent in self.spent.items() if part == BETWEEN}
        parts = [wall_s / every(self.frames, Place(at.file, at.line)) for at, wall_s in rest.items()]
        return sum(parts) / sum(rest.values()) if any(parts) else 1.0

    def _see(self, innermost: FrameType, spent: Spent) -> None:
        at_s, line = self._clock(), self._statement(innermost)
        if line is not None:
            part = EVALUATING if self._elsewhere.is_open else BETWEEN
            self._samples.append((at_s, part, line, spent))

    def _statement(self, innermost: FrameType) -> Line | None:
        """Return the script's current statement, and the function that it calls; for a library's loop, any line."""
        at, below = common_frame(innermost, self.frames)
        if at is None or not is_users(at.f_code.co_filename):
            return line_within(innermost, self.frames)
        calls = None
        if below is not None and not is_ours(below.f_code.co_filename):
            calls = f"{below.f_globals.get('__name__', '')}.{below.f_code.co_name}"
        return Line(at.f_code.co_filename, at.f_lineno, at.f_code.co_name, calls, library=False)

"""Make batches for real, and note of each one when it was made, and what its stages took.

Unlike the observer it times no single transform: it adds two looks at a clock for each stage of a sample, and a small
file for each batch, because the main process looks when a worker may be in the middle of the next one.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from typing import Any

from bottleneck.loader.observe.batch_made import MOST_BATCHES, BatchMade
from bottleneck.loader.observe.stage_calls import base_stage
from bottleneck.loader.observe.stage_frames import StageFrames
from bottleneck.loader.record.tape import Function, Tape
from bottleneck.loader.worker.mailbox import Mailbox
from bottleneck.loader.worker.user_code import UserCode


class StageClock(StageFrames):
    """Runs the user's code of one worker, and times its stages batch by batch."""

    def __init__(
        self,
        user_code: UserCode,
        tape: Tape,
        mailbox: Mailbox[list[BatchMade]],
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        super().__init__(user_code, tape)
        self._mailbox, self._clock = mailbox, clock
        self._open: BatchMade | None = None
        self._made: deque[BatchMade] = deque(maxlen=MOST_BATCHES)
        self._stage, self._since_s = "", 0.0

    def fetch(self, request: Any) -> Any:
        self._open, code = BatchMade(self._clock()), self._user_code
        if self.plan.strategy != "tail" or not code.batched or code.fetches_batches:
            return super().fetch(request)
        # What finishes one sample must not go on while the next one is loaded.
        return [self._run_sample(code.item, index) for index in request]

    def next_items(self) -> list[Any]:
        self._open = self._open or BatchMade(self._clock())
        return super().next_items()

    def collate(self, samples: Any) -> Any:
        batch = super().collate(samples)
        made, self._open = self._open, None
        if made is not None:
            made.end_s = self._clock()
            self._made.append(made)
            self._mailbox.write(self._user_code.number, list(self._made))
        return batch

    def drop(self) -> None:
        self._open = None

    def _base_stage(self) -> str:
        return base_stage(self.plan, of_tail="load")

    def _run_in(self, stage: str, function: Function, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        outer = self._enter(stage)
        try:
            return function(*args, **kwargs)
        finally:
            finished = self.plan.strategy == "tail" and (outer, stage) == ("load", "augment")
            self._enter("finish" if finished else outer)

    def _enter(self, stage: str) -> str:
        """Charge what has passed to the stage that was at work, and return that; from now on it is another."""
        now_s, before = self._clock(), self._stage
        if before and self._open is not None:
            self._open.stages[before] = self._open.stages.get(before, 0.0) + now_s - self._since_s
        self._stage, self._since_s = stage, now_s
        return before

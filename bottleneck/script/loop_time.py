"""The time that a loop has a batch, split at the step of its optimizer: as far as can be seen from outside."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

from bottleneck.measure.progress import ProgressUpdate
from bottleneck.results.evidence import LoopSeen


class LoopTime:
    """Adds up what a loop does with batches that are on the device already, while it is entered.

    Args:
        clock: Seconds from any beginning; monotonic.
        elsewhere: Seconds that the loop has waited for other loaders so far.
    """

    def __init__(
        self, clock: Callable[[], float] = time.perf_counter, elsewhere: Callable[[], float] = lambda: 0.0
    ) -> None:
        self._clock, self._elsewhere = clock, elsewhere
        self._counts = False
        self._thread: int | None = None
        self._begun_s = self._optimizer_s = 0.0
        self._last_step_s: float | None = None
        # Of all batches; plain numbers, which nobody takes for a state of the training that is to be put back.
        self._batches, self._all_s, self._in_optimizer_s, self._after_s, self._elsewhere_s = 0, 0.0, 0.0, 0.0, 0.0
        self._hooks: tuple[Any, ...] = ()

    def __enter__(self) -> LoopTime:
        self._hooks = (
            register_optimizer_step_pre_hook(self._before_step),
            register_optimizer_step_post_hook(self._after_step),
        )
        return self

    def __exit__(self, *_: object) -> None:
        for hook in self._hooks:
            hook.remove()

    def note_progress(self, update: ProgressUpdate) -> None:
        """Count the batches of `device` alone, where nothing is waited for and no worker takes a core."""
        self._counts = update.phase == "measuring" and update.experiment == "device"

    def watch(self, step: Callable[[Any], None]) -> Callable[[Any], None]:
        """Return a train step whose time is split."""

        def split(batch: Any) -> None:
            if not self._counts:
                step(batch)
                return
            self._optimizer_s, self._last_step_s, self._thread = 0.0, None, threading.get_ident()
            began_s, waited_s = self._clock(), self._elsewhere()
            step(batch)
            self._add(began_s, self._clock())
            self._elsewhere_s += self._elsewhere() - waited_s

        return split

    def _add(self, began_s: float, ended_s: float) -> None:
        self._batches += 1
        self._all_s += ended_s - began_s
        self._in_optimizer_s += self._optimizer_s
        if self._last_step_s is not None:
            self._after_s += ended_s - self._last_step_s

    def _before_step(self, *_: object) -> None:
        self._begun_s = self._clock()

    def _after_step(self, *_: object) -> None:
        if threading.get_ident() != self._thread:  # batches are taken in another thread, which only waits for this one
            return
        self._last_step_s = self._clock()
        self._optimizer_s += self._last_step_s - self._begun_s

    def evidence(self) -> LoopSeen:
        """Return the means; nothing where no optimizer made a step."""
        if not self._batches or not self._in_optimizer_s:
            return LoopSeen()
        until_s = self._all_s - self._in_optimizer_s - self._after_s
        each = 1 / self._batches
        return LoopSeen(
            batches=self._batches,
            until_optimizer_s=max(0.0, until_s) * each,
            optimizer_s=self._in_optimizer_s * each,
            after_optimizer_s=self._after_s * each,
            other_loaders_s=self._elsewhere_s * each,
        )

"""Time of `torch.compile` in the job's model, which the job pays once and a diagnosis must not count."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable
from typing import Any


class Compiling:
    """Sums the time of compiling while it is entered, for forward passes, backward passes and graphs.

    Args:
        clock: Monotonic seconds.
        begins: Called when a compilation begins.
    """

    def __init__(self, clock: Callable[[], float], begins: Callable[[], None]) -> None:
        self._clock = clock
        self._begins = begins
        self._began_s = clock()
        self.seconds = 0.0

    def __enter__(self) -> Compiling:
        # A job that compiles has imported it; only some versions of torch have these callbacks.
        self._handler: Any = getattr(sys.modules.get("torch._dynamo.callback"), "callback_handler", None)
        if self._handler is not None:
            self._handler.register_start_callback(self._begin)
            self._handler.register_end_callback(self._end)
        return self

    def __exit__(self, *_: object) -> None:
        if self._handler is None:
            return
        with contextlib.suppress(ValueError):  # `torch._dynamo.reset` has removed them
            self._handler.remove_start_callback(self._begin)
            self._handler.remove_end_callback(self._end)

    def _begin(self, *_: object) -> None:
        self._began_s = self._clock()
        self._begins()

    def _end(self, *_: object) -> None:
        self.seconds += self._clock() - self._began_s

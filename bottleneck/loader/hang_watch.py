"""Notice workers that stand still while they hand a tensor over, which PyTorch's own timeout does not see.

The main process then waits on a socket of the worker, without end: so it is where native code of the dataset's holds
Python's lock for good, or where the worker was stopped.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

_LONGEST_GRACE_S = 5.0
"""PyTorch's own timeout, where it works, goes first by so much at most."""


class HangWatch:
    """Calls a function once, from a thread of its own, when a wait takes longer than `limit_s`."""

    def __init__(self, on_hang: Callable[[], None], limit_s: float) -> None:
        self.waiting_since_s: float | None = None
        """When the present wait began, by the monotonic clock; None while nothing is waited for."""
        self.limit_s = limit_s
        self.hung = False
        self._on_hang = on_hang
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="bottleneck-hang-watch", daemon=True)
        self._thread.start()

    def _watch(self) -> None:
        grace_s = min(_LONGEST_GRACE_S, self.limit_s)
        while not self._stopped.wait(grace_s):
            since_s = self.waiting_since_s
            if since_s is not None and time.monotonic() - since_s > self.limit_s + grace_s:
                self.hung = True
                self._on_hang()
                return

    def stop(self) -> None:
        """End the thread; safe to call twice."""
        self._stopped.set()
        self._thread.join()

"""Two flows of control in one thread: the user's loop, and the diagnosis that feeds it.

To the diagnosis the loop is a train step: a function that gets a batch and returns when the next one is asked for. To
the loop the diagnosis is an iterator. Neither knows of the other. Both run in the loop's thread, which has its
autocast, streams and gradient mode: the diagnosis is a greenlet, not a thread. Greenlet saves the floating-point mode
of each. A switch takes about a microsecond.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from types import FrameType
from typing import Any, Generic, TypeVar

from greenlet import getcurrent, greenlet

T = TypeVar("T")


class Feed(Generic[T]):
    """Runner of a diagnosis next to the loop, which hands the diagnosis' batches to the loop.

    Args:
        diagnose: Gets the train step, and returns when the measurement is done.
        clock: Monotonic time in seconds.
    """

    def __init__(
        self, diagnose: Callable[[Callable[[Any], None]], T], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._loop: greenlet | None = None
        self._beside = greenlet(lambda: diagnose(self._step))
        self._clock = clock
        self._lent_at_s: float | None = None
        self._thread: int | None = None
        self._reason: BaseException | None = None
        self.outcome: T | None = None

    @property
    def is_done(self) -> bool:
        return bool(self._beside.dead)

    @property
    def runs_here(self) -> bool:
        """True if the diagnosis is the caller, not the loop or another thread."""
        return getcurrent() is self._beside

    @property
    def is_in_another_thread(self) -> bool:
        """True if the loop took its last batch in another thread, which the diagnosis cannot leave."""
        return self._thread not in (None, threading.get_ident()) and not self.is_done

    @property
    def can_end_here(self) -> bool:
        """True if `end` may be called: from the loop's thread, while the loop has a batch."""
        return self._thread == threading.get_ident() and not self.runs_here

    def lent_s(self) -> float | None:
        """Return how long the loop has had its batch [s]; None while the diagnosis runs."""
        since_s = self._lent_at_s
        return None if since_s is None else self._clock() - since_s

    def asked_from(self) -> list[FrameType]:
        """Return the frames from which the loop has asked for its batch, the innermost first; empty while it runs."""
        frame, found = None if self._loop is None else self._loop.gr_frame, []
        while frame is not None:
            found.append(frame)
            frame = frame.f_back
        return found

    def next_batch(self) -> Any:
        """Return the next batch for the loop; after the last one return None, with `is_done` and `outcome` set."""
        if self.is_done:
            return None
        self._lent_at_s, self._thread = None, threading.get_ident()
        self._loop = self._beside.parent = getcurrent()
        found = self._beside.switch()
        if self.is_done:
            self.outcome = found
            return None
        self._lent_at_s = self._clock()
        return found

    def end(self, reason: BaseException) -> None:
        """End the diagnosis with its measurements so far: the loop asks for no further batch.

        Args:
            reason: Raised in its train step, unless an earlier reason was given.
        """
        if self._beside and not self.is_done:
            self.end_soon(reason)
            self.next_batch()

    def end_soon(self, reason: BaseException) -> bool:
        """End the diagnosis when the loop, which runs in another thread, asks for its next batch.

        Returns:
            True if this is the first request.
        """
        is_first, self._reason = self._reason is None, self._reason or reason
        return is_first

    def _step(self, batch: Any) -> None:
        assert self._loop is not None
        if self._reason is None:
            self._loop.switch(batch)
        if self._reason is not None:  # raised again if code around the step took it for a user's error
            raise self._reason

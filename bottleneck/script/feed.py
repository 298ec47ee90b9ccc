"""Two flows of control in one thread: the user's loop, and the diagnosis that feeds it.

To the diagnosis the loop is a train step: a function that gets a batch and returns when the next one is asked for. To
the loop the diagnosis is an iterator. Neither knows of the other, and both go on in the thread in which the loop runs,
where its autocast, its streams and its gradient mode are: a greenlet, not a thread. Each has a floating-point mode of
its own, which greenlet saves. To change from one to the other takes about a microsecond.
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
    """Runs a function next to the loop, and hands the batches that it trains on to the loop.

    Args:
        diagnose: Gets the train step, and returns when there is no more to measure.
        clock: Seconds from any beginning; monotonic.
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
        """Whether it is the diagnosis, and not the loop or another thread, that asks."""
        return getcurrent() is self._beside

    @property
    def is_in_another_thread(self) -> bool:
        """Whether the loop took its last batch in another thread: there the diagnosis is, and cannot leave it."""
        return self._thread not in (None, threading.get_ident()) and not self.is_done

    @property
    def can_end_here(self) -> bool:
        """Whether `end` may be called: from the loop's own thread, while the loop has a batch."""
        return self._thread == threading.get_ident() and not self.runs_here

    def lent_s(self) -> float | None:
        """Return for how long the loop has had its batch; None while the diagnosis runs."""
        since_s = self._lent_at_s
        return None if since_s is None else self._clock() - since_s

    def asked_from(self) -> list[FrameType]:
        """Return the frames from which the loop has asked for its batch, the innermost first; none while it runs."""
        frame, found = None if self._loop is None else self._loop.gr_frame, []
        while frame is not None:
            found.append(frame)
            frame = frame.f_back
        return found

    def next_batch(self) -> Any:
        """Return the next batch for the loop; when there is none any more, `is_done`, and `outcome` is there."""
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
        """Let the diagnosis end with what it has: the loop asks for no further batch.

        Args:
            reason: Raised in its train step, unless it was told to end before.
        """
        if self._beside and not self.is_done:
            self.end_soon(reason)
            self.next_batch()

    def end_soon(self, reason: BaseException) -> bool:
        """Let the diagnosis end when the loop, which runs in another thread, asks for its next batch.

        Returns:
            Whether it had not been told so before.
        """
        is_first, self._reason = self._reason is None, self._reason or reason
        return is_first

    def _step(self, batch: Any) -> None:
        assert self._loop is not None
        if self._reason is None:
            self._loop.switch(batch)
        if self._reason is not None:  # raised again where a watch over the step took it for an error of the user's
            raise self._reason

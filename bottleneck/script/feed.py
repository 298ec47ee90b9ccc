"""Two flows of control in one thread: the user's loop, and the diagnosis that feeds it.

To the diagnosis the loop is a train step: a function that gets a batch and returns when the next one is asked for. To
the loop the diagnosis is an iterator. Neither knows of the other, and both go on in the thread in which the loop runs,
where its autocast, its streams and its gradient mode are: a greenlet, not a thread. To change from one to the other
takes about a microsecond.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar

from greenlet import getcurrent, greenlet

T = TypeVar("T")


class Feed(Generic[T]):
    """Runs a function beside the loop, and hands the batches that it trains on to the loop.

    Args:
        diagnose: Gets the train step, and returns when there is no more to measure.
    """

    def __init__(self, diagnose: Callable[[Callable[[Any], None]], T]) -> None:
        self._loop: greenlet | None = None
        self._beside = greenlet(lambda: diagnose(self._step))
        self.outcome: T | None = None

    @property
    def is_done(self) -> bool:
        return bool(self._beside.dead)

    @property
    def runs_here(self) -> bool:
        """Whether it is the diagnosis, and not the loop or another thread, that asks."""
        return getcurrent() is self._beside

    def next_batch(self) -> Any:
        """Return the next batch for the loop; when there is none any more, `is_done`, and `outcome` is there."""
        return self._go_on(self._beside.switch)

    def end(self, reason: BaseException) -> None:
        """Let the diagnosis end with what it has: the loop asks for no further batch.

        Args:
            reason: Raised in its train step.
        """
        if self._beside and not self.is_done:
            self._go_on(lambda: self._beside.throw(reason))

    def _go_on(self, switch: Callable[[], Any]) -> Any:
        self._loop = self._beside.parent = getcurrent()
        found = switch()
        if self.is_done:
            self.outcome = found
            return None
        return found

    def _step(self, batch: Any) -> None:
        assert self._loop is not None
        self._loop.switch(batch)

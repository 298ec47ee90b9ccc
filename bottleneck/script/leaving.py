"""The body of a `with` statement that trains, left from within its loop once that is measured."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Generic, NoReturn, TypeVar

from bottleneck.errors import BottleneckError, MeasurementError, UsageError
from bottleneck.script.around import around_with
from bottleneck.script.measuring import Measuring

Outcome = TypeVar("Outcome")


class Body(Generic[Outcome]):
    """The value of a `with` statement, which holds the outcome of its loop after the block."""

    _attempt: Outcome | None = None

    def _ended(self) -> Outcome:
        if self._attempt is None:
            raise MeasurementError("Nothing has been measured.", "Look at it after the with block.")
        return self._attempt


class _Measured(BaseException):
    """Raised to leave the body after the measurement: batches from caches are not training."""


@contextmanager
def leaving(
    begin: Callable[..., Measuring[Outcome]], body: Body[Outcome], skip_steps: int | None, loader: str | int | None
) -> Iterator[None]:
    """Run a body that trains, and leave it after the measurement, from within the loop and without an error.

    Args:
        begin: Gets the function to call at the end, `skip_steps` and `loader`, as for `Measuring`.
        body: Gets the outcome, even if the body raised an exception.

    Raises:
        UsageError: `skip_steps` is not a positive integer.
        MeasurementError: Nothing was measured.
    """
    is_number = isinstance(skip_steps, int) and not isinstance(skip_steps, bool)
    if skip_steps is not None and not (is_number and skip_steps >= 1):
        raise UsageError(f"skip_steps must be a whole number, 1 or more, not {skip_steps!r}.")
    outcomes: list[Callable[[], Outcome]] = []

    def finish(outcome: Callable[[], Outcome]) -> NoReturn:
        outcomes.append(outcome)
        raise _Measured

    measuring = begin(finish, skip_steps, None if loader is None else str(loader))
    measuring.begin_within(around_with())
    with measuring as inside:
        try:
            yield
        except BaseException as error:
            if not outcomes:
                with suppress(BottleneckError, KeyboardInterrupt):
                    body._attempt = inside.end(error)
                raise
        body._attempt = outcomes[0]() if outcomes else inside.end(None)

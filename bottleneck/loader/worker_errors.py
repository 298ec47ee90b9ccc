"""Carry a failure of the user's code from a worker to the main process, whole and once.

DataLoader re-raises a worker's exception as `type(message)` with its own text around it. Our exception therefore
takes one string, and the facts travel inside that string.
"""

from __future__ import annotations

import json
import traceback
from dataclasses import asdict, dataclass
from typing import Any

from bottleneck.job.users_code import quote, text_of, users_traceback

_OPEN, _CLOSE = "<bottleneck-failure>", "</bottleneck-failure>"


class PassesThrough(BaseException):
    """Raised by this package and caught by it, with the user's code in between, which may not hold it up."""


class UserCodeError(Exception):
    """The user's dataset or collate function raised; the text holds a `Failure`."""


@dataclass(frozen=True)
class Failure:
    """What the user's code raised, and where.

    Attributes:
        error: Type and message of the exception.
        where: `dataset`, `collate_fn` or `worker_init_fn`.
        index: The index that was asked for, as text; None if there is none.
        worker: The number of the worker; None in the main process.
        mode: The stages that worked for real.
        traceback: The user's part of the traceback.
    """

    error: str
    where: str
    index: str | None
    worker: int | None
    mode: int
    traceback: str


def describe_failure(error: BaseException, where: str, *, index: Any, worker: int | None, mode: int) -> str:
    """Put a failure into one string, for `UserCodeError`."""
    text = traceback.format_exception_only(type(error), error)[-1].strip()
    shown = None if index is None else quote(index)[:200]
    failure = Failure(text, where, shown, worker, mode, users_traceback(error))
    return f"{_OPEN}{json.dumps(asdict(failure))}{_CLOSE}"


def find_failure(error: BaseException) -> Failure | None:
    """Return the failure inside an exception that came out of a loader, or None."""
    text = text_of(error)
    start, end = text.find(_OPEN), text.find(_CLOSE)
    if start < 0 or end < 0:
        return None
    return Failure(**json.loads(text[start + len(_OPEN) : end]))

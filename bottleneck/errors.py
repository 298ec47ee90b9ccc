"""The tree of errors. Each names the problem and what to write instead.

The command line turns an error into one line on standard error and an exit status; the library only raises.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from enum import IntEnum


class ExitStatus(IntEnum):
    """Exit statuses of the command line."""

    OK = 0
    GATE_FAILED = 1
    USAGE = 2
    COULD_NOT_MEASURE = 3
    INTERNAL = 4
    INTERRUPTED = 130


class BottleneckError(Exception):
    """Base of all errors that this package raises on purpose.

    Args:
        message: What is wrong, as one sentence.
        remedy: What to do or to write instead, as one sentence; empty if the message already says it.
    """

    exit_status = ExitStatus.INTERNAL

    def __init__(self, message: str, remedy: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.remedy = remedy

    def __str__(self) -> str:
        message = self.message
        if self.remedy and message[-1:] not in (".", ":", "!", "?"):
            message += "."  # a message may end with a message of the user's code
        return f"{message} {self.remedy}".strip()


class UsageError(BottleneckError):
    """A bad option, target or pipeline description, found before anything is measured."""

    exit_status = ExitStatus.USAGE


class PipelineError(UsageError):
    """A pipeline description that cannot be run; the message names the field."""


class TargetError(UsageError):
    """A target that cannot be loaded, or that does not return a pipeline."""


class ResultFileError(UsageError):
    """A saved result that cannot be read: truncated, not a result, or of an unknown version."""


class MeasurementError(BottleneckError):
    """A failure of measuring: the user's code raised, a worker died or hung, memory ran out.

    Args:
        message: What happened, as one sentence, with experiment, index and worker if known.
        remedy: What to do about it.
        details: The user's own traceback, shown once; empty if there is none.
    """

    exit_status = ExitStatus.COULD_NOT_MEASURE

    def __init__(self, message: str, remedy: str = "", details: str = "") -> None:
        super().__init__(message, remedy)
        self.details = details


def nearest(name: object, known: Iterable[str]) -> str | None:
    """Return the known name that another one probably means; None if none is similar."""
    return next(iter(difflib.get_close_matches(str(name).lower(), known, n=1)), None)

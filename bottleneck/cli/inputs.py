"""Saved results that a command is given: files, or standard input."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from bottleneck.errors import ResultFileError, UsageError
from bottleneck.results.files import read_stream, read_text, reason
from bottleneck.results.json import from_json, saved_from_json
from bottleneck.results.records import Result
from bottleneck.results.tuning import TuningResult

STANDARD_INPUT = "-"


def read_result(path: str) -> Result:
    """The result in a file, or on standard input where `path` is '-'; of a tuning, that of the tuned job.

    Raises:
        ResultFileError: It cannot be read or is no result.
    """
    return from_json(*_read(path))


def read_saved(path: str) -> Result | TuningResult:
    """The result or the tuning in a file, or on standard input where `path` is '-'.

    Raises:
        ResultFileError: It cannot be read or is neither.
    """
    return saved_from_json(*_read(path))


def _read(path: str) -> tuple[str, str]:
    """The text, and what it is called in messages."""
    if path != STANDARD_INPUT:
        return read_text(path), path
    if sys.stdin is None or sys.stdin.closed:  # None where the process was started without one
        raise ResultFileError("Standard input is closed.", "Give the path of a saved result.")
    try:
        # Bytes, of which no more are read than a result may take.
        return read_stream(sys.stdin.buffer, "standard input"), "standard input"
    except OSError as error:
        raise ResultFileError(
            f"Cannot read standard input: {reason(error)}.", "Give the path of a saved result."
        ) from None


def refuse_two_from_standard_input(paths: Sequence[str | None]) -> None:
    """Refuse to take more than one result from standard input, which holds one.

    Raises:
        UsageError: There is more than one '-' among the paths.
    """
    if sum(path == STANDARD_INPUT for path in paths) > 1:
        raise UsageError("Standard input holds only one result.", "Give a file for the other.")

"""Saved results that a command is given: files, or standard input."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from bottleneck.errors import ResultFileError, UsageError
from bottleneck.results.codec import from_json, load
from bottleneck.results.files import read_stream, reason
from bottleneck.results.records import Result

STANDARD_INPUT = "-"


def read_result(path: str) -> Result:
    """The result in a file, or on standard input where `path` is '-'.

    Raises:
        ResultFileError: It cannot be read or is no result.
    """
    if path != STANDARD_INPUT:
        return load(path)
    if sys.stdin is None or sys.stdin.closed:  # None where the process was started without one
        raise ResultFileError("Standard input is closed.", "Give the path of a saved result.")
    try:
        # Bytes, of which no more are read than a result may take.
        return from_json(read_stream(sys.stdin.buffer, "standard input"), "standard input")
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

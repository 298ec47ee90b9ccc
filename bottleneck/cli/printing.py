"""Standard output: reports for people as their terminal shows them, documents for programs as they are in files."""

from __future__ import annotations

import codecs
import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, TextIO

import click

from bottleneck.errors import UsageError
from bottleneck.results.files import reason

if TYPE_CHECKING:
    from bottleneck.reports.text import TextReport

WIDTH = 80
"""Of a report in a log file."""
MAX_WIDTH = 100
"""Of a report on a terminal: longer lines are hard to read."""

_PLAIN = {
    **dict.fromkeys("█▉▊▋▌", "#"),
    **dict.fromkeys("▍▎▏", "."),
    **dict.fromkeys("–—−", "-"),
    **{"±": "+-", "µ": "u", "×": "x", "…": "~", "·": "|", "←": "<", "→": ">"},
}
_PLAIN_ERRORS = "torch-bottleneck.plain"


def prepare_streams() -> None:
    """Let standard output and standard error show as ASCII what their encoding has no characters for."""
    codecs.register_error(_PLAIN_ERRORS, _as_plain)
    for stream in (sys.stdout, sys.stderr):
        with suppress(AttributeError, ValueError, OSError):
            stream.reconfigure(errors=_PLAIN_ERRORS)  # type: ignore[union-attr]  # only real text streams have it


def _as_plain(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    text, end = error.object, error.end
    plain = "".join(_PLAIN.get(character, "?") for character in text[error.start : end])
    # Two characters for one: they take the place of the space behind it, so that columns stay where they are.
    return plain, end + (plain.endswith("+-") and text[end : end + 1] == " ")


def say(text: str) -> None:
    """Print on standard error; where that is closed or full, nothing happens."""
    try:
        click.echo(text, err=True)
    except (OSError, ValueError):
        discard(sys.stderr)


def discard(stream: TextIO | None) -> None:
    """Let the interpreter's last flush of a stream go nowhere instead of failing."""
    try:
        null = os.open(os.devnull, os.O_WRONLY)
        try:
            os.dup2(null, stream.fileno())  # type: ignore[union-attr]  # caught below
        finally:
            os.close(null)
    except (OSError, ValueError, AttributeError):
        return


def print_report(report: TextReport) -> None:
    """Print a report as wide as the terminal, or 80 columns where there is none, with colours where it shows them.

    NO_COLOR and TERM=dumb leave the colours out; FORCE_COLOR asks for them also where there is no terminal.

    Raises:
        UsageError: Standard output is closed or takes no more.
    """
    stream = _standard_output()
    # COLUMNS, the terminal's own width, or that of a log file, in this order.
    width = min(MAX_WIDTH, shutil.get_terminal_size((WIDTH, 24)).columns)
    with output_refused_as_usage():
        if not (os.environ.get("FORCE_COLOR") or stream.isatty()):
            stream.write(report.plain(width))
        else:
            from rich.console import Console

            Console(file=stream, width=width).print(report)
        stream.flush()


def print_document(text: str) -> None:
    """Print what is JSON, HTML or markdown: in UTF-8, whatever the encoding of standard output, as in a file.

    Raises:
        UsageError: Standard output is closed or takes no more.
    """
    stream = _standard_output()
    with output_refused_as_usage():
        binary = getattr(stream, "buffer", None)
        if binary is None or stream.isatty():  # a terminal decodes as it is set up to
            stream.write(text)
        else:
            stream.flush()
            binary.write(text.encode("utf-8"))
        stream.flush()


@contextmanager
def output_refused_as_usage() -> Iterator[None]:
    """Report standard output that cannot be written as an error of usage, like a file."""
    try:
        yield
    except BrokenPipeError:  # the reader has had enough, which is no failure
        raise
    except OSError as error:
        raise UsageError(
            f"Cannot write standard output: {reason(error)}.", "Send it to a place that takes it, or write to a file."
        ) from error


def _standard_output() -> TextIO:
    stream: TextIO | None = sys.stdout  # None where the process was started without one
    if stream is None or stream.closed:
        raise UsageError("Standard output is closed.", "Send it somewhere, or write to a file with -o FILE.")
    return stream

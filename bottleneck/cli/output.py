"""Output of the commands: reports to files and to standard output, which is reserved for them, and the progress line.

Reports for people are laid out for the terminal, documents for programs are the same as in files.
"""

from __future__ import annotations

import codecs
import contextlib
import errno
import math
import os
import secrets
import shutil
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

import click

from bottleneck.errors import UsageError
from bottleneck.measure.options import ProgressCallback, ProgressUpdate
from bottleneck.results.files import reason, write_file

if TYPE_CHECKING:
    from bottleneck.reports.text import TextReport
    from bottleneck.results.records import Result
    from bottleneck.results.tuning import TuningResult
    from bottleneck.results.watched import WatchedResult

STANDARD_OUTPUT = "-"
WIDTH = 80
"""Columns of a report in a log file."""
MAX_WIDTH = 100
"""Maximum columns of a report on a terminal, because longer lines are hard to read."""

_PLAIN = {
    **dict.fromkeys("█▉▊▋▌", "#"),
    **dict.fromkeys("▍▎▏", "."),
    **dict.fromkeys("–—−", "-"),
    **{"±": "+-", "µ": "u", "×": "x", "…": "~", "·": "|", "←": "<", "→": ">"},
}


def prepare_streams() -> None:
    """Let standard output and standard error replace characters that their encoding lacks by ASCII."""
    codecs.register_error("torch-bottleneck.plain", _as_plain)
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(AttributeError, ValueError, OSError):
            stream.reconfigure(errors="torch-bottleneck.plain")  # type: ignore[union-attr]  # only real text streams have it


def _as_plain(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    text, end = error.object, error.end
    plain = "".join(_PLAIN.get(character, "?") for character in text[error.start : end])
    # Two characters replace one, and take the space after it too, so that columns stay aligned.
    return plain, end + (plain.endswith("+-") and text[end : end + 1] == " ")


def say(text: str) -> None:
    """Print on standard error; do nothing if that is closed or full."""
    try:
        click.echo(text, err=True)
    except (OSError, ValueError):
        discard(sys.stderr)


def discard(stream: TextIO | None) -> None:
    """Redirect the interpreter's last flush of a stream to nowhere, instead of failing."""
    try:
        with open(os.devnull, "wb") as null:
            os.dup2(null.fileno(), stream.fileno())  # type: ignore[union-attr]  # caught below
    except (OSError, ValueError, AttributeError):
        return


def print_report(report: TextReport) -> None:
    """Print a report as wide as the terminal, or 80 columns without one, with colours if it supports them.

    NO_COLOR and TERM=dumb turn colours off; FORCE_COLOR turns them on, even without a terminal.

    Raises:
        UsageError: Standard output is closed or full.
    """
    # COLUMNS, the terminal's own width, or that of a log file, in this order of precedence.
    width = min(MAX_WIDTH, shutil.get_terminal_size((WIDTH, 24)).columns)
    with standard_output() as stream:
        if not (os.environ.get("FORCE_COLOR") or stream.isatty()):
            stream.write(report.plain(width))
        else:
            from rich.console import Console

            Console(file=stream, width=width).print(report)


def _print_document(text: str) -> None:
    """Print JSON, HTML or markdown in UTF-8, regardless of the encoding of standard output, as in a file."""
    with standard_output() as stream:
        binary = getattr(stream, "buffer", None)
        if binary is None or stream.isatty():  # a terminal has its own encoding
            stream.write(text)
        else:
            stream.flush()
            binary.write(text.encode("utf-8"))


@contextlib.contextmanager
def standard_output() -> Iterator[TextIO]:
    """Yield standard output; a failure to write it is a usage error, as for a file.

    Raises:
        UsageError: It is closed or full.
    """
    stream: TextIO | None = sys.stdout  # None if the process was started without one
    if stream is None or stream.closed:
        raise UsageError("Standard output is closed.", "Redirect it, or write to a file with -o FILE.")
    try:
        yield stream
        stream.flush()
    except BrokenPipeError:  # the reader has seen enough, which is not a failure
        raise
    except OSError as error:
        raise UsageError(
            f"Cannot write standard output: {reason(error)}.", "Redirect it to another place, or write to a file."
        ) from error


def plan_outputs(paths: Mapping[str, str | None], *inputs: str | None) -> dict[str, str]:
    """Return the path of each requested format, checked to be writable before any time is spent on measuring.

    Args:
        paths: Paths by the name of the option.
        inputs: Files that are read; '-' and None are ignored.

    Raises:
        UsageError: A path cannot be written, is used for two formats, or is a file that is read.
    """
    wanted = {format: path for format, path in paths.items() if path is not None}
    read = {os.path.realpath(name) for name in inputs if name and name != STANDARD_OUTPUT and os.path.isfile(name)}
    places: dict[str, str] = {}
    for format, path in wanted.items():
        place = path if path == STANDARD_OUTPUT else os.path.realpath(path)
        if place in places:
            shown = "standard output" if path == STANDARD_OUTPUT else path
            raise UsageError(f"--{places[place]} and --{format} both go to {shown}.", "Use two different files.")
        places[place] = format
        if place in read:
            raise UsageError(f"{path} is an input file, which would be overwritten.", "Write to another file.")
        if path != STANDARD_OUTPUT:
            check_writable(path)
    return wanted


def check_writable(path: str) -> None:
    """Refuse a path that cannot be written later.

    Raises:
        UsageError: It is a folder, is in a folder that does not exist, or there is no permission.
    """
    target = Path(os.path.realpath(path))
    try:
        if not path or path.endswith(os.sep) or target.is_dir():
            raise IsADirectoryError(errno.EISDIR, "it is the name of a folder" if path else "the name is empty")
        if target.is_file() or not target.exists():  # not a pipe or device, which is not replaced
            # Permissions are not enough: a file system may be read-only.
            probe = target.with_name(f".{target.name[:100]}.{secrets.token_hex(4)}.tmp")
            os.close(os.open(probe, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666))
            probe.unlink()
    except (OSError, ValueError) as error:
        raise UsageError(
            f"Cannot write {path!r}: {reason(error)}.", "Choose a file in a folder that you may write to."
        ) from None


def write_outputs(
    result: Result | TuningResult | WatchedResult, paths: Mapping[str, str], *, verbose: bool = False
) -> None:
    """Write a report to the path of each format, and that of the terminal unless standard output is in use.

    Files are written first, so that nothing is lost, and named last, to be noticed.

    Raises:
        UsageError: A file cannot be written after all; the others have been tried too.
    """
    from bottleneck.reports.render import for_terminal, render  # not needed for --help

    failure: UsageError | None = None
    written = []
    for format, path in paths.items():
        try:
            if path == STANDARD_OUTPUT:
                _print_document(render(result, format))
            else:
                write_file(path, render(result, format))
                written.append(path)
        except UsageError as error:
            failure = failure or error
    if STANDARD_OUTPUT not in paths.values() and sys.stdout is not None:  # None in a service
        print_report(for_terminal(result, verbose=verbose))
    for path in written:
        say(f"Wrote {path}")
    if failure is not None:
        raise failure


def write_rendered(text: str, path: str) -> None:
    """Write a rendered report to a file or to standard output.

    Raises:
        UsageError: It cannot be written.
    """
    if path == STANDARD_OUTPUT:
        _print_document(text)
    else:
        write_file(path, text)
        say(f"Wrote {path}")


@contextlib.contextmanager
def standard_output_kept() -> Iterator[None]:
    """Redirect the output of the user's code, in worker processes too, to standard error for a while.

    Standard output is for results: a `print` in a dataset must not end up inside a JSON document.
    """
    with contextlib.ExitStack() as stack:
        stack.enter_context(contextlib.redirect_stdout(stack.enter_context(_stream_for_the_job())))
        try:
            # Both may be None or closed, as in a service.
            out, err = sys.__stdout__.fileno(), sys.__stderr__.fileno()  # type: ignore[union-attr]  # caught below
            sys.__stdout__.flush()  # type: ignore[union-attr]  # caught below
            kept = os.dup(out)
        except (OSError, ValueError, AttributeError):  # closed, or not a real stream
            yield
            return
        stack.callback(os.close, kept)
        stack.callback(os.dup2, kept, out)
        os.dup2(err, out)
        yield


@contextlib.contextmanager
def _stream_for_the_job() -> Iterator[TextIO]:
    """Yield a separate stream to standard error: the job may close it, or wrap its buffer and drop that."""
    error = sys.stderr
    if error is None or error.closed:
        with open(os.devnull, "w", encoding="utf-8") as nowhere:
            yield nowhere
        return
    try:
        own = open(error.fileno(), "w", 1, error.encoding, error.errors, closefd=False)  # noqa: SIM115 - the job may keep it
    except (OSError, ValueError):  # not a real stream
        yield error
        return
    yield own
    with contextlib.suppress(OSError, ValueError):
        own.flush()


_LONGER = 1.3
"""A budget over the one that was announced, from which the expected duration is announced again."""
_MIN_LEFT_S = 10.0
"""A shorter rest is not announced again."""


class _Announcement:
    """A callback that reports, in a log, that the measurement has begun, and if it will take longer than was said."""

    def __init__(self) -> None:
        self._told_s = 0.0

    def __call__(self, update: ProgressUpdate) -> None:
        if not update.budget_s or update.budget_s <= _LONGER * self._told_s:
            return
        left_s = update.budget_s - update.elapsed_s
        if not self._told_s:
            say(f"Measuring, for about {max(1.0, left_s):.0f} s.")
        elif left_s >= _MIN_LEFT_S:
            say(f"Measuring, for about {left_s:.0f} s more, because the steps are slow.")
        self._told_s = update.budget_s


_BAR = 16
_MIN_WIDTH = 40
"""Minimum columns of a terminal, if it reports fewer."""


@contextlib.contextmanager
def open_progress() -> Iterator[ProgressCallback | None]:
    """Yield a progress line if standard error is a terminal; otherwise a single message with the expected duration.

    The line is redrawn only on progress of the measurement: a thread that refreshes it would take processor time from
    the blocks, and hold locks while the DataLoader forks its workers. It never moves backwards.
    """
    if sys.stderr is None or sys.stderr.closed:
        yield None
        return
    if not sys.stderr.isatty():
        yield _Announcement()
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn

    progress = Progress(
        BarColumn(bar_width=_BAR),
        TextColumn("{task.description}", markup=False),
        console=Console(stderr=True),
        auto_refresh=False,
        transient=True,
        redirect_stdout=False,
        redirect_stderr=False,
    )
    furthest = 0.0

    def show(update: ProgressUpdate) -> None:
        nonlocal furthest
        done = done_share(update)
        furthest = max(furthest, done or 0.0)
        room = max(_MIN_WIDTH, progress.console.width) - _BAR - 2
        shown = describe_update(update, furthest)[:room]
        progress.update(line, description=shown, total=None if done is None else 1.0, completed=furthest)
        progress.refresh()

    with progress:
        line = progress.add_task("starting", total=None)
        yield show


def done_share(update: ProgressUpdate) -> float | None:
    """Return the finished share, from 0 to 1, in rounds or in time, the larger of both; None if unknown."""
    shares = []
    if update.round is not None and update.rounds:
        shares.append((update.round - 1) / update.rounds)
    if update.budget_s:
        shares.append(update.elapsed_s / update.budget_s)
    return min(1.0, max(shares)) if shares else None


def describe_update(update: ProgressUpdate, done: float) -> str:
    """Return one line such as ` 62 %  about 24 s left  augment, 2.4x so far; 93 % sure`."""
    from bottleneck.results.format import gain  # which also imports the code for results, not needed for --help

    left_s = None if update.budget_s is None else update.budget_s - update.elapsed_s
    left = "" if left_s is None else f"about {left_s:.0f} s left" if left_s >= 1 else "nearly done"
    if update.state is None and update.round is not None and update.rounds:
        known = f"{update.phase}, round {update.round} of {update.rounds}"
    elif update.state is None:
        known = f"{update.phase}: {update.experiment}" if update.experiment else update.phase
    elif update.state == "device_bound":
        known = "the train step so far"
    elif update.bottleneck is None:
        known = "the input so far"
    else:
        known = f"{update.bottleneck}{f', {gain(update.gain)}' if update.gain else ''} so far"
    if update.state is not None and update.chance is not None:
        known += f"; {min(99, math.floor(100 * update.chance))} % sure"
    return f"{100 * done:3.0f} %  {left:<{len('about 100 s left')}}  {known}".rstrip()

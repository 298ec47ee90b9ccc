"""Where reports go: files that can be written, and standard output kept for the product alone."""

from __future__ import annotations

import contextlib
import os
import secrets
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TextIO

from bottleneck.cli.printing import print_document, print_report, say
from bottleneck.errors import UsageError
from bottleneck.reports.render import for_terminal, render
from bottleneck.results.files import write_file
from bottleneck.results.records import Result
from bottleneck.results.tuning import TuningResult

STANDARD_OUTPUT = "-"


def plan_outputs(paths: Mapping[str, str | None]) -> dict[str, str]:
    """Return the path of each wanted format, found writable before any time is spent on measuring.

    Raises:
        UsageError: A path that cannot be written, or two formats for one place.
    """
    wanted = {format: path for format, path in paths.items() if path is not None}
    places: dict[str, str] = {}
    for format, path in wanted.items():
        place = path if path == STANDARD_OUTPUT else os.path.realpath(path)
        if place in places:
            shown = "standard output" if path == STANDARD_OUTPUT else path
            raise UsageError(f"--{places[place]} and --{format} both go to {shown}.", "Give them two different files.")
        places[place] = format
        if path != STANDARD_OUTPUT:
            check_writable(path)
    return wanted


def refuse_to_replace(path: str, kept: Iterable[str | None], what: str) -> None:
    """Refuse an output in the place of an input.

    Args:
        path: The output.
        kept: Paths of inputs; '-' and None are none.
        what: What they are, for the error: 'a result that is read'.

    Raises:
        UsageError: The output is one of them.
    """
    places = {os.path.realpath(name) for name in kept if name and name != STANDARD_OUTPUT and os.path.isfile(name)}
    if path != STANDARD_OUTPUT and os.path.realpath(path) in places:
        raise UsageError(f"{path} is {what}, which would be lost.", "Write to another file.")


def check_writable(path: str) -> None:
    """Refuse a path that could not be written later.

    Raises:
        UsageError: A folder, one in a folder that is not there, or without permission.
    """
    try:
        reason = _why_not_writable(path)
    except (OSError, ValueError) as error:
        reason = (getattr(error, "strerror", None) or str(error)).lower()
    if reason is not None:
        raise UsageError(f"Cannot write {path!r}: {reason}.", "Give a file in a folder that you may write to.")


def _why_not_writable(path: str) -> str | None:
    if not path:
        return "the name is empty"
    if path.endswith(os.sep):
        return "it is the name of a folder"
    target = Path(os.path.realpath(path))
    with contextlib.suppress(FileNotFoundError):
        target.lstat()  # says so when the name is too long
    if target.is_dir():
        return "it is a folder"
    if target.exists() and not target.is_file():  # a pipe or a device: written to, not replaced
        return None if os.access(target, os.W_OK) else "permission denied"
    if not target.parent.is_dir():
        return f"there is no folder {str(target.parent)!r}"
    # Permissions alone do not tell: a file system may be read-only.
    probe = target.with_name(f".{target.name[:100]}.{secrets.token_hex(4)}.tmp")
    os.close(os.open(probe, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666))
    probe.unlink()
    return None


def write_outputs(result: Result | TuningResult, paths: Mapping[str, str], *, verbose: bool = False) -> None:
    """Write a report to the path of each format, and that of the terminal unless standard output is taken.

    Files are written first, so that nothing is lost, and named last, where they are seen.

    Raises:
        UsageError: A file could not be written after all; the others have been tried too.
    """
    failure: UsageError | None = None
    written = []
    for format, path in paths.items():
        try:
            _write(render(result, format), path)
            written.append(path)
        except UsageError as error:
            failure = failure or error
    if STANDARD_OUTPUT not in paths.values() and sys.stdout is not None:  # None in a service
        print_report(for_terminal(result, verbose=verbose))
    _name_files(written)
    if failure is not None:
        raise failure


def write_report(result: Result | TuningResult, format: str, path: str, *, verbose: bool = False) -> None:
    """Write one report to a file or to standard output.

    Raises:
        UsageError: It cannot be written.
    """
    if format == "text" and path == STANDARD_OUTPUT:
        print_report(for_terminal(result, verbose=verbose))
    elif format == "text":
        write_rendered(for_terminal(result, verbose=verbose).plain(), path)
    else:
        write_rendered(render(result, format), path)


def write_rendered(text: str, path: str) -> None:
    """Write a report that has been rendered to a file or to standard output.

    Raises:
        UsageError: It cannot be written.
    """
    _write(text, path)
    _name_files([path])


def _write(text: str, path: str) -> None:
    if path == STANDARD_OUTPUT:
        print_document(text)
    else:
        write_file(path, text)


def _name_files(paths: Iterable[str]) -> None:
    for path in paths:
        if path != STANDARD_OUTPUT:
            say(f"Wrote {path}")


@contextlib.contextmanager
def working_directory_kept() -> Iterator[None]:
    """Come back to the working directory afterwards: the names of outputs are relative to it."""
    before = os.getcwd()
    try:
        yield
    finally:
        with contextlib.suppress(OSError):  # gone meanwhile; an output says so when it is written
            os.chdir(before)


@contextlib.contextmanager
def _stream_for_the_job() -> Iterator[TextIO]:
    """A stream of its own to standard error: the job may close it, or wrap its buffer and drop that."""
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


@contextlib.contextmanager
def standard_output_kept() -> Iterator[None]:
    """Send what the user's code prints to standard error meanwhile, that of worker processes too.

    Standard output is the product: a `print` in a dataset must not end up inside a JSON document.
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

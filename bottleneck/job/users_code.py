"""Text about the user's code: ownership of files, tracebacks without our frames, objects whose `__repr__` may fail."""

from __future__ import annotations

import inspect
import os
import re
import sysconfig
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any


def quote(value: object) -> str:
    """Return the repr of a value; its class if that fails."""
    try:
        return repr(value)
    except Exception:  # noqa: BLE001 - a message about an object must not fail because of it
        return f"<{type(value).__name__} object>"


def describe(value: object) -> str:
    """Return the repr of a value if it is short and more than an address; otherwise its class."""
    shown = quote(value)
    return shown if len(shown) <= 40 and "\n" not in shown and " at 0x" not in shown else f"a {type(value).__name__}"


def text_of(error: BaseException) -> str:
    """Return the message of an exception; an empty text if its `__str__` fails."""
    try:
        return str(error)
    except Exception:  # noqa: BLE001 - as above
        return ""


def said_by(error: BaseException) -> str:
    """Return the message of an exception on one line; an empty text if its `__str__` fails."""
    return " ".join(text_of(error).split())


def summary(error: BaseException) -> str:
    """Return class and message of an exception on one line, without a full stop; a long message is cut."""
    text = said_by(error).rstrip(".")
    text = text if len(text) <= 300 else text[:297] + "..."
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def describe_error(error: BaseException) -> str:
    """Return an exception of the user's code on one line, with its place in that code."""
    shown = summary(error)
    frames = [f for f in traceback.extract_tb(error.__traceback__) if is_users(f.filename)]
    if isinstance(error, SyntaxError) or not frames:  # a SyntaxError names file and line itself
        return shown
    return f"{shown} ({Path(frames[-1].filename).name}, line {frames[-1].lineno})"


def why_not_called(
    function: Callable[..., Any],
    arguments: Sequence[Any] = (),
    keywords: Mapping[str, Any] = MappingProxyType({}),
    *,
    follow_wrapped: bool = True,
) -> str:
    """Return why a function cannot be called with some arguments; empty if it can, or has no signature."""
    try:
        inspect.signature(function, follow_wrapped=follow_wrapped).bind(*arguments, **keywords)
    except TypeError as error:
        return said_by(error)
    except ValueError:
        pass
    return ""


_PACKAGE = Path(__file__).parents[1]
# Not the whole package: `_pydata` and pydata's Bottleneck, which share its folder, are called by the user's code.
_FOLDERS = ("cli", "script", "tuner", "monitor", "measure", "loader", "job")
_OURS = (
    *(os.path.join(_PACKAGE, folder, "") for folder in _FOLDERS),
    str(_PACKAGE / "api.py"),
)


def is_ours(file: str) -> bool:
    """Return True if a file is part of the code that calls the user's."""
    return file.startswith(_OURS)


@cache
def is_library(file: str) -> bool:
    """Return True if a file belongs to Python or to an installed package."""
    path = Path(file)
    if {"site-packages", "dist-packages"} & set(path.parts):
        return True
    resolved = path.resolve()
    return any(resolved.is_relative_to(root) for root in _library_roots())


@cache
def _library_roots() -> frozenset[Path]:
    return frozenset(Path(sysconfig.get_path(key)).resolve() for key in ("stdlib", "platstdlib", "purelib", "platlib"))


def is_users(file: str) -> bool:
    """Return True if the code of a frame is the user's own."""
    return not file.startswith("<") and not is_ours(file) and not is_library(file)


_started_in: list[str] = []


@contextmanager
def started_here() -> Iterator[None]:
    """Show files, and write outputs, relative to the present working directory, inside the context.

    The job may change the directory, as Hydra does; afterwards it is restored.
    """
    _started_in.append(os.getcwd())
    try:
        yield
    finally:
        with suppress(OSError):  # the directory is gone; writing an output will report that
            os.chdir(_started_in.pop())


def shown_path(file: str) -> str:
    """Return a path for people: relative to the working directory if it is inside it."""
    path, here = os.path.abspath(file), _started_in[-1] if _started_in else os.getcwd()
    return os.path.relpath(path, here) if Path(path).is_relative_to(here) else path


STARTS_SCRIPTS = "<frozen runpy>"
"""The file of frames that start a script."""
_FRAME = re.compile(r'  File "(.+?)", line \d+')


def users_traceback(error: BaseException) -> str:
    """Return the traceback of an exception, without our frames and those that start scripts."""
    frames = [
        f for f in traceback.extract_tb(error.__traceback__) if not is_ours(f.filename) and f.filename != STARTS_SCRIPTS
    ]
    lines = ["Traceback (most recent call last):\n", *traceback.format_list(frames)]
    return "".join([*lines, *traceback.format_exception_only(type(error), error)]).rstrip()


def without_libraries(text: str) -> str:
    """Return a traceback with only the frames of the user's own files, and the number of the others."""
    lines: list[str] = []
    hidden, kept, in_frames = 0, True, False
    for line in text.splitlines():
        frame = _FRAME.match(line)
        if frame is not None:
            in_frames, kept = True, is_users(frame[1])
            hidden += not kept
        elif not (in_frames and line.startswith("    ")):  # neither a frame nor its source
            if in_frames and hidden:
                lines.append(
                    f"  ({hidden} frame{'s' if hidden > 1 else ''} of libraries left out: --traceback shows all)"
                )
            hidden, kept, in_frames = 0, True, False
        if kept:
            lines.append(line)
    return "\n".join(lines)

"""Stages that users mark in their own code: `@bottleneck.stage("decode")`.

Imports the standard library only, so that marked modules stay as quick to import as they were.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any, TypeVar

FunctionT = TypeVar("FunctionT", bound=Callable[..., Any])
Handler = Callable[[str, Callable[..., Any], tuple[Any, ...], dict[str, Any]], Any]
"""Answers the call of a marked function: its site, the function itself, and what it is called with."""

RESERVED = ("compute", "copy", "handoff", "collate", "fetch", "other")
"""Stages that are measured anyway and have these names already."""
LONGEST_NAME = 60
_PREFIX = "@"
"""Begins the site of a marked stage; no attribute path begins like this."""

handler: Handler | None = None
"""What answers calls at present in this process; None, as in ordinary training: they just happen."""

names: dict[str, set[str]] = {}
"""Names of all stages that have been marked in this process, each with the modules of what was marked."""


def site_of(name: str) -> str:
    """The site of a marked stage: its name with a prefix that no path has."""
    return _PREFIX + name


def is_mark(site: str) -> bool:
    """Whether a site is a marked stage."""
    return site.startswith(_PREFIX)


def name_of(site: str) -> str:
    """The name of a marked stage, by its site."""
    return site.removeprefix(_PREFIX)


def stage(name: str) -> Callable[[FunctionT], FunctionT]:
    """Mark a function or method as a stage of the input pipeline.

    In ordinary training a call costs about a tenth of a microsecond more, and nothing else changes. Under diagnosis
    its calls are recorded and replayed, and the stage has a row of its own. Several functions may share a name.

    Args:
        name: How the stage is called in the report, such as `"decode"`.

    Returns:
        A decorator, which returns the function in a thin wrapper.

    Raises:
        TypeError: The name is no text, or what is marked is no function: a class, an object, a coroutine.
        ValueError: The name is empty, too long, or that of a stage which is measured anyway.
    """
    if not isinstance(name, str):
        hint = '; write @bottleneck.stage("decode")' if callable(name) else ""
        raise TypeError(f"The name of a stage is text, not {type(name).__name__}{hint}.")
    if not name.strip() or len(name) > LONGEST_NAME or not name.isprintable():
        raise ValueError(f"The name of a stage has 1 to {LONGEST_NAME} printable characters, unlike {name[:80]!r}.")
    if name in RESERVED:
        raise ValueError(f"{name!r} is measured anyway under this name; choose another, such as 'my_{name}'.")

    def mark(function: FunctionT) -> FunctionT:
        marked: FunctionT = _mark(name, function)
        module = str(getattr(function, "__module__", ""))
        # In a worker that was not forked, the script has another name.
        names.setdefault(name, set()).add("__main__" if module == "__mp_main__" else module)
        return marked

    return mark


def _mark(name: str, function: Any) -> Any:
    if isinstance(function, (staticmethod, classmethod)):
        return type(function)(_mark(name, function.__func__))
    waits = inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function)
    if not inspect.isroutine(function) or waits:
        raise TypeError(
            f"@bottleneck.stage({name!r}) marks functions and methods, not {type(function).__name__} objects, classes "
            "or coroutines; mark the method that does the work."
        )
    site = site_of(name)
    if inspect.isgeneratorfunction(function):

        @functools.wraps(function)
        def marked_generator(*args: Any, **kwargs: Any) -> Any:
            # Its work is done later, so that there is nothing to cut; a diagnosis has to hear of it all the same.
            made = function(*args, **kwargs) if handler is None else handler(site, function, args, kwargs)
            return (yield from made)

        return marked_generator

    @functools.wraps(function)
    def marked(*args: Any, **kwargs: Any) -> Any:
        if handler is None:
            return function(*args, **kwargs)
        return handler(site, function, args, kwargs)

    return marked

"""Stages that users mark in their own code: `@bottleneck.stage("decode")`.

Imports only the standard library, so that marked modules stay fast to import.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any, TypeVar

FunctionT = TypeVar("FunctionT", bound=Callable[..., Any])
Handler = Callable[[str, Callable[..., Any], tuple[Any, ...], dict[str, Any]], Any]
"""Answers the call of a marked function, given its site, the function, and its arguments."""

RESERVED = ("compute", "copy", "handoff", "collate", "fetch", "other")
"""Stages that are measured in any case, and have these names."""
MAX_NAME = 60
_PREFIX = "@"
"""Beginning of the site of a marked stage; no attribute path begins like this."""

handler: Handler | None = None
"""Answers calls in this process; None in ordinary training, where functions just run."""

names: dict[str, set[str]] = {}
"""Names of all stages marked in this process, each with the modules of the marked functions."""


def site_of(name: str) -> str:
    """Return the site of a marked stage: its name with a prefix that no path has."""
    return _PREFIX + name


def is_mark(site: str) -> bool:
    """Return True if a site is a marked stage."""
    return site.startswith(_PREFIX)


def name_of(site: str) -> str:
    """Return the name of a marked stage from its site."""
    return site.removeprefix(_PREFIX)


def stage(name: str) -> Callable[[FunctionT], FunctionT]:
    """Mark a function or method as a stage of the input pipeline.

    In ordinary training a call costs about a tenth of a microsecond more, and nothing else changes. In a diagnosis
    its calls are recorded and replayed, and the stage has its own row. Several functions may share a name.

    Args:
        name: Name of the stage in the report, such as `"decode"`.

    Returns:
        A decorator, which returns the function in a thin wrapper.

    Raises:
        TypeError: The name is not text, or the marked object is not a function but a class, an object or a coroutine.
        ValueError: The name is empty, too long, or that of a stage which is measured in any case.
    """
    if not isinstance(name, str):
        hint = '; write @bottleneck.stage("decode")' if callable(name) else ""
        raise TypeError(f"The name of a stage must be text, not {type(name).__name__}{hint}.")
    if not name.strip() or len(name) > MAX_NAME or not name.isprintable():
        raise ValueError(f"The name of a stage must have 1 to {MAX_NAME} printable characters, not be {name[:80]!r}.")
    if name in RESERVED:
        raise ValueError(f"The stage {name!r} is measured in any case; choose another name, such as 'my_{name}'.")

    def mark(function: FunctionT) -> FunctionT:
        marked: FunctionT = _mark(name, function)
        module = str(getattr(function, "__module__", ""))
        # In a worker that was not forked, the script's module has another name.
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
            # Its work is done later, so that it cannot be cut, but a diagnosis has to know of it.
            made = function(*args, **kwargs) if handler is None else handler(site, function, args, kwargs)
            return (yield from made)

        return marked_generator

    @functools.wraps(function)
    def marked(*args: Any, **kwargs: Any) -> Any:
        if handler is None:
            return function(*args, **kwargs)
        return handler(site, function, args, kwargs)

    return marked

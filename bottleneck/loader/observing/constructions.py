"""Objects that samples make with the same arguments each time, by a constructor or a function that opens something.

They are seen where `LineSampler` finds the thread. Such an object could be made once and kept.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Collection, Iterator, Sequence
from pathlib import PurePath
from types import CodeType, FrameType
from typing import Any, NamedTuple

from bottleneck.job.users_code import is_users
from bottleneck.loader.observing.lines import line_at
from bottleneck.loader.observing.meter import Spent
from bottleneck.loader.observing.observation import Constructed, Observation, Site

_MAKES = re.compile(r"__init__|(re)?connect\w*|open\w*|client|from_pretrained|load_model|login")
"""Names of functions that make something worth keeping."""
_OF_ONE_USE = ("contextlib", "subprocess", "tempfile", "threading")
"""Modules whose objects are made for a single use."""
_BY_VALUE = (str, bytes, int, float, bool)
_FLAGS = (inspect.CO_VARARGS, inspect.CO_VARKEYWORDS)


class _Frame(NamedTuple):
    code: CodeType
    instruction: int
    module: str
    arguments: tuple[Any, ...]
    """Arguments, by now; empty if it makes nothing."""


class Constructions:
    """Sees the constructions of one worker, and keeps the arguments of the first of each."""

    def __init__(self) -> None:
        self._first: dict[Site, tuple[Any, ...]] = {}
        self._parts: dict[tuple[str, Site | None], int] = {}
        """Latest part in which something was seen in a stage, or a construction there."""

    def see(self, found: Observation, stage: str, part: int, passed: Spent, stack: Sequence[_Frame]) -> None:
        """Add what a sample of the thread shows.

        Args:
            found: Gets it.
            stage: The stage at work.
            part: The number of the item, or of the collation, at work.
            passed: The time that the sample stands for.
            stack: From `stack_below`.
        """
        if self._is_another(stage, None, part):
            found.sampled[stage] += 1
        for site, arguments in _constructions(stack):
            made = found.constructed.setdefault((stage, site), Constructed())
            made.add(passed)
            made.parts += self._is_another(stage, site, part)
            made.same &= _same(self._first.setdefault(site, arguments), arguments)

    def _is_another(self, stage: str, site: Site | None, part: int) -> bool:
        key = stage, site
        before, self._parts[key] = self._parts.get(key), part
        return before != part


def stack_below(innermost: FrameType, entries: Collection[CodeType]) -> list[_Frame]:
    """Return the frames from the innermost to the function in which the user's code is called; empty without it."""
    stack: list[_Frame] = []
    frame: FrameType | None = innermost
    while frame is not None and frame.f_code not in entries:
        code = frame.f_code
        arguments = _arguments(code, frame.f_locals) if _MAKES.fullmatch(code.co_name) else ()
        stack.append(_Frame(code, frame.f_lasti, frame.f_globals.get("__name__", ""), arguments))
        frame = frame.f_back
    return [] if frame is None else stack


def _arguments(code: CodeType, values: dict[str, Any]) -> tuple[Any, ...]:
    count = code.co_argcount + code.co_kwonlyargcount + sum(bool(code.co_flags & flag) for flag in _FLAGS)
    return tuple(values.get(name) for name in code.co_varnames[:count])


def _constructions(stack: Sequence[_Frame]) -> Iterator[tuple[Site, tuple[Any, ...]]]:
    """Yield each call below the user's code that makes something, the outermost first, with its arguments."""
    caller: _Frame | None = None
    objects: list[Any] = []
    for seen in reversed(stack):
        is_the_users = is_users(seen.code.co_filename)
        arguments = seen.arguments
        if caller is not None and arguments and seen.module.partition(".")[0] not in _OF_ONE_USE:
            name, is_of_base = f"{seen.module}.{seen.code.co_name}", False
            if seen.code.co_name == "__init__":
                made, arguments = arguments[0], arguments[1:]
                name, is_of_base = type(made).__qualname__, any(made is one for one in objects)
                objects.append(made)
            if not is_of_base:
                yield Site(caller.code.co_filename, line_at(caller.code, caller.instruction), name), arguments
        caller = seen if is_the_users else caller


def _same(one: Any, other: Any) -> bool:
    """Return True if arguments are known to be equal, without a call of the user's code."""
    if one is other:
        return True
    if type(one) is not type(other):
        return False
    if isinstance(one, (list, tuple)):
        return len(one) == len(other) and all(map(_same, one, other))
    if type(one) is dict:
        return list(one) == list(other) and all(_same(value, other[key]) for key, value in one.items())
    return (type(one) in _BY_VALUE or isinstance(one, PurePath)) and bool(one == other)

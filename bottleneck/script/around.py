"""The source around a loop over batches: whether another epoch follows, and what the script calls between two.

The source is read, and names, attributes and items of running frames are looked up. No code of the script is called.
"""

from __future__ import annotations

import ast
import builtins
import inspect
import linecache
import math
import operator
import sys
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from functools import lru_cache
from types import CodeType, FrameType
from typing import Any, NamedTuple

from bottleneck.job.users_code import is_ours, is_users

_GENERATORS = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
_LOOPS = (ast.For, ast.AsyncFor, ast.While)
_CALCULATES: dict[type, Callable[..., Any]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.FloorDiv: operator.floordiv,
    ast.Lt: operator.lt, ast.LtE: operator.le, ast.Gt: operator.gt, ast.GtE: operator.ge, ast.Eq: operator.eq,
    ast.NotEq: operator.ne, ast.Not: operator.not_, ast.USub: operator.neg,
}  # fmt: skip
_CALLED = frozenset((range, len, int, min, max))
"""Functions without side effects that determine how long a loop continues."""
_OF_NO_INTEREST = frozenset(
    ("print", "append", "train", "eval", "step", "len", "range", "format", "set_epoch", "item", "round", "float", "int",
     "str", "sum", "min", "max", "abs", "time", "perf_counter", "monotonic")
)  # fmt: skip
"""Calls that take negligible time."""


class _Unknown(Exception):
    """Raised if a value cannot be determined from the source."""


class Place(NamedTuple):
    """A statement."""

    path: str
    line: int


@dataclass(frozen=True)
class Around:
    """The loop around that over the batches of an epoch.

    Attributes:
        goes_on: True if another epoch follows, as far as the source shows.
        follows: The first statement between two epochs that calls anything of interest; None if there is none.
    """

    goes_on: bool
    follows: Place | None


class Within(NamedTuple):
    """The function and the line of a `with` block: loops around it are not part of the training."""

    code: CodeType
    line: int


class _Loop(NamedTuple):
    frame: FrameType
    node: ast.stmt


class _Nested(NamedTuple):
    node: ast.stmt
    block: list[ast.stmt]
    """The block that contains it."""


def find_around(asked_in: FrameType, within: Within | None = None) -> Around | None:
    """Return the surroundings of the loop that asks for a batch; None if no other loop encloses it.

    Args:
        asked_in: A frame within the call that asks.
        within: Beginning of the training, if that is not the beginning of the process.
    """
    frames = frames_of_script(asked_in, within)
    loops = [_Loop(frame, node) for frame in frames for node in reversed(_loops_at(frame, within))]
    outer = next(filter(_may_be_of_epochs, loops[1:]), None)
    if outer is None:
        return None
    return Around(_goes_on(outer), _following(frames[: frames.index(outer.frame) + 1], loops[0], outer))


def every(frames: Collection[FrameType], place: Place) -> int:
    """Return how many epochs pass from one run of a statement to the next, by an `if epoch % n` around it; else 1."""
    frame = next((one for one in frames if one.f_code.co_filename == place.path), None)
    if frame is None:
        return 1
    for node, _ in reversed(_nesting(frame.f_code.co_filename, place.line)):
        for part in ast.walk(node.test) if isinstance(node, ast.If) else ():
            if isinstance(part, ast.BinOp) and isinstance(part.op, ast.Mod):
                try:
                    return max(1, int(_value(part.right, frame)))
                except (_Unknown, TypeError, ValueError):
                    return 1
    return 1


def is_guarded(place: Place) -> bool:
    """Return True if a statement is under `if __name__ == "__main__":`, which spawned workers do not run."""
    around = (nested.node for nested in _nesting(place.path, place.line))
    tests = (node.test for node in around if isinstance(node, ast.If))
    return any(isinstance(part, ast.Name) and part.id == "__name__" for test in tests for part in ast.walk(test))


def frames_of_script(frame: FrameType | None, within: Within | None = None) -> list[FrameType]:
    """Return the frames of the script and its libraries, the innermost first, without our own around them."""
    found: list[FrameType] = []
    while frame is not None and is_ours(frame.f_code.co_filename):
        frame = frame.f_back
    while frame is not None and not is_ours(frame.f_code.co_filename):
        found.append(frame)
        if within is not None and frame.f_code is within.code:
            break
        frame = frame.f_back
    return found


def around_with() -> Within | None:
    """Return the place of the `with` block that is being entered."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and (is_ours(frame.f_code.co_filename) or frame.f_globals.get("__name__") == "contextlib"):
        frame = frame.f_back
    return None if frame is None else Within(frame.f_code, frame.f_lineno)


def common_frame(innermost: FrameType, frames: Collection[FrameType]) -> tuple[FrameType | None, FrameType | None]:
    """Return the innermost of some frames that a stack goes through, and the one that it calls there."""
    frame, below = innermost, None
    while frame is not None and frame not in frames:
        frame, below = frame.f_back, frame  # type: ignore[assignment]  # the outermost one has none around it
    return frame, below


# --- the source ----------------------------------------------------------------------------------------------


@lru_cache(maxsize=64)
def _tree(path: str) -> ast.Module:
    try:
        return ast.parse("".join(linecache.getlines(path)))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return ast.Module([], [])


def _blocks(node: ast.AST) -> Iterator[list[ast.stmt]]:
    for name in ("body", "orelse", "finalbody"):
        found = getattr(node, name, None)
        if isinstance(found, list):
            yield found
    for name in ("handlers", "cases"):
        for part in getattr(node, name, ()):
            yield part.body


def _nesting(path: str, line: int) -> list[_Nested]:
    """Return the statements around a line within its function, the outermost first."""
    found: list[_Nested] = []
    node: ast.AST | None = _tree(path)
    while node is not None:
        inside = ((one, block) for block in _blocks(node) for one in block if _is_in(line, one))
        node, block = next(inside, (None, []))
        if isinstance(node, _FUNCTIONS):
            found = []
        elif isinstance(node, ast.stmt):
            found.append(_Nested(node, block))
    return found


def _is_in(line: int, node: ast.stmt) -> bool:
    return node.lineno <= line <= (node.end_lineno or 0)


def _loops_at(frame: FrameType, within: Within | None) -> list[ast.stmt]:
    """Return the loops around a frame's line, the outermost first; those of a generator only pass batches on."""
    if frame.f_code.co_flags & _GENERATORS:
        return []
    nesting = _nesting(frame.f_code.co_filename, frame.f_lineno)
    found: list[ast.stmt] = [nested.node for nested in nesting if isinstance(nested.node, _LOOPS)]
    if within is not None and frame.f_code is within.code:
        return [node for node in found if node.lineno >= within.line]
    return found


def _following(frames: list[FrameType], inner: _Loop, outer: _Loop) -> Place | None:
    """Return the first statement of interest from the end of one loop to its next beginning."""
    for frame in frames[frames.index(inner.frame) :]:
        nesting = _nesting(frame.f_code.co_filename, frame.f_lineno)
        nodes = [nested.node for nested in nesting]
        begin = nodes.index(outer.node) + 1 if frame is outer.frame else 0
        end = nodes.index(inner.node) + 1 if frame is inner.frame else len(nodes)
        for at in range(end - 1, begin - 1, -1):
            node, block = nesting[at]
            place = block.index(node)
            # What comes before the inner loop comes after it in the next round.
            before = block[:place] if at == begin and frame is outer.frame else []
            found = next(filter(_is_of_interest, (*block[place + 1 :], *before)), None)
            if found is not None:
                return Place(frame.f_code.co_filename, found.lineno)
    return None


def _is_of_interest(statement: ast.stmt) -> bool:
    calls = (node.func for node in ast.walk(statement) if isinstance(node, ast.Call))
    return any(getattr(called, "attr", getattr(called, "id", "")) not in _OF_NO_INTEREST for called in calls)


# --- values --------------------------------------------------------------------------------------------------


def _may_be_of_epochs(loop: _Loop) -> bool:
    """Return True if a loop may be over epochs: a library's only if it is over a range."""
    if is_users(loop.frame.f_code.co_filename):
        return True
    try:
        return isinstance(loop.node, ast.For) and isinstance(_value(loop.node.iter, loop.frame), range)
    except _Unknown:
        return False


def _goes_on(loop: _Loop) -> bool:
    """Return True if another round of a loop follows; a `while` continues unless its test says otherwise."""
    if isinstance(loop.node, ast.While):
        try:
            return bool(_value(loop.node.test, loop.frame))
        except _Unknown:
            return True
    if not isinstance(loop.node, ast.For):
        return False
    try:
        rounds, target = _value(loop.node.iter, loop.frame), loop.node.target
        target = target.elts[0] if isinstance(target, ast.Tuple) else target
        at = _value(target, loop.frame)
        return bool(rounds is math.inf or rounds.index(at) < len(rounds) - 1)
    except (_Unknown, ValueError, AttributeError, TypeError):
        return False


def _value(node: ast.expr, frame: FrameType) -> Any:
    """Return the value of an expression in a frame.

    Raises:
        _Unknown: The script's code would have to run.
    """
    try:
        return _looked_up(node, frame)
    except _Unknown:
        raise
    except Exception as error:
        raise _Unknown from error


def _looked_up(node: ast.expr, frame: FrameType) -> Any:
    match node:
        case ast.Constant():
            return node.value
        case ast.Name():
            return {**vars(builtins), **frame.f_globals, **frame.f_locals}[node.id]
        case ast.Attribute():
            return getattr(_value(node.value, frame), node.attr)
        case ast.Subscript():
            return _value(node.value, frame)[_value(node.slice, frame)]
        case ast.BinOp() if type(node.op) in _CALCULATES:
            return _CALCULATES[type(node.op)](_value(node.left, frame), _value(node.right, frame))
        case ast.UnaryOp() if type(node.op) in _CALCULATES:
            return _CALCULATES[type(node.op)](_value(node.operand, frame))
        case ast.Compare() if len(node.ops) == 1 and type(node.ops[0]) in _CALCULATES:
            return _CALCULATES[type(node.ops[0])](_value(node.left, frame), _value(node.comparators[0], frame))
        case ast.Call():
            return _called(node, frame)
    raise _Unknown


def _called(node: ast.Call, frame: FrameType) -> Any:
    """Return the result of a call of a known function; for a wrapper such as a progress bar, the iterable in it."""
    name = getattr(node.func, "attr", getattr(node.func, "id", ""))
    if name == "count":
        return math.inf
    arguments = [_value(argument, frame) for argument in node.args]
    if name == "trange":
        return range(*arguments)
    called = _value(node.func, frame)
    if called in _CALLED:
        return called(*arguments)
    if arguments and isinstance(arguments[0], range | list | tuple):
        return [*range(len(arguments[0]))] if called is enumerate else arguments[0]
    raise _Unknown

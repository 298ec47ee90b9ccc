"""Places in the user's source that advice is about: the loader's arguments, single transforms, `__getitem__`.

A place is kept only if it is the only one that matches the measurements; a wrong line would be worse than none.
"""

from __future__ import annotations

import ast
import inspect
import os
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch.utils.data import BatchSampler, DataLoader, RandomSampler

from bottleneck.job.loader_classes import SNAPSHOT_INTERVAL, is_pytorchs
from bottleneck.job.users_code import is_users, shown_path
from bottleneck.results.evidence import SourcePlace, TransformSeen

_MAX_FILES = 200
_MAX_BYTES = 500_000
_SETTINGS = ("num_workers", "prefetch_factor", "persistent_workers", "pin_memory", "batch_size")
_PLACES = (*_SETTINGS, "in_order", "multiprocessing_context", "timeout", SNAPSHOT_INTERVAL)
_DEFAULTS = {"num_workers": 0, "persistent_workers": False, "pin_memory": False, "batch_size": 1}
"""Defaults of a DataLoader's arguments."""
_BY_POSITION = tuple(inspect.signature(DataLoader).parameters)
"""The arguments of a DataLoader."""
_MAKERS = ("DataLoader", "Pipeline")
"""Names of calls that create a job's loader, besides classes of the user."""

_Point = tuple[int, int]
"""Line and column as the parser counts them."""


@dataclass(frozen=True)
class _Source:
    file: str
    lines: tuple[str, ...]
    tree: ast.Module

    def place(self, name: str, from_line: int, to_line: int, begin: _Point, end: _Point) -> SourcePlace:
        """Return a part of some whole lines."""
        return SourcePlace(
            name=name,
            file=self.file,
            line=from_line,
            text="\n".join(self.lines[from_line - 1 : to_line]),
            begin=self._offset(from_line, begin),
            end=self._offset(from_line, end),
        )

    def _offset(self, from_line: int, point: _Point) -> int:
        """Return the characters from the beginning of a line; the parser counts bytes within a line."""
        line, column = point
        before = sum(len(text) + 1 for text in self.lines[from_line - 1 : line - 1])
        return before + len(self.lines[line - 1].encode()[:column].decode(errors="replace"))


def find_places(loader: DataLoader[Any], transforms: Sequence[TransformSeen]) -> tuple[SourcePlace, ...]:
    """Return the places that are clearly meant; files are relative to the working directory."""
    sources = tuple(_sources())
    return (*_settings(sources, loader), *_transforms(sources, transforms), *_getitem(loader.dataset))


def _sources() -> Iterator[_Source]:
    """Yield the user's imported modules."""
    files = dict.fromkeys(getattr(module, "__dict__", {}).get("__file__") for module in tuple(sys.modules.values()))
    own = [file for file in files if isinstance(file, str) and file.endswith(".py") and is_users(file)]
    for file in own[:_MAX_FILES]:
        try:
            text = Path(file).read_text(encoding="utf-8") if os.path.getsize(file) <= _MAX_BYTES else ""
            yield _Source(shown_path(file), tuple(text.split("\n")), ast.parse(text))
        except (OSError, ValueError, SyntaxError, RecursionError, MemoryError):
            continue  # a file that is gone, or not in Python


# --- the loader -------------------------------------------------------------------------------------------


def maker_of(loader: DataLoader[Any]) -> tuple[str, int] | None:
    """Return file and line of the only call that may have made a loader; None if several may, or none."""
    found = [(source.file, call.lineno) for source in _sources() for call in _calls(source) if _makes(call, loader)]
    return found[0] if len(found) == 1 else None


def _settings(sources: Sequence[_Source], loader: DataLoader[Any]) -> Iterator[SourcePlace]:
    calls = ((source, call) for source in sources for call in _calls(source) if _makes(call, loader))
    found = [(source, call) for source, call in calls if _orders_alike(call, loader)]
    training = [(source, call) for source, call in found if _constants(call).get("shuffle") is True]
    for source, call in found if len(found) == 1 else training if len(training) == 1 else ():
        if all(keyword.arg is not None for keyword in call.keywords):  # a mapping may hold anything
            yield from (_setting(source, call, name) for name in _PLACES if name not in _by_position(call))


def _calls(source: _Source) -> Iterator[ast.Call]:
    return (node for node in ast.walk(source.tree) if isinstance(node, ast.Call))


def _makes(call: ast.Call, loader: DataLoader[Any]) -> bool:
    """Return True if a call may have made the loader: none of its arguments contradicts that."""
    made = _called(call)
    if made not in (*_MAKERS, type(loader).__name__) or not (call.keywords or call.args):
        return False
    given = {*(keyword.arg for keyword in call.keywords), *_by_position(call)} & {*_SETTINGS, None}  # None: a mapping
    fixed = {name: value for name, value in _constants(call).items() if name in given}
    batches = _batches(loader)
    has = {name: getattr(loader, name, None) for name in _SETTINGS}
    has["batch_size"] = loader.batch_size or getattr(batches, "batch_size", None)
    if made == "DataLoader" and None not in given:
        is_own = batches is None or is_pytorchs(batches, BatchSampler)  # not one passed to the call
        left_out: dict[str | None, Any] = {name: value for name, value in _DEFAULTS.items() if name not in given}
        return is_own and all(has[str(name)] == value for name, value in {**left_out, **fixed}.items())
    return bool(given) and all(has.get(str(name), value) == value for name, value in fixed.items())


def _batches(loader: DataLoader[Any]) -> Any:
    """Return the batch sampler of a loader; the inner one if it wraps another, as accelerate's may twice."""
    found = loader.batch_sampler
    for _ in range(2):
        found = getattr(found, "batch_sampler", found)
    return found


def _orders_alike(call: ast.Call, loader: DataLoader[Any]) -> bool:
    """Return True unless a call and the loader disagree about shuffling."""
    names = {*(keyword.arg for keyword in call.keywords), *_by_position(call)}
    shuffles = _constants(call).get("shuffle", None if "shuffle" in names else False)
    if _called(call) != "DataLoader" or {None, "sampler", "batch_sampler"} & names or shuffles is None:
        return True
    return bool(shuffles) == isinstance(getattr(_batches(loader), "sampler", loader.sampler), RandomSampler)


def _called(call: ast.Call) -> str:
    function = call.func
    return function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")


def _constants(call: ast.Call) -> Mapping[str | None, Any]:
    named = [*_by_position(call).items(), *((keyword.arg, keyword.value) for keyword in call.keywords)]
    return {name: value.value for name, value in named if isinstance(value, ast.Constant)}


def _by_position(call: ast.Call) -> Mapping[str, ast.expr]:
    """Return the arguments that a DataLoader is given without a name."""
    return dict(zip(_BY_POSITION, call.args, strict=False)) if _called(call) == "DataLoader" else {}


def _setting(source: _Source, call: ast.Call, name: str) -> SourcePlace:
    """Return the place of an argument, or the end of the last one."""
    given = next((keyword for keyword in call.keywords if keyword.arg == name), None)
    if given is not None:
        begin, end = (given.lineno, given.col_offset), _closed(source, given.value)
        return source.place(name, begin[0], end[0], begin, end)
    last = max((*call.args, *(keyword.value for keyword in call.keywords)), key=_end)
    end = _closed(source, last)
    return source.place(name, last.lineno, end[0], end, end)


def _closed(source: _Source, expression: ast.expr) -> _Point:
    """Return the end of an expression with the brackets around it, which the parser leaves out."""
    line, column = _end(expression)
    before = source.lines[expression.lineno - 1].encode()[: expression.col_offset].decode(errors="replace").rstrip()
    while before.endswith("("):
        before = before[:-1].rstrip()
        found = source.lines[line - 1].encode().find(b")", column)
        if found < 0 or re.search(r"[\w\])]$", before):  # of a call, or closed on another line
            break
        column = found + 1
    return line, column


def _end(expression: ast.expr) -> _Point:
    return expression.end_lineno or expression.lineno, expression.end_col_offset or 0


# --- transforms -------------------------------------------------------------------------------------------


def _transforms(sources: Sequence[_Source], transforms: Sequence[TransformSeen]) -> Iterator[SourcePlace]:
    for holder, named in _compositions(transforms).items():
        found = [(source, items) for source in sources for items in _lists(source) if _fits(items, named)]
        if len(found) == 1:
            source, items = found[0]
            for at in named:
                item = items[at]
                begin, end = (item.lineno, item.col_offset), _end(item)
                yield source.place(f"{holder}[{at}]", items[0].lineno, _end(items[-1])[0], begin, end)


def _compositions(transforms: Sequence[TransformSeen]) -> dict[str, dict[int, str]]:
    """Return the observed classes in each composition, by their positions in it."""
    found: dict[str, dict[int, str]] = {}
    for seen in transforms:
        holder, bracket, position = (seen.path or "").rpartition("[")
        if bracket and seen.name and position[:-1].isdigit():
            found.setdefault(holder, {})[int(position[:-1])] = seen.name
    return found


def _lists(source: _Source) -> Iterator[list[ast.expr]]:
    for node in ast.walk(source.tree):
        if isinstance(node, (ast.List, ast.Tuple)) and node.elts:
            yield node.elts
        elif isinstance(node, ast.Call) and len(node.args) > 1:
            yield node.args  # nn.Sequential(...)


def _fits(items: Sequence[ast.expr], named: Mapping[int, str]) -> bool:
    if max(named) >= len(items) or any(isinstance(item, ast.Starred) for item in items):
        return False
    return all(isinstance(call := items[at], ast.Call) and _called(call) == name for at, name in named.items())


# --- the dataset ------------------------------------------------------------------------------------------


def _getitem(dataset: Any) -> Iterator[SourcePlace]:
    method = inspect.unwrap(getattr(type(dataset), "__getitem__", None) or object.__init__)
    code = getattr(method, "__code__", None)
    if code is not None and is_users(code.co_filename):
        yield SourcePlace(
            name="__getitem__", file=shown_path(code.co_filename), line=code.co_firstlineno, text="", begin=0, end=0
        )

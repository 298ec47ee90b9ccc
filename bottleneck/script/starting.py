"""The start of a script: the parts of the time from its beginning to the end of its first step.

Until the first pass over a loader, samples of the main thread show the code at work: an import, the dataset's
`__init__`, or other code. After that, clocks are read. PyTorch is imported before the script begins, but counts as one
of its imports: without a diagnosis, the script would import it.
"""

from __future__ import annotations

import linecache
import re
import sys
import time
from collections.abc import Callable, Collection, Iterator
from types import CodeType, FrameType
from typing import Any, NamedTuple

from bottleneck.job.users_code import is_ours, is_users, shown_path
from bottleneck.loader.observing.lines import LineSampler
from bottleneck.loader.observing.meter import Spent
from bottleneck.results.starting import (
    DATASET,
    FIRST_STEP,
    IMPORTS,
    LOADERS,
    OTHER,
    WORKERS,
    Starting,
    StartingLine,
    StartingPart,
)
from bottleneck.script.around import Place, is_guarded
from bottleneck.script.iterators import Source

_IMPORTS = "<frozen importlib._bootstrap>", "_find_and_load"
"""File and function of Python that run the first import of each module."""
_IMPORT = re.compile(r"from\s+(?P<of>[\w.]+)\s+import\b|import\s+(?P<all>[\w., ]+)")
"""A line that imports: its module, or all of its modules with their new names."""
_MAX_STACKS = 10_000
"""Maximum different stacks; the time of further ones is divided in the same proportions."""
_MAX_LINES, _MIN_LINE_S = 5, 0.1
_MAX_WRAPPED = 8
"""Maximum nested datasets that are inspected."""


class _At(NamedTuple):
    """The code of a frame, and its current line."""

    code: CodeType
    line: int


class StartUp:
    """Observer of a script from its beginning to its first step; it has no evidence unless it was begun.

    Args:
        imported_s: Duration of the import of PyTorch before the script [s].
        clock: Monotonic time in seconds.
        sampler: Samples the lines of the thread that starts it.
    """

    def __init__(
        self,
        imported_s: float = 0.0,
        clock: Callable[[], float] = time.perf_counter,
        sampler: Callable[[Callable[[FrameType, Spent], None]], Any] = LineSampler,
    ) -> None:
        self._imported_s, self._clock = imported_s, clock
        self._sampler = sampler(self._see)
        self._began_s: float | None = None
        self._first_pass_s: float | None = None
        self._stacks: dict[tuple[_At, ...], float] = {}
        self._passes: dict[Source, float] = {}
        self._gave: dict[Source, list[float]] = {}
        """Times at which a source gave its first batch, and was asked for the second one [s]."""

    def begin(self) -> None:
        """Note that the script begins, in the calling thread."""
        self._began_s = self._clock()
        self._sampler.start()

    def end(self) -> None:
        """Stop sampling."""
        self._sampler.stop()

    def pass_begins(self, source: Source) -> None:
        """Note that a pass over a loader begins."""
        if self._began_s is None:
            return
        if self._first_pass_s is None:
            self._first_pass_s = self._clock()
            self.end()
        if source not in self._gave:
            self._passes[source] = self._clock()

    def gives(self, source: Source, waited_s: float) -> None:
        """Note that a source gives a batch for which the loop has waited [s]."""
        if self._began_s is None:
            return
        known = self._gave.setdefault(source, [])
        if len(known) < 2:
            known.append(self._clock() - (waited_s if known else 0.0))

    def _see(self, innermost: FrameType, spent: Spent) -> None:
        stack = _stack(innermost)
        if stack in self._stacks or len(self._stacks) < _MAX_STACKS:
            self._stacks[stack] = self._stacks.get(stack, 0.0) + spent.wall_s

    # --- results -------------------------------------------------------------------------------------------

    def evidence(self, source: Source, *trained: Any) -> Starting | None:
        """Return the evidence, when the loop asks for a batch; None if its first batch was not seen.

        Args:
            source: Source of the loop's batches.
            *trained: Further objects of the training, such as models and optimizers.
        """
        gave, began_s = self._gave.get(source), self._passes.get(source)
        if not gave or began_s is None or self._began_s is None or self._first_pass_s is None:
            return None
        before_s = self._first_pass_s - self._began_s
        loader = source.loader
        needed = {*_on_the_stack(), *_packages(loader, loader.dataset, loader.collate_fn, *trained)}
        parts, lines = _divided(self._stacks, before_s, _makers(loader.dataset), needed)
        asked_s = gave[1] if len(gave) > 1 else self._clock()
        found = {
            IMPORTS: parts.get(IMPORTS, 0.0) + self._imported_s,
            DATASET: parts.get(DATASET, 0.0),
            OTHER: parts.get(OTHER, 0.0),
            LOADERS: began_s - self._first_pass_s,
            WORKERS: gave[0] - began_s,
            FIRST_STEP: asked_s - gave[0],
        }
        return Starting(
            seconds=sum(found.values()),
            parts=tuple(StartingPart(name=name, seconds=seconds) for name, seconds in found.items() if seconds > 0),
            lines=lines,
        )


def _stack(innermost: FrameType) -> tuple[_At, ...]:
    """Return the frames of the script, the innermost first, without those inside an import."""
    frames: list[tuple[CodeType, int | None]] = []
    frame: FrameType | None = innermost
    # All frames at once: the code below may let the thread continue.
    while frame is not None:
        frames.append((frame.f_code, frame.f_lineno))
        frame = frame.f_back
    found: list[_At] = []
    for code, line in frames:
        if is_ours(code.co_filename):
            if found:
                break
        elif (code.co_filename, code.co_name) == _IMPORTS:
            found = [_At(code, 0)]
        elif not code.co_filename.startswith("<"):
            found.append(_At(code, line or 0))
    return tuple(found)


def _makers(dataset: Any) -> set[CodeType]:
    """Return the code of each `__init__` of a dataset's classes, and of the datasets in it."""
    found: set[CodeType] = set()
    queue = [dataset]
    for _ in range(_MAX_WRAPPED):
        if not queue:
            break
        one = queue.pop()
        found |= {code for kind in type(one).__mro__ if (code := getattr(vars(kind).get("__init__"), "__code__", None))}
        held = getattr(one, "__dict__", {})
        inner = held.get("datasets")
        queue += [held["dataset"]] if "dataset" in held else inner if isinstance(inner, list | tuple) else []
    return found


def _on_the_stack() -> Iterator[str]:
    """Yield the packages of the callers: one that runs the loop is among them."""
    frame: FrameType | None = sys._getframe()
    while frame is not None:
        yield str(frame.f_globals.get("__name__")).partition(".")[0]
        frame = frame.f_back


def _packages(*trained: Any) -> Iterator[str]:
    """Yield the packages that define objects of the training: functions, or classes with their bases."""
    for one in trained:
        for definition in (one, *type(one).__mro__):
            yield str(getattr(definition, "__module__", None)).partition(".")[0]


def _divided(
    stacks: dict[tuple[_At, ...], float], seconds: float, makers: set[CodeType], needed: Collection[str]
) -> tuple[dict[str, float], tuple[StartingLine, ...]]:
    """Divide the time before the loop among its parts and lines in proportion to the samples."""
    parts: dict[str, float] = {}
    lines: dict[tuple[str, _At, _At | None], float] = {}
    sampled_s = sum(stacks.values())
    for stack, spent_s in stacks.items():
        part, of_line = _part(stack, makers), spent_s * seconds / sampled_s
        parts[part] = parts.get(part, 0.0) + of_line
        users = [at for at in stack if is_users(at.code.co_filename)]
        if users:
            of_module = [at for at in users if at.code.co_name == "<module>"]
            key = part, users[0], of_module[-1] if of_module else None
            lines[key] = lines.get(key, 0.0) + of_line
    costliest = sorted(lines.items(), key=lambda item: -item[1])[:_MAX_LINES]
    shown = tuple(_line(*key, spent_s, needed) for key, spent_s in costliest if spent_s >= _MIN_LINE_S)
    return parts or {OTHER: seconds}, shown


def _part(stack: tuple[_At, ...], makers: set[CodeType]) -> str:
    if any((at.code.co_filename, at.code.co_name) == _IMPORTS for at in stack):
        return IMPORTS
    return DATASET if any(at.code in makers for at in stack) else OTHER


def _line(part: str, at: _At, of_module: _At | None, seconds: float, needed: Collection[str]) -> StartingLine:
    """Describe a user's line, and note who needs it: the training, or a worker that runs the script's module again."""
    path = at.code.co_filename
    code = linecache.getline(path, at.line).strip()
    return StartingLine(
        part=part,
        path=shown_path(path),
        line=at.line,
        code=code or None,
        seconds=seconds,
        again=of_module is not None and not is_guarded(Place(of_module.code.co_filename, of_module.line)),
        needed=True if part == IMPORTS and any(name in needed for name in _imported(code)) else None,
    )


def _imported(code: str) -> Iterator[str]:
    """Yield the packages that a line imports."""
    found = _IMPORT.match(code)
    for name in (found["of"] or found["all"]).split(",") if found else ():
        yield name.split()[0].partition(".")[0] if name.strip() else ""

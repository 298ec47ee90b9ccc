"""Record the calls of the places at which a dataset is cut: their arguments, their outputs and their times.

A *site* is such a place, known by its name. What stands there (`bottleneck.staging.cutting.Cut`) asks the tape's
handler at each call; while there is none, calls pass through.
"""

from __future__ import annotations

import random
import sys
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from bottleneck.staging import trees
from bottleneck.staging.tail import Tail

Function = Callable[..., Any]
Handler = Callable[[str, Function, tuple[Any, ...], dict[str, Any]], Any]
"""Answers a call: the site, the function that stands there, and what it is called with."""


@dataclass(frozen=True)
class RngState:
    """The global random number generators that dataset code draws from."""

    python: Any
    numpy: Any
    torch: torch.Tensor

    @staticmethod
    def capture() -> RngState:
        """Return the present state of the three global generators."""
        return RngState(random.getstate(), np.random.get_state(), torch.get_rng_state())

    def restore(self) -> None:
        """Set the three global generators to this state."""
        random.setstate(self.python)
        np.random.set_state(self.numpy)
        torch.set_rng_state(self.torch)


@dataclass
class Call:
    """One recorded call; arguments and output are copies that nobody else holds."""

    site: str
    function: Function
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    output: Any
    original: Any = None
    """The output object itself, until it has been looked for in the sample."""
    started_s: float = 0.0
    ended_s: float = 0.0
    rng_before: RngState | None = None
    rng_after: RngState | None = None


@dataclass
class Tape:
    """What the cuts of one dataset do at present, and what they have recorded."""

    clock: Callable[[], float] = time.perf_counter
    handler: Handler | None = None
    stages: dict[str, str | None] = field(default_factory=dict)
    """Site -> the stage that its calls belong to; None while no call has been seen."""
    calls: list[Call] = field(default_factory=list)
    copies: list[tuple[float, float]] = field(default_factory=list)
    """(when, how long) arguments and outputs were copied while recording; not the user's time."""
    chosen: set[str] = field(default_factory=set)
    """Sites that the user named."""
    unusable: dict[str, str] = field(default_factory=dict)
    """Sites that cannot be used, and why."""

    def __post_init__(self) -> None:
        self._open: list[str] = []
        self._keep_rng = False
        self.copier = trees.Copier()
        self.tail: Tail | None = None
        self.locals: dict[str, Any] | None = None

    @contextmanager
    def recording(self, *, keep_rng: bool = False) -> Iterator[list[Call]]:
        """Record every call made inside the block."""
        self.calls, self.copies, self._keep_rng = [], [], keep_rng
        self.copier = trees.Copier()
        self.locals = None
        self._open.clear()
        self.handler = self._record
        try:
            yield self.calls
        finally:
            self.handler = None

    def _record(self, site: str, function: Function, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        stage = self.stages[site]
        if stage is None:
            stage = self.stages[site] = _stage_from_arguments(args, kwargs)
        if self._open:
            outer = self._open[-1]
            if outer not in self.chosen and self.stages[outer] != stage:
                self.unusable[outer] = "it does the work of two stages"
            return function(*args, **kwargs)
        if site in self.unusable:
            return function(*args, **kwargs)
        before = self.clock()
        if self.tail is not None and stage == "augment" and self.locals is None:
            self.locals = self.tail.capture(sys._getframe(1), self.copier.copy)
        call = Call(site, function, self.copier.copy(args), self.copier.copy(kwargs), None)
        if self._keep_rng:
            call.rng_before = RngState.capture()
        self._open.append(site)
        call.started_s = self.clock()
        try:
            output = function(*args, **kwargs)
        finally:
            self._open.pop()
        call.ended_s = self.clock()
        if isinstance(output, (Generator, Iterator)):
            self.unusable[site] = "it returns a generator, whose work is done later"
            return output
        if self._keep_rng:
            call.rng_after = RngState.capture()
        call.original, call.output = output, self.copier.copy(output)
        self.calls.append(call)
        self.copies.append((before, call.started_s - before))
        self.copies.append((call.ended_s, self.clock() - call.ended_s))
        return output

    def copying_s(self, before_s: float | None = None) -> float:
        """Time spent copying in the last recording, up to a moment or altogether."""
        return sum(seconds for when, seconds in self.copies if before_s is None or when < before_s)

    def stage(self, site: str) -> str | None:
        """The stage that a site's calls belong to; None while no call has been seen."""
        return self.stages[site]


def _stage_from_arguments(args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
    """A callable fed with an index, a path or bytes loads; one fed with data augments."""
    given = [*args, *kwargs.values()]
    return "load" if all(trees.is_primitive(arg) or hasattr(arg, "__fspath__") for arg in given) else "augment"

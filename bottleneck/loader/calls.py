"""Record the calls of the places at which a dataset is cut: their arguments, their outputs and their times.

A *site* is such a place, known by its name: the path of a callable on the dataset, or `@` and the name of a stage that
the user has marked. What stands there (`bottleneck.loader.cut.Cut`, or the mark) asks a handler at each
call; while there is none, calls pass through. Where the user has marked stages, they are the only cuts.
"""

from __future__ import annotations

import copy
import random
import threading
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from bottleneck.job import marks
from bottleneck.loader import trees

_IN_A_THREAD = (
    "it is called in a thread that the job's own code started (where that runs ahead of the loop, let the thread "
    "iterate bottleneck.watch(batches))"
)
Function = Callable[..., Any]


def seed_generators(seed: int) -> None:
    """Seed the global generators that the user's code draws from."""
    random.seed(seed)
    np.random.seed(seed % 2**32)
    torch.manual_seed(seed)


@dataclass(frozen=True)
class RngState:
    """The global random number generators that dataset code draws from."""

    python: Any
    numpy: Any
    torch: torch.Tensor

    @staticmethod
    def capture() -> RngState:
        return RngState(random.getstate(), np.random.get_state(), torch.get_rng_state())

    def is_same(self, other: RngState) -> bool:
        """Return True if nothing was drawn between the two."""
        return (
            self.python == other.python
            and torch.equal(self.torch, other.torch)
            and all(np.array_equal(a, b) for a, b in zip(self.numpy, other.numpy, strict=True))
        )

    def restore(self) -> None:
        random.setstate(self.python)
        np.random.set_state(self.numpy)
        torch.set_rng_state(self.torch)


@dataclass
class Call:
    """One recorded call; arguments and output are copies that nothing else holds."""

    site: str
    function: Function
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    output: Any
    original: Any = None
    """The output object itself, until it has been looked for in the sample, or in the batch."""
    started_s: float = 0.0
    ended_s: float = 0.0
    rng_before: RngState | None = None
    rng_after: RngState | None = None
    inner: list[Call] = field(default_factory=list)
    """Calls of other marked stages inside this one."""


@dataclass
class Sites:
    """A worker's knowledge of the sites of its dataset."""

    stages: dict[str, str | None] = field(default_factory=dict)
    """Site -> the stage that its calls belong to; None before the first call."""
    chosen: set[str] = field(default_factory=set)
    """Those that the user named."""
    guessed: set[str] = field(default_factory=set)
    """Those whose stage was guessed from their arguments."""
    unusable: dict[str, str] = field(default_factory=dict)
    """Those that cannot be used, and why."""
    changes_arguments: dict[str, float] = field(default_factory=dict)
    """Those that change their arguments in place -> seconds that a copy of them takes, a call."""
    changed_outputs: dict[str, float] = field(default_factory=dict)
    """Those whose output later code changes in place -> seconds that a copy of it takes, a call."""
    marked: bool = False
    """Marked stages were called within `__getitem__`, so that there are no other cuts."""


@dataclass
class Tape:
    """The present task of the cuts of one dataset, and what they have recorded."""

    clock: Callable[[], float] = time.perf_counter
    handler: marks.Handler | None = None
    cuts: list[Any] = field(default_factory=list)
    """Cuts at the sites that are paths of callables on the dataset."""
    sites: Sites = field(default_factory=Sites)
    calls: list[Call] = field(default_factory=list)
    copies: list[tuple[float, float]] = field(default_factory=list)
    """(when, how long) arguments and outputs were copied while recording; not the user's time."""

    def __post_init__(self) -> None:
        self._open: list[Call] = []
        """Calls at work, the innermost last; of those that are no marked stages, one at most."""
        self._passed: set[str] = set()
        """Sites that are no cuts, which is not worth a warning."""
        self._keep_rng = False
        self.copier = trees.Copier()
        self.restarted = False
        """Marked stages were called for the first time, so that other cuts, recorded until then, count no more."""
        self._collating = False
        self._thread = threading.get_ident()

    @contextmanager
    def answered_by(self, handler: marks.Handler) -> Iterator[None]:
        """Let a handler answer the calls of all cuts, marked stages included, made inside the block."""
        self.handler = marks.handler = handler
        try:
            yield
        finally:
            self.handler = marks.handler = None

    @contextmanager
    def recording(self, *, keep_rng: bool = False, collating: bool = False) -> Iterator[list[Call]]:
        """Record every call made inside the block.

        Args:
            keep_rng: Keep the states of the random number generators with each call.
            collating: It is the collate function that runs: only marked stages are cuts there.
        """
        self.calls = []
        self.copies = []
        self._keep_rng = keep_rng
        self._collating = collating
        self.copier = trees.Copier()
        self._open.clear()
        self._thread = threading.get_ident()
        with self.answered_by(self._record):
            yield self.calls

    @contextmanager
    def listening(self) -> Iterator[set[str]]:
        """Gather the sites that are called inside the block, marked stages included."""
        called: set[str] = set()

        def notice(site: str, function: Function, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
            called.add(site)
            return function(*args, **kwargs)

        with self.answered_by(notice):
            yield called

    def _record(self, site: str, function: Function, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if threading.get_ident() != self._thread:
            self.sites.unusable[site] = _IN_A_THREAD
        marked = marks.is_mark(site)
        if marked and not self.sites.marked and not self._collating:
            self.sites.marked = self.restarted = True
        if site in self.sites.unusable or not (
            all(call.site != site for call in self._open) if marked else self._is_cut(site, args, kwargs)
        ):
            return function(*args, **kwargs)
        before = self.clock()
        call = self._begin(site, function, args, kwargs)
        self._open.append(call)
        call.started_s = self.clock()
        try:
            output = function(*args, **kwargs)
        finally:
            self._open.pop()
        call.ended_s = self.clock()
        if isinstance(output, (Generator, Iterator)):
            self._refuse(site, "it returns a generator, whose work is done later")
        elif marked and (refusing := _find_uncopyable(output)) is not None:
            self._refuse(site, f"it returns what cannot be copied ({refusing})")
        if site not in self._passed and site not in self.sites.unusable:
            self._keep(call, output, before)
        return output

    def _is_cut(self, site: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
        """Return True if a call of a callable on the dataset is recorded; marks, if any, are the only cuts.

        A call inside another one is not: of two sites, the outer one is kept.
        """
        if self.sites.marked or self._collating or site in self._passed:
            return False
        if self.sites.stages[site] is None:
            self.sites.stages[site] = _stage_from_arguments(args, kwargs)
            self.sites.guessed.add(site)
        if self._open:
            self._weigh(self._open[-1].site, site)
        return not self._open

    def _begin(self, site: str, function: Function, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Call:
        call = Call(site, function, args, kwargs, None)
        if marks.is_mark(site):
            call.args, call.kwargs = copy_arguments(call, self.copier)
            if self._open:
                self._open[-1].inner.append(call)
            return call
        call.args, call.kwargs = self.copier.copy(args), self.copier.copy(kwargs)
        if self._keep_rng:
            call.rng_before = RngState.capture()
        return call

    def _weigh(self, outer: str, inner: str) -> None:
        """Decide which of two nested cuts gives way: only one of them can be served."""
        if outer in self.sites.chosen:
            return
        guessed, stages = self.sites.guessed, self.sites.stages
        # A helper that takes a number is no loader because of that: the name of the other says more.
        if outer in guessed and inner not in guessed:
            self._refuse(outer, "it calls a stage, judging by its name")
        elif (outer in guessed or inner not in guessed) and stages[outer] != stages[inner]:
            self._refuse(outer, "it does the work of two stages")

    def _refuse(self, site: str, why: str) -> None:
        """Note that a site is no cut; a helper whose stage was only guessed is not worth a warning."""
        if site in self.sites.guessed:
            self._passed.add(site)
        else:
            self.sites.unusable[site] = why

    def _keep(self, call: Call, output: Any, before_s: float) -> None:
        """Copy what a call returned, and keep it; `before_s` is when the copying of its arguments began."""
        if self._keep_rng:
            call.rng_after = RngState.capture()
        if self._collating or not marks.is_mark(call.site):
            call.original = output
        call.output = self.copier.copy(output)
        self.calls.append(call)
        self.copies.append((before_s, call.started_s - before_s))
        self.copies.append((call.ended_s, self.clock() - call.ended_s))

    def copying_s(self, before_s: float | None = None) -> float:
        """Time spent copying in the last recording, up to a moment or altogether."""
        return sum(seconds for when, seconds in self.copies if before_s is None or when < before_s)

    def stage(self, site: str) -> str | None:
        """The stage that the calls of a callable on the dataset belong to; None before the first call."""
        return self.sites.stages.get(site)


def copy_arguments(call: Call, copier: trees.Copier | None = None) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Copy the data that a marked function is called with; anything else, such as its dataset, stays what it is."""
    args, copied = call.args, (copier or trees.Copier()).copy_data
    own = 1 if args and not trees.is_data(args[0]) and hasattr(type(args[0]), call.function.__name__) else 0
    return (*args[:own], *map(copied, args[own:])), {name: copied(value) for name, value in call.kwargs.items()}


def _stage_from_arguments(args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
    """A callable fed with an index, a path or bytes loads; one fed with data augments."""
    given = [*args, *kwargs.values()]
    return "load" if all(trees.is_primitive(arg) or hasattr(arg, "__fspath__") for arg in given) else "augment"


def _find_uncopyable(value: Any) -> str | None:
    """Return the type of a leaf that refuses to be copied, such as an open file; None if all can be."""
    for leaf in trees.leaves(value):
        if trees.is_data(leaf) or callable(leaf):
            continue
        try:
            copy.deepcopy(leaf)
        except Exception:  # noqa: BLE001 - any user type may refuse
            return type(leaf).__name__
    return None

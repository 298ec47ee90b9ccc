"""Record and replay the calls of the callables at which a dataset is cut.

A `Cut` stands in for a callable on the dataset. While nothing is recorded or replayed it passes calls through.
"""

from __future__ import annotations

import copy
import random
import sys
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch.utils.data import Dataset

from bottleneck.pipeline.cuts import MAX_MEMBERS, CutSite, resolve
from bottleneck.staging import stages, trees
from bottleneck.staging.tail import Tail

_BIT = {"load": stages.LOAD, "augment": stages.AUGMENT}


class StopAfterCut(BaseException):
    """Leaves `__getitem__` after its last cut, so that the code behind it does not run."""


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
    """One recorded call of a cut; arguments and output are copies that nobody else holds."""

    site: int
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    output: Any
    original: Any = None
    """The output object itself, until it has been looked for in the sample."""
    started_s: float = 0.0
    ended_s: float = 0.0
    rng_before: RngState | None = None
    rng_after: RngState | None = None


class Cut:
    """Stands in for a callable on the dataset."""

    def __init__(self, function: Callable[..., Any], site: int, stage: str | None, tape: Tape) -> None:
        self._cut_function = function
        self._cut_site = site
        self._cut_stage = stage
        self._cut_tape = tape

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Record, replay or pass through, as the tape says."""
        handler = self._cut_tape.handler
        if handler is None:
            return self._cut_function(*args, **kwargs)
        return handler(self, args, kwargs)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_cut_"):  # not there yet, while a copy is being made
            raise AttributeError(name)
        return getattr(self._cut_function, name)

    def __setattr__(self, name: str, value: Any) -> None:
        if name.startswith("_cut_"):
            object.__setattr__(self, name, value)
        else:
            setattr(self._cut_function, name, value)

    def __copy__(self) -> Any:
        return copy.copy(self._cut_function)

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        return copy.deepcopy(self._cut_function, memo)

    def __reduce_ex__(self, protocol: Any) -> tuple[Any, ...]:
        """Copies and pickles are those of the callable; their calls are not recorded."""
        return _itself, (self._cut_function,)

    def __repr__(self) -> str:
        return repr(self._cut_function)

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        """The class of the callable, so that `isinstance` in the user's code still holds."""
        return type(self._cut_function)


def _itself(value: Any) -> Any:
    return value


# Looked up on the class, past `__getattr__`: a dataset may iterate over its augmentation instead of calling it.
_SPECIAL = (
    "__len__",
    "__iter__",
    "__next__",
    "__getitem__",
    "__contains__",
    "__bool__",
    "__enter__",
    "__exit__",
)


def _cut_class(cls: type) -> type[Cut]:
    """Return a class of cuts with the special methods that a callable's class has."""

    def forward(name: str) -> Callable[..., Any]:
        return lambda cut, *args: getattr(cut._cut_function, name)(*args)

    return type("Cut", (Cut,), {name: forward(name) for name in _SPECIAL if hasattr(cls, name)})


@dataclass
class Tape:
    """What the cuts of one dataset do at present, and what they have recorded."""

    clock: Callable[[], float] = time.perf_counter
    cuts: dict[int, Cut] = field(default_factory=dict)
    handler: Callable[[Cut, tuple[Any, ...], dict[str, Any]], Any] | None = None
    calls: list[Call] = field(default_factory=list)
    copies: list[tuple[float, float]] = field(default_factory=list)
    """(when, how long) arguments and outputs were copied while recording; not the user's time."""
    chosen: set[int] = field(default_factory=set)
    """Sites that the user named."""
    unusable: dict[int, str] = field(default_factory=dict)
    """Sites that cannot be used, and why."""

    def __post_init__(self) -> None:
        self._open: list[int] = []
        self._keep_rng = False
        self.copier = trees.Copier()
        self.tail: Tail | None = None
        self.locals: dict[str, Any] | None = None

    # --- recording ---

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

    def _record(self, cut: Cut, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        site = cut._cut_site
        if cut._cut_stage is None:
            cut._cut_stage = _stage_from_arguments(args, kwargs)
        if self._open:
            outer = self._open[-1]
            if outer not in self.chosen and self.stage(outer) != cut._cut_stage:
                self.unusable[outer] = "it does the work of two stages"
            return cut._cut_function(*args, **kwargs)
        if site in self.unusable:
            return cut._cut_function(*args, **kwargs)
        before = self.clock()
        if self.tail is not None and cut._cut_stage == "augment" and self.locals is None:
            self.locals = self.tail.capture(sys._getframe(1), self.copier.copy)
        call = Call(site, self.copier.copy(args), self.copier.copy(kwargs), None)
        if self._keep_rng:
            call.rng_before = RngState.capture()
        self._open.append(site)
        call.started_s = self.clock()
        try:
            output = cut._cut_function(*args, **kwargs)
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

    # --- replaying ---

    @contextmanager
    def replaying(self, calls: list[Call], play: Playback) -> Iterator[None]:
        """Serve the recorded outputs of some stages inside the block, and run the others for real."""
        remaining: dict[int, list[Call]] = {}
        for call in calls:
            remaining.setdefault(call.site, []).append(call)
        position = dict.fromkeys(remaining, 0)
        augment_calls_left = sum(self.stage(call.site) == "augment" for call in calls)
        inside = False

        def handle(cut: Cut, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
            nonlocal augment_calls_left, inside
            site, stage = cut._cut_site, cut._cut_stage
            recorded = remaining.get(site)
            # Calls inside another cut were not recorded either.
            if inside or site not in play.sites or not recorded:
                return cut._cut_function(*args, **kwargs)
            call = recorded[position[site] % len(recorded)]
            position[site] += 1
            if _BIT[stage or "load"] & play.replayed:
                if play.restore_rng and call.rng_after is not None:
                    call.rng_after.restore()
                output = trees.copy_deep(call.output) if play.copy_outputs else call.output
            else:
                if play.recorded_arguments:
                    args, kwargs = call.args, call.kwargs
                    if site in play.copy_arguments:
                        args, kwargs = trees.copy_deep(args), trees.copy_deep(kwargs)
                inside = True
                try:
                    output = cut._cut_function(*args, **kwargs)
                finally:
                    inside = False
            if stage == "augment":
                augment_calls_left -= 1
                if play.stop_after_augment and augment_calls_left == 0:
                    raise StopAfterCut
            return output

        self.handler = handle
        try:
            yield
        finally:
            self.handler = None

    def stage(self, site: int) -> str | None:
        """The stage that a site's calls belong to; None while no call has been seen."""
        return self.cuts[site]._cut_stage

    def call_really(self, call: Call, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Call the function behind a cut."""
        return self.cuts[call.site]._cut_function(*args, **kwargs)


@dataclass(frozen=True)
class Playback:
    """How a replay is done.

    Attributes:
        replayed: Bits of the stages whose recorded outputs are served.
        sites: The sites in use; calls of others pass through.
        stop_after_augment: Raise `StopAfterCut` after the last call of the augmentation.
        copy_outputs: Serve a fresh copy each time, because later code changes it in place.
        restore_rng: Leave the random number generators as the real call would have left them.
        recorded_arguments: Real calls get their recorded arguments instead of those that they are given.
        copy_arguments: Sites that change their arguments, and so get a copy of the recorded ones.
    """

    replayed: int
    sites: frozenset[int]
    stop_after_augment: bool = False
    copy_outputs: bool = True
    restore_rng: bool = False
    recorded_arguments: bool = False
    copy_arguments: frozenset[int] = frozenset()


def _stage_from_arguments(args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
    """A callable fed with an index, a path or bytes loads; one fed with data augments."""
    given = [*args, *kwargs.values()]
    return "load" if all(trees.is_primitive(arg) or hasattr(arg, "__fspath__") for arg in given) else "augment"


def install(dataset: Any, sites: tuple[CutSite, ...], tape: Tape, *, in_place: bool) -> Any:
    """Put cuts in the place of a dataset's callables.

    Args:
        dataset: The user's dataset.
        sites: Where to cut; a site that refuses is left out and noted on the tape.
        tape: Receives the cuts.
        in_place: Change this very object (in a worker it is the worker's own); otherwise every holder on the
            way is shallow-copied, and the user's object stays as it is.

    Returns:
        The dataset to use.
    """
    copies: dict[int, Any] = {}
    root = dataset if in_place else _copy_datasets(dataset, copies)
    copied: dict[tuple[str | int, ...], Any] = {(): root}
    ours = {id(copy) for copy in copies.values()}
    for number, site in enumerate(sites):
        try:
            holder = resolve(root, site.path) if in_place else _copied_holder(copied, site.path, ours)
            function = getattr(holder, site.attribute)
            cut = _cut_class(type(function))(function, number, site.stage, tape)
            setattr(holder, site.attribute, cut)
        except Exception as error:  # noqa: BLE001 - any user class may refuse; the site is then not used
            tape.unusable[number] = f"it cannot be replaced on the dataset ({type(error).__name__})"
            continue
        tape.cuts[number] = cut
        if site.chosen:
            tape.chosen.add(number)
    return root


def _copy_datasets(dataset: Any, copies: dict[int, Any]) -> Any:
    """Copy a dataset and the datasets inside it, level by level; one that is there twice stays one."""
    if id(dataset) in copies:
        return copies[id(dataset)]
    copies[id(dataset)] = clone = _copy_level(dataset)
    for name, value in list(getattr(clone, "__dict__", {}).items()):
        if isinstance(value, Dataset):
            clone.__dict__[name] = _copy_datasets(value, copies)
        elif isinstance(value, (list, tuple)) and any(isinstance(member, Dataset) for member in value[:MAX_MEMBERS]):
            # A tuple becomes a list, so that its members can be replaced.
            members = [_copy_datasets(m, copies) if isinstance(m, Dataset) else m for m in value]
            clone.__dict__[name] = copies[id(value)] = members
    return clone


def _copied_holder(copied: dict[tuple[str | int, ...], Any], path: tuple[str | int, ...], ours: set[int]) -> Any:
    """Return the object at a path, which is copied first if it is the user's."""
    if path in copied:
        return copied[path]
    parent = _copied_holder(copied, path[:-1], ours)
    key = path[-1]
    child = parent[key] if isinstance(key, int) else getattr(parent, key)
    if id(child) not in ours:
        child = list(child) if isinstance(child, (list, tuple)) else _copy_level(child)
        if isinstance(key, int):
            parent[key] = child
        else:
            setattr(parent, key, child)
    copied[path] = child
    return child


def _copy_level(value: Any) -> Any:
    """Copy an object without its contents, past a `__copy__` or `__reduce__` of the user's where there is a dict."""
    state = getattr(value, "__dict__", None)
    if state is None or getattr(type(value), "__new__") is not object.__new__:  # noqa: B009 - mypy takes the two for unlike
        return copy.copy(value)
    clone = object.__new__(type(value))
    clone.__dict__.update(state)
    for cls in type(value).__mro__:
        slots = vars(cls).get("__slots__", ())
        for slot in (slots,) if isinstance(slots, str) else slots:
            if slot not in ("__dict__", "__weakref__") and hasattr(value, slot):
                object.__setattr__(clone, slot, getattr(value, slot))
    return clone

"""Make a few samples for real, each twice: note the data touched for it, and whether it comes out the same again."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

import numpy as np
import torch

from bottleneck.job import containers
from bottleneck.job.marks import is_mark
from bottleneck.loader import trees
from bottleneck.loader.calls import Function, RngState, Tape, seed_generators
from bottleneck.loader.control import Control
from bottleneck.loader.examining.touches import READ, VIEWS, Touched, Touches, behind, read_bytes
from bottleneck.loader.observing.images import CHANNELS
from bottleneck.loader.observing.observe import Watching
from bottleneck.loader.recording.copies import is_shared, storages
from bottleneck.loader.user_code import SKIPPED, UserCode, UserCodeError

MAX_ITEMS, ENOUGH_S = 8, 0.4
"""Items and seconds that are enough for one worker."""
_OTHER_SEED = 20_011
_MAX_COPIED = 1 << 28
"""Bytes of an item that are kept to be compared."""
ITEM = ""
"""Instead of a stage: the item that is returned."""


@dataclass(frozen=True)
class Output:
    """The output of a stage while an item was made."""

    stage: str
    """Its name, or `ITEM`."""
    nbytes: int
    frames: int
    until_s: float
    """Time from the beginning of the item until then."""
    again: bool | None = None
    """It was the same both times, without a random number drawn until then; None if it was made once."""
    again_s: float = 0.0
    """As `until_s`, when it was made for the second time."""


@dataclass
class ItemSeen:
    """An item that was examined: a sample, or a batch of a dataset that fetches whole ones."""

    samples: int
    touched: dict[tuple[str, str], Touched]
    """(Source, stage) -> what was touched."""
    outputs: list[Output] = field(default_factory=list)
    """In the order in which they came, the item last."""

    def of_stage(self, name: str) -> list[Output]:
        return [output for output in self.outputs if output.stage == name]


@dataclass
class Examination:
    """A worker's findings so far."""

    items: list[ItemSeen] = field(default_factory=list)
    is_complete: bool = False


class Examiner(Watching):
    """Examines the first items that one worker is asked for."""

    def __init__(
        self, user_code: UserCode, tape: Tape, control: Control, clock: Callable[[], float] = time.perf_counter
    ) -> None:
        super().__init__(user_code, tape)
        self._control = control
        self._clock = clock
        self._found = Examination()
        self._began_s: float | None = None
        self._stage = ITEM
        self._outputs: list[tuple[Output, Any]] = []
        """Outputs of the stages of the present item, with copies."""
        self._touches = Touches(lambda: self._stage, clock)

    def fetch(self, request: Any) -> Any:
        user_code = self._user_code
        if not user_code.batched:
            self._examine_some(user_code.item, [request])
        elif user_code.fetches_batches:
            self._examine_some(user_code.batch, [request], len(request))
        else:
            self._examine_some(user_code.item, request)
        return SKIPPED

    def next_items(self) -> list[Any]:
        self._examine_some(self._user_code.next_item, [None])
        return [SKIPPED]

    def _examine_some(self, run: Callable[[Any], Any], requests: Iterable[Any], samples: int = 1) -> None:
        """Examine items until enough have been, and leave what was found for the main process."""
        found = self._found
        if found.is_complete:
            return
        for request in requests:
            self._examine(run, request, samples)
            passed_s = self._clock() - (self._began_s or 0.0)
            found.is_complete = len(found.items) >= MAX_ITEMS or passed_s > ENOUGH_S
            if found.is_complete:
                break
        self._control.examinations.write(self._user_code.number, found)

    def _examine(self, run: Callable[[Any], Any], request: Any, samples: int) -> None:
        if self._began_s is None:
            self._began_s = self._clock()
        before = read_bytes()
        with self._touches.counting():
            first, value = self._run(run, request)
        after, drawn, touched = read_bytes(), RngState.capture(), self._touches.found
        loads = next((stage for stage in ("load", "fetch") if stage in self.plan.within_sample), None)
        if before is not None and after is not None and loads is not None:
            touched[READ, loads] = Touched(nbytes=after - before)
        seen = ItemSeen(samples, touched, [output for output, _ in first])
        self._found.items.append(seen)
        held: set[int] = set()
        try:
            if not self._user_code.iterable:
                seed_generators(_OTHER_SEED)
                second, again = self._run(run, request)
                held = storages(again)
                if [output.stage for output, _ in first] == [output.stage for output, _ in second]:
                    seen.outputs = [_compared(*pair) for pair in zip(first, second, strict=True)]
        except UserCodeError:  # an index that may be asked for only once
            return
        finally:
            if self._user_code.in_worker:
                self._see_sent(value, held, touched)
            drawn.restore()
            self._outputs = []

    def _see_sent(self, value: Any, held: set[int], touched: dict[tuple[str, str], Touched]) -> None:
        """Note what a batch of an item sends with it: a queue copies all of the private memory behind its tensors.

        What the dataset holds is copied once, and shared from then on.
        """
        user_code = self._user_code
        with suppress(Exception):  # a collate function may want more, and a tensor may be of a kind without memory
            batch = user_code.collate([value] if user_code.batched and not user_code.fetches_batches else value)
            touch, sent = behind(tensor for _, tensor in containers.tensors(batch) if not is_shared(tensor))
            largest = max(sent, key=lambda address: sent[address].nbytes())
            if largest in held:
                return
            began_s = self._clock()
            for storage in sent.values():
                storage.clone()  # type: ignore[no-untyped-call]  # torch has no annotations for it
            key = VIEWS, self.plan.within_sample[0] if largest in storages(value) else "collate"
            touched.setdefault(key, Touched()).add(touch, self._clock() - began_s)

    # --- while the user's code runs ------------------------------------------------------------------------

    def _run(self, run: Callable[[Any], Any], request: Any) -> tuple[list[tuple[Output, Any]], Any]:
        """Make an item, and return what its stages gave, with copies, and the item."""
        self._begin_part(self.plan.marks.sample)
        self._outputs = []
        self._before = RngState.capture()
        self._stage = self._base_stage
        self._started_s = self._clock()
        try:
            with self._tape.answered_by(self._answer):
                value = run(request)
        finally:
            self._stage = ITEM
        self._note(ITEM, value)
        return self._outputs, value

    def _answer(self, site: str, function: Function, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        augments = not is_mark(site) and self._stage_of(site) == "augment"
        # Of several calls, a later one may get what an earlier one gave.
        if augments and (not self._outputs or self._before.is_same(RngState.capture())):
            self._note("load", [*args, *kwargs.values()])
        return super()._answer(site, function, args, kwargs)

    def _run_in(self, stage: str, function: Function, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        outer, self._stage = self._stage, stage
        try:
            output = function(*args, **kwargs)
        finally:
            self._stage = outer
        if self.plan.strategy != "template":
            self._note(stage, output)
        return output

    def _note(self, stage: str, value: Any) -> None:
        """Keep a copy of what a stage gave, in time that does not count."""
        now_s = self._clock()
        nbytes = trees.nbytes(value)
        copied = None
        if not self._user_code.iterable and nbytes <= _MAX_COPIED and self._before.is_same(RngState.capture()):
            with suppress(Exception):  # any user type may refuse
                copied = [trees.copy_deep(value)]
        self._outputs.append((Output(stage, nbytes, frames_in(value), now_s - self._started_s), copied))
        self._started_s += self._clock() - now_s


def _compared(first: tuple[Output, Any], second: tuple[Output, Any]) -> Output:
    (output, value), (again, other) = first, second
    same = value is not None and other is not None and trees.equal(value, other)
    return Output(output.stage, output.nbytes, output.frames, output.until_s, same, again.until_s)


def frames_in(value: Any) -> int:
    """Return how many images there are in what looks like images, such as the frames of a video."""
    return sum(map(_frames, islice(trees.leaves(value), 64)))


def _frames(leaf: Any) -> int:
    if not isinstance(leaf, (torch.Tensor, np.ndarray)) or leaf.ndim < 3:
        return 0
    sides = list(leaf.shape)
    channels = next((at for at in (-1, -3, 0) if sides[at] in CHANNELS), None)
    if channels is not None:
        del sides[channels]
    return math.prod(sides[:-2])

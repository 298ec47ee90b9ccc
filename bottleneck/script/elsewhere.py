"""The loop's use of loaders other than the one that feeds its training: evaluations, and starts of workers."""

from __future__ import annotations

import time
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from torch.utils.data import DataLoader

from bottleneck.job.loader_classes import keeps_workers
from bottleneck.measure.evidence.source import maker_of
from bottleneck.measure.options import Loop
from bottleneck.results.evidence import OtherLoader


@dataclass(eq=False)
class Pass:
    """One pass over a loader."""

    loader: DataLoader[Any]
    began_s: float
    steps: int
    """Optimizer steps before it."""
    batches: int = 0


@dataclass
class _Sums:
    every: int = 1
    passes: int = 0
    evaluations: int = 0
    evaluating_s: float = 0.0
    starting_s: float = 0.0
    waiting_s: float = 0.0
    first_s: float = 0.0
    later_batches: int = 0
    loaders: int = 0


class Elsewhere:
    """Totals of passes over other loaders while the loop is fed.

    Args:
        loop: The loop. A pass that turns out not to be an evaluation is part of its steps, and no break.
        steps: Returns the number of optimizer steps so far.
        feeding: Returns the loaders that also feed the loop: a pass over one of them is not an evaluation.
        clock: Monotonic time in seconds.
        every: Returns the number of epochs per pass like the one that begins.
    """

    def __init__(
        self,
        loop: Loop,
        steps: Callable[[], int],
        feeding: Callable[[], Sequence[DataLoader[Any]]],
        clock: Callable[[], float] = time.perf_counter,
        every: Callable[[], int] = lambda: 1,
    ) -> None:
        self._loop, self._steps, self._feeding, self._clock, self._every = loop, steps, feeding, clock, every
        self._sums: dict[int, tuple[DataLoader[Any], _Sums]] = {}
        self._last: dict[int, weakref.ref[DataLoader[Any]]] = {}
        self._open: list[Pass] = []

    def begin(self, loader: DataLoader[Any], seconds: float, before: Pass | None = None) -> Pass:
        """Note a pass that has begun, and the time to make its iterator [s]; `before` is the iterator's last pass."""
        sums = self._of(loader)
        sums.starting_s += seconds
        if before is not None and before in self._open and not before.batches:
            return before  # the same pass, begun in two ways
        sums.passes += 1
        sums.every = self._every()
        if (last := self._last.get(id(loader.dataset))) is None or last() is not loader:
            sums.loaders += 1
            self._last[id(loader.dataset)] = weakref.ref(loader)
        begun = Pass(loader, self._clock() - seconds, self._steps())
        self._open.append(begun)
        return begun

    def gave(self, at: Pass, seconds: float, *, ends: bool = False) -> None:
        """Note how long the loop waited for a batch, or for the end of the pass [s]."""
        sums = self._of(at.loader)
        if at.batches == 0 or ends:
            sums.starting_s += seconds
            sums.first_s += seconds * (not ends)
        else:
            sums.waiting_s += seconds
            sums.later_batches += 1
        at.batches += not ends
        if ends:
            self._end(at)

    @property
    def is_open(self) -> bool:
        """True if a pass has begun and not ended."""
        return bool(self._open)

    def trains(self) -> None:
        """Note that the loop asks for a training batch: all evaluations are over, even unfinished ones."""
        while self._open:
            self._end(self._open[-1])

    def _end(self, at: Pass) -> None:
        if at not in self._open:
            return
        self._open.remove(at)
        if at.steps != self._steps() or any(at.loader.dataset is one.dataset for one in self._feeding()):
            self._loop.breaks -= 1
            return
        sums = self._of(at.loader)
        sums.evaluations += 1
        sums.evaluating_s += self._clock() - at.began_s

    def _of(self, loader: DataLoader[Any]) -> _Sums:
        # By its dataset, which persists: some scripts make a loader for each pass.
        return self._sums.setdefault(id(loader.dataset), (loader, _Sums()))[1]

    def evidence(self, trained_on: object = None) -> tuple[OtherLoader, ...]:
        """Return the loaders in the order of their first pass, and mark those over a given dataset."""
        feeding = {id(loader.dataset) for loader in self._feeding()}
        return tuple(
            _seen(loader, replace(sums, evaluations=0, evaluating_s=0.0) if at in feeding else sums, trained_on)
            for at, (loader, sums) in self._sums.items()
        )


def _seen(loader: DataLoader[Any], sums: _Sums, trained_on: object) -> OtherLoader:
    made = maker_of(loader)
    return OtherLoader(
        dataset=type(loader.dataset).__qualname__,
        path=None if made is None else made[0],
        line=None if made is None else made[1],
        num_workers=loader.num_workers,
        persistent_workers=keeps_workers(loader),
        is_training_set=loader.dataset is trained_on or None,
        **{**vars(sums), "every": None if sums.every == 1 else sums.every},
    )

"""Real workers that run no code of the user's: they take as long as loading does, and hand over recorded batches."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils.data import DataLoader, Dataset, Sampler

from bottleneck.loader import trees
from bottleneck.loader.record.served import shared_copy
from bottleneck.loader.shutdown import detach_sigchld, drain, stop_workers

_PATIENCE_S = 1.0
_HANG_S = 20.0


@dataclass(frozen=True)
class Work:
    """The time that loading a batch takes in one process."""

    wall_s: float = 0.0
    cpu_s: float = 0.0

    def do(self) -> None:
        """Compute, and then wait, for as long."""
        until_s = time.thread_time() + self.cpu_s
        while time.thread_time() < until_s:
            pass
        if self.wall_s > self.cpu_s:
            time.sleep(self.wall_s - self.cpu_s)


class _Recorded(Dataset[Any]):
    """Gives copies of recorded batches, in shared memory as `default_collate` puts them, after some work."""

    def __init__(self, batches: Sequence[Any], work: Work) -> None:
        self._batches, self._work = batches, work

    def __getitem__(self, index: int) -> Any:
        self._work.do()
        return trees.map_leaves(_fresh, self._batches[index % len(self._batches)])


def _fresh(leaf: Any) -> Any:
    return shared_copy(leaf) if isinstance(leaf, torch.Tensor) else trees.copy_leaf(leaf)


def _as_it_is(batch: Any) -> Any:
    return batch


class _Endless(Sampler[int]):
    """Asks for batches until it is stopped."""

    def __init__(self) -> None:
        self.stopped = False

    def __iter__(self) -> Iterator[int]:
        return itertools.takewhile(lambda _: not self.stopped, itertools.count())


@contextmanager
def emulated_workers(batches: Sequence[Any], work: Work, workers: int, *, pinned: bool, context: Any) -> Iterator[Any]:
    """Start workers, yield PyTorch's own iterator after its first batch, and stop them at the end.

    Args:
        batches: What they hand over, in turn; not pinned.
        work: What a worker does before each batch.
        workers: How many.
        pinned: The main process pins what it receives.
        context: How they start, as the `multiprocessing_context` of a loader.
    """
    order = _Endless()
    loader: DataLoader[Any] = DataLoader(
        _Recorded(batches, work), batch_size=None, sampler=order, collate_fn=_as_it_is, num_workers=workers,
        pin_memory=pinned, timeout=_HANG_S, multiprocessing_context=context,
    )  # fmt: skip
    iterator = iter(loader)
    try:
        next(iterator)
        yield iterator
    finally:
        detach_sigchld(iterator)
        order.stopped = True
        stop_workers(iterator, kill=not drain(iterator, _PATIENCE_S))

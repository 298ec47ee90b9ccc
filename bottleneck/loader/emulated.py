"""Workers that take as long for a batch as the user's loader does, and know nothing of the user's dataset.

They compute and wait, each for so long, and hand over copies of recorded batches. So a job can be fed by workers that
it does not have: nothing of the user's runs in them, and a file that the dataset holds open is not shared.
"""

from __future__ import annotations

import itertools
import mmap
import multiprocessing
import signal
import time
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils.data import DataLoader, Dataset, Sampler

from bottleneck.loader import trees
from bottleneck.loader.processes import end_workers, ignore_hang_ups
from bottleneck.loader.recording.copies import shared_copy

PREFETCH = 2
"""PyTorch's default: batches that each worker is asked for ahead."""
_PATIENCE_S, _HANG_S = 1.0, 30.0


def can_emulate() -> bool:
    """Return True if workers can be forked: started in another way, they would run the user's script again."""
    return "fork" in multiprocessing.get_all_start_methods()


@dataclass(frozen=True)
class Work:
    """The time that a batch takes of one process.

    Attributes:
        cpu_s: CPU time.
        wait_s: Time in which it needs no core.
    """

    cpu_s: float
    wait_s: float

    @property
    def total_s(self) -> float:
        """The time of a process with a core to itself."""
        return self.cpu_s + self.wait_s

    def do(self) -> None:
        """Compute, and then wait, for as long."""
        until_s = time.thread_time() + self.cpu_s
        while time.thread_time() < until_s:
            pass
        time.sleep(self.wait_s)


class _Batches(Dataset[Any]):
    """Gives copies of batches in shared memory, as `default_collate` puts them there, after some work."""

    def __init__(self, batches: Sequence[Any], work: Work) -> None:
        self._batches = batches
        self._work = work
        self.at_work = mmap.mmap(-1, 1)  # a byte that workers which are forked share

    def __getitem__(self, index: int) -> Any:
        if self.at_work[0]:
            self._work.do()
        return trees.map_leaves(_fresh, self._batches[index % len(self._batches)])


def _fresh(leaf: Any) -> Any:
    return shared_copy(leaf) if isinstance(leaf, torch.Tensor) else trees.copy_leaf(leaf)


def _begin(_worker: int) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the main process stops the workers
    ignore_hang_ups()


class _Endless(Sampler[int]):
    """Asks for batches until it is stopped."""

    stopped = False

    def __iter__(self) -> Iterator[int]:
        return itertools.takewhile(lambda _: not self.stopped, itertools.count())


class EmulatedLoader:
    """A loader with emulated workers, which rest until they are asked to work.

    Args:
        batches: At least one, each with its number of samples; copies of them are given in turn.
        work: The time that a worker takes for each.
        workers: At least one.
    """

    def __init__(self, batches: Sequence[tuple[Any, int]], work: Work, workers: int) -> None:
        self.num_workers = workers
        self._order = _Endless()
        self._dataset = _Batches([batch for batch, _ in batches], work)
        self._samples = itertools.cycle([samples for _, samples in batches])
        with warnings.catch_warnings():  # of more workers than cores, and of a process with several threads
            warnings.simplefilter("ignore")
            loader: DataLoader[Any] = DataLoader(
                self._dataset,
                batch_size=None,
                sampler=self._order,
                collate_fn=trees.as_it_is,
                num_workers=workers,
                prefetch_factor=PREFETCH,
                timeout=_HANG_S,
                worker_init_fn=_begin,
                multiprocessing_context="fork",
                generator=torch.Generator(),  # the user's random numbers stay unchanged
            )
            self._iterator = iter(loader)

    def next_batch(self) -> tuple[Any, int]:
        """Return a batch and its number of samples."""
        return next(self._iterator), next(self._samples)

    def work(self) -> None:
        """Let the workers work, and drop what they have made without."""
        self._dataset.at_work[0] = 1
        for _ in range(PREFETCH * self.num_workers):
            self.next_batch()

    def rest(self) -> None:
        """Let the workers answer at once from now on, so that they are soon idle."""
        self._dataset.at_work[0] = 0

    def close(self) -> None:
        """End the workers."""
        self.rest()
        self._order.stopped = True
        end_workers(self._iterator, _PATIENCE_S)

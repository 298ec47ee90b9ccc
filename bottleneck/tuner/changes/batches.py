"""Changes to waiting within a batch: fetch its samples in threads; copy it while the step runs."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import torch
from torch.utils.data import IterableDataset

from bottleneck.job.inspect import find_handles
from bottleneck.job.step import move_to_device
from bottleneck.loader import trees
from bottleneck.loader.user_code import fetches_batches
from bottleneck.results.tuning import Outcome
from bottleneck.tuner.change import Change, Context
from bottleneck.tuner.changes.data import Around, copied, seeded, spread_over
from bottleneck.tuner.changes.samples import is_fixed, state_of
from bottleneck.tuner.changes.step import NOT_THE_LOADERS, STREAM, no_cuda

# --- samples that wait at the same time -----------------------------------------------------------------------

_FIRST_THREADS = 16
_MAX_THREADS = 64


class InThreads(Around):
    """A dataset that makes the samples of a batch in threads, which wait at the same time.

    The threads start at the first batch of each process, because threads do not survive a fork.
    """

    def __init__(self, dataset: Any, threads: int) -> None:
        super().__init__(dataset)
        self.threads = threads
        self._pool: tuple[int, ThreadPoolExecutor] | None = None

    def __getitem__(self, index: Any) -> Any:
        return self.dataset[index]

    def __getitems__(self, indices: Sequence[Any]) -> list[Any]:
        if self._pool is None or self._pool[0] != os.getpid():
            self._pool = os.getpid(), ThreadPoolExecutor(self.threads, "bottleneck-fetch")
        return list(self._pool[1].map(self.dataset.__getitem__, indices))

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_pool": None}


def _why_not_threads(here: Context) -> str | None:
    dataset, batch_size = here.pipeline.dataset, here.loader.batch_size
    if isinstance(dataset, IterableDataset):
        return STREAM
    if batch_size is None:
        return NOT_THE_LOADERS
    if isinstance(dataset, InThreads):
        return None
    if fetches_batches(dataset):
        return "the dataset has a __getitems__, which makes whole batches already"
    if isinstance(dataset, Around):
        return "its samples come from memory, or are made differently"
    if batch_size < 2:
        return "a batch has one sample"
    if not here.workers_wait:
        return "loading was not seen to wait for most of its time, and threads do not compute at the same time"
    try:
        return _why_not_shared(copied(dataset))
    except Exception:  # noqa: BLE001 - the user's dataset may not support threads
        return "its samples cannot be made in threads"


def _why_not_shared(dataset: Any) -> str | None:
    """Return why threads cannot share a dataset; None if they make the same samples."""
    indices = spread_over(dataset, 8)
    seeded(0, dataset.__getitem__, indices[0])  # opens files that are opened at the first sample
    if handles := find_handles(dataset):
        return f"threads would share what the dataset holds open: {handles[0].name} ({handles[0].kind})"
    before = state_of(dataset)
    one_by_one = seeded(0, lambda each: [dataset[index] for index in each], indices)
    at_once = seeded(0, InThreads(dataset, len(indices)).__getitems__, indices)
    if state_of(dataset) != before:
        return "the dataset keeps state: a sample changes what it holds"
    if is_fixed(dataset):
        return None if trees.equal(one_by_one, at_once) else "in threads its samples differ"
    # Random samples differ, because threads draw in any order; types and dimensions of a batch must not.
    return None if _is_alike(one_by_one, at_once) else "in threads its samples have other types or dimensions"


def _is_alike(one: Any, other: Any) -> bool:
    leaves = (trees.leaves(each) for each in (one, other))
    pairs = list(zip(*leaves, strict=True))
    return all(
        type(left) is type(right)
        and (not isinstance(left, torch.Tensor) or (left.dtype, left.dim()) == (right.dtype, right.dim()))
        for left, right in pairs
    )


def _next_threads(here: Context, judged: Mapping[Any, Outcome]) -> int | None:
    dataset = here.pipeline.dataset
    present = dataset.threads if isinstance(dataset, InThreads) else 0
    wanted = min(2 * present or _FIRST_THREADS, _MAX_THREADS, here.loader.batch_size or 0)
    return wanted if wanted > present and wanted not in judged else None


# --- copies during the step -----------------------------------------------------------------------------------


class AheadOnDevice:
    """Moves a batch to the device on a separate stream, and returns the one before, on which the step trains meanwhile.

    The first batch is returned twice.
    """

    def __init__(self) -> None:
        self._stream: Any = None
        self._last: tuple[Any, Any, Any] | None = None
        """Batch on the host, batch on the device, and the event after its copy."""

    def __call__(self, batch: Any, device: torch.device) -> Any:
        if self._stream is None:
            self._stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]  # torch's own
        with torch.cuda.stream(self._stream):
            moved = move_to_device(batch, device, non_blocking=True)
            present = batch, moved, self._stream.record_event()
        _, given, copied_event = self._last or present
        self._last = present
        current = torch.cuda.current_stream(device)
        current.wait_event(copied_event)
        for leaf in trees.leaves(given):
            if isinstance(leaf, torch.Tensor):
                leaf.record_stream(current)  # its memory was allocated on the other stream
        return given


def _why_not_ahead(here: Context) -> str | None:
    if (why := no_cuda(here)) is not None:
        return why
    if here.given.to_device is not None:
        return "the job moves its batches itself: change it in its to_device"
    return None if here.loader.pin_memory else "batches are not pinned, so that copies cannot overlap with the step"


CHANGES = (
    Change(
        "fetch_in_threads",
        lambda pipeline, threads: pipeline.replace(dataset=InThreads(pipeline.dataset, threads)),
        alters="order",
        input_only=True,
        line="pool = concurrent.futures.ThreadPoolExecutor({value})  # outside the class of the dataset\n"
        "# In the class, which then makes whole batches:\n"
        "def __getitems__(self, indices): return list(pool.map(self.__getitem__, indices))",
        advice=("storage-latency", "wait-less"),
        why_not=_why_not_threads,
        next_value=_next_threads,
        source="https://docs.python.org/3/library/concurrent.futures.html#threadpoolexecutor",
    ),
    Change(
        "copy_ahead",
        lambda pipeline: pipeline.replace(to_device=AheadOnDevice()),
        on="payload",
        alters="memory",
        line="def ahead(loader, device):\n"
        "    stream, last = torch.cuda.Stream(), None\n"
        "    for batch in loader:\n"
        "        torch.cuda.current_stream().wait_stream(stream)  # the copy of the last batch\n"
        "        with torch.cuda.stream(stream):\n"
        "            batch = [part.to(device, non_blocking=True) for part in batch]\n"
        "        for part in last or (): part.record_stream(torch.cuda.current_stream())\n"
        "        if last is not None: yield last  # trained on while the next batch is copied\n"
        "        last = batch\n"
        "    torch.cuda.current_stream().wait_stream(stream)\n"
        "    if last is not None: yield last\n"
        "for batch in ahead(loader, device): ...",
        why_not=_why_not_ahead,
        source="https://docs.pytorch.org/docs/stable/notes/cuda.html#cuda-streams",
    ),
)

"""Facts about the loader and its dataset that no throughput shows, but that advice needs.

All are read outside of timed blocks, within bounds, and none of the user's objects are changed.
"""

from __future__ import annotations

import inspect
import math
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from multiprocessing import context
from multiprocessing.reduction import ForkingPickler
from typing import Any, NamedTuple

import numpy as np
import torch
from torch.utils.data import DataLoader, IterableDataset

from bottleneck.job.inspect import count_objects, parse_path, resolve, walk
from bottleneck.job.loader_args import start_method_of
from bottleneck.job.loader_classes import keeps_workers, snapshot_interval
from bottleneck.job.pipeline import Pipeline
from bottleneck.job.torch_loading import BaseIterator, number_of_workers
from bottleneck.loader.observing.images import Pixels
from bottleneck.loader.streams import FIRST, find_repeating, shards_of
from bottleneck.loader.switched import SwitchedLoader
from bottleneck.loader.user_code import fetches_batches
from bottleneck.measure.evidence.stages import costliest_lines
from bottleneck.measure.ledger import Ledger
from bottleneck.results.evidence import (
    Evidence,
    LoadedBatches,
    LoaderFacts,
    OpenHandle,
    SamplerSeen,
    SnapshotsSeen,
    TransformSeen,
)
from bottleneck.results.warnings.job import dataset_keeps_samples, duplicated_stream

_LIMIT_BYTES = 256 << 20
"""Bytes after which pickling is stopped."""
_LIMIT_S = 1.0
"""The same in seconds."""
_STORAGES = (torch.Tensor, torch.UntypedStorage, torch.TypedStorage)
MIN_LOADED = 4
"""Batches without which their variation is unknown."""
_STUB = (bytes, (b"\0" * 200,))
"""Substitute for a tensor, of which type, shape and the name of its shared memory are sent."""


def describe_loader(
    pipeline: Pipeline, loader: DataLoader[Any], running: SwitchedLoader, pixels: Pixels, evidence: Evidence
) -> LoaderFacts:
    """Return facts about a loader and its dataset.

    Args:
        pipeline: Job with the transfer to examine.
        loader: The user's loader.
        running: The loader that runs in its place; its workers have been observed.
        pixels: Counts of its images' pixels.
        evidence: Evidence so far, of which `transforms` are used.
    """
    method = start_method_of(loader) if loader.num_workers else None
    indexed = not running.iterable and loader.batch_sampler is not None
    objects = count_objects(loader.dataset)
    images, loaded = pixels.samples, pixels.loaded_samples
    facts = LoaderFacts(
        start_method=method,
        fetches_batches=indexed and fetches_batches(loader.dataset),
        iterable=running.iterable,
        mentions_non_blocking=_mentions_non_blocking(pipeline.to_device),
        transform_modules=_modules_of_transforms(loader.dataset, evidence.transforms),
        python_objects=objects.objects,
        python_object_bytes=objects.nbytes,
        python_objects_largest=objects.largest or None,
        **describe_workers(loader.dataset, running),
        own_workers=None if loader.num_workers else _own_workers(loader.dataset),
        open_handles=_open_handles(running) if method == "fork" else (),
        decoded_pixels_per_sample=pixels.decoded / images if images else None,
        used_pixels_per_sample=pixels.used / images if images else None,
        loaded_bytes_per_sample=pixels.loaded_bytes / loaded if loaded else None,
    )
    # Without workers to send it to, the dataset's own pickling code is not run.
    sent = None if method in (None, "fork") else pickle_size(loader.dataset)
    if sent is None:
        return facts
    return replace(
        facts,
        dataset_pickle_bytes=sent.stream_bytes,
        dataset_pickle_s=sent.duration_s,
        dataset_pickle_complete=sent.complete,
    )


def describe_workers(dataset: Any, running: SwitchedLoader) -> dict[str, Any]:
    """Return the distribution of the batches, and of a stream, over the workers."""
    made = {worker: seen.batches for worker, seen in running.observations_by_worker().items()}
    found: dict[str, Any] = {"shards": shards_of(dataset) if running.iterable else None}
    if not running.num_workers or not sum(made.values()):
        return found
    found["batches_of_workers"] = tuple(made.get(n, 0) / sum(made.values()) for n in range(running.num_workers))
    found["library_threads"] = max((one.library_threads for one in running.facts()), default=None)
    if running.iterable:
        repeating = find_repeating(one.first_samples for one in running.facts())
        counts = {count for one in running.facts() for count in one.made[1:]}  # the first includes those of others
        found["made_per_sample"] = counts.pop() if len(counts) == 1 and counts != {1} else None
        found |= {"idle_workers": len(running.idle_workers) or None, "repeating_workers": repeating or None}
    return found


def describe_loaded(running: SwitchedLoader) -> LoadedBatches:
    """Return the times of the batches that workers made with everything real, except the first of each."""
    made = running.tallies() if running.num_workers else []
    count, seconds = sum(tally.count for tally in made), sum(tally.seconds for tally in made)
    squares = sum(tally.squares for tally in made)
    if count < MIN_LOADED or not seconds:
        return LoadedBatches()
    mean = seconds / count
    variance = max(0.0, squares / count - mean * mean) * count / (count - 1)
    return LoadedBatches(count=int(count), seconds_each=mean, cv=math.sqrt(variance) / mean)


def describe_snapshots(loader: DataLoader[Any], running: SwitchedLoader) -> SnapshotsSeen:
    """Return the means of the snapshots that workers took while they were observed."""
    interval, seen = snapshot_interval(loader), running.snapshots()
    count = sum(each.count for each in seen)
    if interval is None or not count:
        return SnapshotsSeen()
    return SnapshotsSeen(
        interval=interval,
        state_s=sum(each.state_s for each in seen) / count,
        pickle_s=sum(each.pickle_s for each in seen) / count,
        unpickle_s=sum(each.unpickle_s for each in seen) / count,
        pickled_bytes=sum(each.pickled_bytes for each in seen) / count,
    )


def note_collections(running: SwitchedLoader, ledger: Ledger) -> None:
    """Note the share of garbage collections in the workers' time: as many as counted, each as long as observed."""
    found, counted = ledger.evidence.collections, running.made() if running.num_workers else []
    count, seconds = sum(each[0] for each in counted), sum(each[1] for each in counted)
    if found.seconds_each and seconds > 0:
        found = replace(found, count=int(count), share=min(1.0, count * found.seconds_each / seconds))
        ledger.note(collections=found)


def describe_sampler(running: SwitchedLoader) -> SamplerSeen:
    """Return the sampler of the job, and the user's line that takes the most of its first choice."""
    sampler = running.order.users_sampler
    if sampler is None:
        return SamplerSeen()
    choices: int | None = None
    draws: int | None = None
    with suppress(Exception):  # the user's own __len__ may raise
        weights = getattr(sampler, "weights", None)
        choices = len(getattr(sampler, "data_source", sampler) if weights is None else weights)
        draws = len(sampler)
    seen = costliest_lines({("sampler", line): spent for line, spent in running.order.lines.items()}, "sampler")
    lines = (line for line in seen if line.library is False)
    replacement = getattr(sampler, "replacement", None)
    return SamplerSeen(
        name=type(sampler).__name__,
        choices=choices,
        draws=draws,
        replacement=replacement if isinstance(replacement, bool) else None,
        line=next(lines, None),
    )


def warn_of_repeated_stream(facts: LoaderFacts, ledger: Ledger) -> None:
    """Warn if workers yield the same samples, which the job then trains on several times."""
    if facts.repeating_workers:
        ledger.warn(duplicated_stream(facts.repeating_workers, FIRST))


def note_kept_samples(loader: DataLoader[Any], running: SwitchedLoader, ledger: Ledger) -> None:
    """Note a dict in which the workers keep samples: those of the job forget it unless they are persistent.

    Args:
        loader: The user's loader.
        running: The measured loader, whose workers stay over all of its epochs.
        ledger: Receives a warning; or the name of the dict, if samples were found there that the job would load.
    """
    growing = sorted({name for one in running.facts() for name in one.growing})
    if not growing or isinstance(loader.dataset, IterableDataset):
        return
    kept, again = growing[0], running.order.epochs_begun > 1
    if not keeps_workers(loader):
        if again:
            ledger.note(loader=replace(ledger.evidence.loader, forgotten=kept))
        return
    ledger.warn(dataset_keeps_samples(kept, began_again=again))


def _own_workers(dataset: Any) -> int | None:
    """Return the number of processes that a dataset takes its samples from, e.g. through a queue; None without."""
    loaders = (held.value for held in walk(dataset) if issubclass(type(held.value), BaseIterator))
    return max(map(number_of_workers, loaders), default=0) or None


def _open_handles(running: SwitchedLoader) -> tuple[OpenHandle, ...]:
    """Return the handles that were open when the workers were forked and that they still use."""
    inherited = {name for one in running.facts() for name in one.inherited}
    used = (found for found in running.handles if found.name in inherited)
    return tuple(OpenHandle(path=found.name, type=found.kind) for found in used)


def _modules_of_transforms(dataset: Any, seen: tuple[TransformSeen, ...]) -> dict[str, str]:
    found: dict[str, str] = {}
    for path in (one.path or "" for one in seen):
        try:
            transform = resolve(dataset, parse_path(path))
            # Not its type: without workers, a cut may be in its place.
            owner = transform if hasattr(transform, "__qualname__") else transform.__class__
            found[path] = str(owner.__module__)
        except Exception:  # noqa: BLE001 - the path exists only in the worker's copy
            continue
    return found


def _mentions_non_blocking(to_device: Callable[..., Any] | None) -> bool | None:
    """Return True if the user's transfer names `non_blocking`; None if its source cannot be read."""
    if to_device is None:
        return True  # like the default transfer
    try:
        return "non_blocking" in inspect.getsource(to_device)
    except Exception:  # noqa: BLE001 - there is no source, or its file was edited since
        return None


# --- what the start of a worker sends -----------------------------------------------------------------------


class _LimitReachedError(Exception):
    """Raised when pickling exceeds a limit."""


class _Spawning:
    """Substitute for the process being started, without which locks and queues refuse to be pickled."""

    @staticmethod
    def duplicate_for_child(descriptor: int) -> int:
        return descriptor


class _CountingPickler(ForkingPickler):
    """Pickler like that of a process start, but keeps nothing, ends at limits, and leaves tensors in place.

    PyTorch's own pickler would move their storage to shared memory, in the user's own objects.
    """

    def __init__(self, limit_bytes: int) -> None:
        super().__init__(self)
        self._limit_bytes = limit_bytes
        self._until_s = time.perf_counter() + _LIMIT_S
        self.written_bytes = 0

    def write(self, piece: Any) -> int:
        self.written_bytes += len(piece)
        self._check()
        return len(piece)

    def reducer_override(self, obj: Any) -> Any:
        self._check(obj.nbytes if isinstance(obj, np.ndarray) else 0)  # copied as a whole before it is written
        return _STUB if isinstance(obj, _STORAGES) else NotImplemented

    def _check(self, further_bytes: int = 0) -> None:
        if self.written_bytes + further_bytes > self._limit_bytes or time.perf_counter() > self._until_s:
            raise _LimitReachedError


class PickleSize(NamedTuple):
    """Data sent to each worker at a start by spawn or forkserver, without tensors, which go to shared memory once."""

    stream_bytes: int
    """Bytes of the stream; up to a limit if incomplete."""
    duration_s: float
    complete: bool


def pickle_size(value: Any, limit_bytes: int = _LIMIT_BYTES) -> PickleSize | None:
    """Return the cost of pickling an object as `spawn` sends it to a worker; None if it cannot be pickled.

    The object stays unchanged, except for effects of its `__getstate__` and `__reduce__`: they are the user's code,
    and the time limit applies only after they return.
    """
    pickler, began_s, complete = _CountingPickler(limit_bytes), time.perf_counter(), True
    before = context.get_spawning_popen()
    context.set_spawning_popen(_Spawning())  # type: ignore[arg-type]  # has the attributes that pickling needs
    try:
        pickler.dump(value)
    except _LimitReachedError:
        complete = False
    except Exception:  # noqa: BLE001 - the user's classes may raise anything
        return None
    finally:
        context.set_spawning_popen(before)
        pickler.clear_memo()  # of the dataset's objects, as the pickler is its own file and so not freed at once
    return PickleSize(pickler.written_bytes, time.perf_counter() - began_s, complete)

"""Facts about the loader and its dataset that no throughput shows, and on which advice rests.

All of it is read outside of timed blocks, within bounds, and nothing of the user's is changed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from types import CodeType
from typing import Any

import torch
from torch.utils.data import DataLoader, IterableDataset
from torch.utils.data.dataloader import _BaseDataLoaderIter

from bottleneck.job.inspect import codes_in, count_objects, find_tokenizers, parse_path, resolve, walk
from bottleneck.job.loader_args import start_method_of
from bottleneck.job.pipeline import Pipeline
from bottleneck.loader.clone import keeps_workers
from bottleneck.loader.observe.pixels import Pixels
from bottleneck.loader.switched_loader import SwitchedLoader
from bottleneck.loader.worker.user_code import fetches_batches
from bottleneck.loader.worker.worker_facts import WorkerFacts
from bottleneck.measure.device import device_can_pin
from bottleneck.measure.facts.pickling import pickle_size
from bottleneck.measure.ledger import Ledger
from bottleneck.measure.system.environment import open_files_limit
from bottleneck.results.evidence import Evidence, LoaderFacts, OpenHandle, Payload, TransformSeen, WorkerThreads

_IN_HAND = 1
"""Batches beside those in the queue: the one that the train step works on."""


def describe_loader(
    pipeline: Pipeline, loader: DataLoader[Any], running: SwitchedLoader, pixels: Pixels, evidence: Evidence
) -> LoaderFacts:
    """Return facts about a loader and its dataset.

    Args:
        pipeline: Its transfer is examined.
        loader: The user's loader.
        running: The one that runs in its place; its workers have been observed.
        pixels: What they counted of images.
        evidence: What is known so far: of it, `payload` and `transforms` are used.
    """
    method = start_method_of(loader) if loader.num_workers else None
    indexed = not running.iterable and loader.batch_sampler is not None
    objects = count_objects(loader.dataset)
    images, loaded = pixels.samples, pixels.loaded_samples
    facts = replace(
        describe_queue(loader, evidence.payload),
        start_method=method,
        fetches_batches=indexed and fetches_batches(loader.dataset),
        iterable=running.iterable,
        pin_thread=bool(loader.pin_memory) and loader.num_workers > 0 and device_can_pin(),
        mentions_non_blocking=_mentions_non_blocking(pipeline.to_device),
        tokenizers=tuple(find_tokenizers(loader.dataset, loader.collate_fn)),
        transform_modules=_modules_of_transforms(loader.dataset, evidence.transforms),
        python_objects=objects.objects,
        python_object_bytes=objects.nbytes,
        python_objects_largest=objects.largest or None,
        own_workers=None if loader.num_workers else _own_workers(loader.dataset),
        open_handles=_open_handles(running) if method == "fork" else (),
        decoded_pixels_per_sample=pixels.decoded / images if images else None,
        used_pixels_per_sample=pixels.used / images if images else None,
        loaded_bytes_per_sample=pixels.loaded_bytes / loaded if loaded else None,
    )
    return _with_workers(_with_pickled(facts, loader.dataset), running.facts())


def _with_pickled(facts: LoaderFacts, dataset: Any) -> LoaderFacts:
    """Add what the start of a worker sends; where nothing is sent, the dataset's own code is not asked to."""
    if facts.start_method in (None, "fork"):
        return facts
    found = pickle_size(dataset)
    if found.failure:
        return replace(facts, dataset_pickle_failure=found.failure)
    return replace(
        facts,
        dataset_pickle_bytes=found.stream_bytes,
        dataset_pickle_s=found.duration_s,
        dataset_pickle_complete=found.complete,
    )


def _with_workers(facts: LoaderFacts, workers: list[WorkerFacts]) -> LoaderFacts:
    if not workers:
        return facts
    opencv = [one.opencv_threads for one in workers if one.opencv_threads is not None]
    return replace(
        facts,
        worker_threads=WorkerThreads(torch=max(one.torch_threads for one in workers), opencv=max(opencv, default=None)),
        omp_num_threads=workers[0].omp_num_threads,
        tokenizers_parallelism=workers[0].tokenizers_parallelism,
    )


def note_kept_samples(loader: DataLoader[Any], running: SwitchedLoader, ledger: Ledger) -> None:
    """Note a dict in which the workers keep samples: those of the job forget it unless they are persistent.

    Args:
        loader: The user's.
        running: The one that is measured, whose workers stay over all of its epochs.
        ledger: Gets a warning or, where samples were found there that the job would load, the name of the dict.
    """
    growing = sorted({name for one in running.facts() for name in one.growing})
    if not growing or isinstance(loader.dataset, IterableDataset):
        return
    kept, again = growing[0], running.order.epochs_begun > 1
    if not keeps_workers(loader):
        if again:
            ledger.evidence = replace(ledger.evidence, loader=replace(ledger.evidence.loader, forgotten=kept))
        return
    when = "these numbers are of neither alone" if again else "these numbers are of the first"
    ledger.warn(
        "dataset-keeps-samples",
        f"{kept} of the dataset grows from batch to batch. If it keeps samples for later, the first epochs are slower "
        f"than the others, and {when}: each worker has a copy of its own to fill. Load everything once before the "
        "workers start, or measure without it.",
    )


def _own_workers(dataset: Any) -> int | None:
    """Return how many processes a dataset takes its samples from, such as one that fills a queue; None: none seen."""
    loaders = (held.value for held in walk(dataset) if issubclass(type(held.value), _BaseDataLoaderIter))
    return max((int(getattr(one, "_num_workers", 0)) for one in loaders), default=0) or None


def _open_handles(running: SwitchedLoader) -> tuple[OpenHandle, ...]:
    """Return what workers still use of what was open when they were forked."""
    inherited = {name for one in running.facts() for name in one.inherited}
    used = (found for found in running.handles if found.name in inherited)
    return tuple(OpenHandle(path=found.name, type=found.kind) for found in used)


def batches_in_flight(loader: DataLoader[Any]) -> int:
    """Return how many batches there are at most at a time, of a loader with workers."""
    return loader.num_workers * (loader.prefetch_factor or 0) + _IN_HAND


def describe_queue(loader: DataLoader[Any], payload: Payload) -> LoaderFacts:
    """Return what the batches in the workers' queue take when it is full, and what limits them."""
    strategy = str(torch.multiprocessing.get_sharing_strategy())  # type: ignore[no-untyped-call]  # has no annotations
    facts = LoaderFacts(descriptor_limit=open_files_limit(), sharing_strategy=strategy)
    if not loader.num_workers or payload.bytes is None:
        return facts
    batches, by_descriptor = batches_in_flight(loader), strategy == "file_descriptor"
    return replace(
        facts,
        shared_memory_bytes_needed=batches * payload.bytes,
        descriptors_needed=batches * (payload.tensor_count or 0) if by_descriptor else None,
    )


def _modules_of_transforms(dataset: Any, seen: tuple[TransformSeen, ...]) -> dict[str, str]:
    """Return the module in which each single transform is defined, by its path."""
    found: dict[str, str] = {}
    for path in (one.path or "" for one in seen):
        try:
            transform = resolve(dataset, parse_path(path))
            owner = transform if hasattr(transform, "__qualname__") else type(transform)
            found[path] = str(owner.__module__)
        except Exception:  # noqa: BLE001 - a path that leads nowhere in this process: of a copy in the worker
            continue
    return found


def _mentions_non_blocking(to_device: Callable[..., Any] | None) -> bool | None:
    """Return whether a transfer of the user's own names `non_blocking`; None where its code cannot be read."""
    if to_device is None:
        return True  # as ours does
    code = getattr(getattr(to_device, "__func__", to_device), "__code__", None)
    return "non_blocking" in _words(code) if isinstance(code, CodeType) else None


def _words(code: CodeType) -> set[str]:
    """Return the names in some code; those of keyword arguments are a tuple among its constants."""
    found = set[str]()
    for each in codes_in(code):
        found.update(each.co_names, each.co_varnames)
        keywords = [const for const in each.co_consts if isinstance(const, tuple)]
        found.update(word for words in keywords for word in words if isinstance(word, str))
    return found

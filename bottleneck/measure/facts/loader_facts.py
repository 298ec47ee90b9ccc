"""Facts about the loader and its dataset that no throughput shows, and on which advice rests.

Everything here is looked at outside of timed blocks, within bounds, and nothing of the user's is changed.
"""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Mapping
from types import CodeType
from typing import Any

import torch
from torch.utils.data import DataLoader

from bottleneck.job.code_names import codes_in
from bottleneck.job.handles import find_tokenizers
from bottleneck.job.key_paths import parse_path, resolve
from bottleneck.job.python_objects import count_objects
from bottleneck.job.transfer import Transfers
from bottleneck.loader.observe.pixels import Pixels
from bottleneck.loader.switched_loader import SwitchedLoader
from bottleneck.loader.worker.user_code import fetches_batches
from bottleneck.loader.worker.worker_facts import WorkerFacts
from bottleneck.measure.device import device_can_pin
from bottleneck.measure.facts.pickling import pickle_size
from bottleneck.measure.system.environment import open_files_limit

_IN_HAND = 1
"""Batches beside those in the queue: the one that the train step works on."""


def describe_loader(
    pipeline: Transfers, loader: DataLoader[Any], running: SwitchedLoader, pixels: Pixels, evidence: Mapping[str, Any]
) -> dict[str, Any]:
    """Return facts about a loader and its dataset, as plain values ready for JSON.

    Args:
        pipeline: Whose transfer is looked at.
        loader: The user's loader.
        running: The one that runs in its place; its workers have been observed.
        pixels: What they saw of images.
        evidence: What is known so far: of it, `payload` and `transforms` are used.

    Returns:
        The key is missing or None where something is not known or does not apply.
    """
    method = start_method(loader) if loader.num_workers else None
    indexed = not running.iterable and loader.batch_sampler is not None
    return {
        "start_method": method,
        "fetches_batches": indexed and fetches_batches(loader.dataset),
        "iterable": running.iterable,
        "pin_thread": bool(loader.pin_memory) and loader.num_workers > 0 and device_can_pin(),
        "mentions_non_blocking": _mentions_non_blocking(pipeline.to_device),
        "tokenizers": list(find_tokenizers(loader.dataset, loader.collate_fn)),
        "transform_modules": _modules_of_transforms(loader.dataset, evidence.get("transforms")),
        **_pickled(loader.dataset, method),
        **_python_objects(loader.dataset),
        **_worker_facts(running.facts()),
        "open_handles": _open_handles(running) if method == "fork" else [],
        **_images(pixels),
        **_queue_needs(loader, evidence.get("payload")),
    }


def start_method(loader: DataLoader[Any]) -> str:
    """Return how a loader starts its workers: `fork`, `forkserver` or `spawn`."""
    context = loader.multiprocessing_context
    chosen = context.get_start_method(allow_none=True) if context is not None else None
    # Asking for the default without allow_none would fix it for the user's own code.
    default = multiprocessing.get_start_method(allow_none=True) or multiprocessing.get_all_start_methods()[0]
    return str(chosen or default)


def _pickled(dataset: Any, method: str | None) -> dict[str, Any]:
    """Return what the start of a worker sends; where nothing is sent, the dataset's own code is not asked to."""
    if method in (None, "fork"):
        return {"dataset_pickle_bytes": None, "dataset_pickle_s": None}
    found = pickle_size(dataset)
    if found.failure:
        return {"dataset_pickle_bytes": None, "dataset_pickle_s": None, "dataset_pickle_failure": found.failure}
    return {
        "dataset_pickle_bytes": found.stream_bytes,
        "dataset_pickle_s": found.duration_s,
        "dataset_pickle_complete": found.complete,
    }


def _python_objects(dataset: Any) -> dict[str, Any]:
    found = count_objects(dataset)
    return {
        "python_objects": found.objects,
        "python_object_bytes": found.nbytes,
        "python_objects_largest": found.largest or None,
    }


def _worker_facts(facts: list[WorkerFacts]) -> dict[str, Any]:
    if not facts:
        return {"worker_threads": None, "omp_num_threads": None, "tokenizers_parallelism": None}
    opencv = [one.opencv_threads for one in facts if one.opencv_threads is not None]
    return {
        "worker_threads": {
            "torch": max(one.torch_threads for one in facts),
            "opencv": max(opencv, default=None),
        },
        "omp_num_threads": facts[0].omp_num_threads,
        "tokenizers_parallelism": facts[0].tokenizers_parallelism,
    }


def _open_handles(running: SwitchedLoader) -> list[dict[str, str]]:
    """Return what workers still use of what was open when they were forked."""
    inherited = {name for one in running.facts() for name in one.inherited}
    return [{"path": found.name, "type": found.kind} for found in running.handles if found.name in inherited]


def _images(pixels: Pixels) -> dict[str, float | None]:
    images, loaded = pixels.samples, pixels.loaded_samples
    return {
        "decoded_pixels_per_sample": pixels.decoded / images if images else None,
        "used_pixels_per_sample": pixels.used / images if images else None,
        "loaded_bytes_per_sample": pixels.loaded_bytes / loaded if loaded else None,
    }


def _queue_needs(loader: DataLoader[Any], payload: Any) -> dict[str, Any]:
    """Return what the batches in the workers' queue take when it is full."""
    limit = open_files_limit()
    known: dict[str, Any] = {
        "shared_memory_bytes_needed": None,
        "descriptors_needed": None,
        "descriptor_limit": limit,
        "sharing_strategy": str(torch.multiprocessing.get_sharing_strategy()),  # type: ignore[no-untyped-call]  # has no annotations
    }
    if not loader.num_workers or not isinstance(payload, Mapping):
        return known
    batches = loader.num_workers * (loader.prefetch_factor or 0) + _IN_HAND
    known["shared_memory_bytes_needed"] = batches * int(payload.get("bytes", 0))
    if known["sharing_strategy"] == "file_descriptor":
        known["descriptors_needed"] = batches * int(payload.get("tensor_count", 0))
    return known


def _modules_of_transforms(dataset: Any, rows: Any) -> dict[str, str]:
    """Return the module in which each single transform is defined, by its path."""
    found: dict[str, str] = {}
    for row in rows or ():
        try:
            transform = resolve(dataset, parse_path(row["path"]))
            owner = transform if hasattr(transform, "__qualname__") else type(transform)
            found[row["path"]] = str(owner.__module__)
        except Exception:  # noqa: BLE001 - a path that leads nowhere in this process: of a copy in the worker
            continue
    return found


def _mentions_non_blocking(to_device: Callable[..., Any] | None) -> bool | None:
    """Tell whether a transfer of the user's own says `non_blocking`; None where its code cannot be read."""
    if to_device is None:
        return True  # ours does
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

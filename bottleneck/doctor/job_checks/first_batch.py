"""A first batch from one worker, and what all workers will need by it: threads, shared memory, descriptors."""

from __future__ import annotations

import faulthandler
import json
import os
import sys
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
import torch
from torch.utils.data import DataLoader, IterableDataset

from bottleneck.doctor.finding import Finding, format_bytes, format_seconds
from bottleneck.doctor.job_checks.job import first_indices
from bottleneck.doctor.job_checks.structure import describe_structure, tensors_in
from bottleneck.doctor.job_checks.traceback_place import find_place
from bottleneck.doctor.machine_checks.memory import open_files_limit, sharing_strategy
from bottleneck.job.target import describe_error
from bottleneck.measure.explain_errors import explain_loader_failure
from bottleneck.measure.system.cores import allowed_cores, usable_cores
from bottleneck.measure.system.environment import free_memory_bytes, shm_free_bytes

_OVERSUBSCRIBED = 1.5
"""Threads for each usable core from which on they get into each other's way."""


class Probe:
    """A collate_fn that does what the user's does, and notes what the process is like in which it runs.

    Args:
        collate_fn: The user's, or PyTorch's.
        path: The file for the note.
    """

    def __init__(self, collate_fn: Callable[[Any], Any], path: Path) -> None:
        self._collate_fn, self._path = collate_fn, path

    def __call__(self, samples: Any) -> Any:
        """Collate, and note."""
        batch = self._collate_fn(samples)
        with suppress(Exception):  # a fact that is missing is left out; the batch counts
            self._path.write_text(json.dumps(_describe_process()))
        return batch


def _describe_process() -> dict[str, int]:
    facts = {"torch_threads": torch.get_num_threads(), "cores": allowed_cores()}
    if "cv2" in sys.modules:
        facts["opencv_threads"] = sys.modules["cv2"].getNumThreads()
    with suppress(psutil.Error, AttributeError):
        facts["private_bytes"] = psutil.Process().memory_full_info().uss
    return facts


@dataclass(frozen=True)
class FirstBatch:
    """A batch, and how it came about.

    Attributes:
        batch: As the loader gave it.
        duration_s: From asking for an iterator to the batch: with the start of a worker, if there is one.
        facts: Of the process that collated it, as far as they could be found out.
    """

    batch: Any
    duration_s: float
    facts: Mapping[str, int] = field(default_factory=dict)


class Watched:
    """A worker_init_fn that does what the user's does, in a worker that writes its stacks when it takes too long.

    Args:
        worker_init_fn: The user's; None: none.
        trace: The file for the stacks.
        limit_s: After which time.
    """

    def __init__(self, worker_init_fn: Callable[[int], Any] | None, trace: Path, limit_s: float) -> None:
        self._worker_init_fn, self._trace, self._limit_s = worker_init_fn, trace, limit_s

    def __call__(self, worker: int) -> None:
        """Start watching, then initialise the worker."""
        # A thread of ours: faulthandler's own waits for ever in a process that was forked while it ran in the parent.
        watch = threading.Timer(self._limit_s, self._dump)
        watch.daemon = True
        watch.start()
        if self._worker_init_fn is not None:
            self._worker_init_fn(worker)

    def _dump(self) -> None:
        with open(self._trace, "a", encoding="utf-8") as file:
            faulthandler.dump_traceback(file)


@dataclass(frozen=True)
class Loaded:
    """What came of loading a batch.

    Attributes:
        findings: At least one; the first is about the batch itself.
        also_in_main: The same code may be tried in the main process: it took no process with it.
    """

    findings: tuple[Finding, ...]
    also_in_main: bool


def examine_batch(loader: DataLoader[Any], trace: Path, limit_s: float) -> Loaded:
    """Load one batch as the job does, and judge by it.

    Args:
        loader: The job's; it is not iterated itself.
        trace: A file for the stacks of a worker that takes too long.
        limit_s: After which time it does.
    """
    try:
        first = take_batch(loader, trace, limit_s)
    except (Exception, SystemExit) as error:  # noqa: BLE001 - whatever the user's code raises
        return Loaded((explain(error),), also_in_main=not str(error).startswith("DataLoader worker"))
    return Loaded(tuple(judge_batch(first, loader)), also_in_main=True)


def take_batch(loader: DataLoader[Any], trace: Path, limit_s: float) -> FirstBatch:
    """Load one batch as the job does, in one worker if it has workers.

    Args:
        loader: The job's; it is not iterated itself.
        trace: A file for the stacks of a worker that takes too long; the note of the worker comes beside it.
        limit_s: After which time it does.
    """
    note = trace.with_name("worker.json")
    initialise = Watched(loader.worker_init_fn, trace, 0.9 * limit_s)
    began_s = time.perf_counter()
    iterator = iter(_loader_of_one_batch(loader, Probe(loader.collate_fn, note), initialise))
    try:
        batch = next(iterator)
        duration_s = time.perf_counter() - began_s
    finally:
        # The traceback of an exception would keep the iterator, and with it the worker.
        getattr(iterator, "_shutdown_workers", lambda: None)()
    try:
        facts = json.loads(note.read_text())
    except (OSError, ValueError):
        facts = {}
    return FirstBatch(batch, duration_s, facts)


def _loader_of_one_batch(loader: DataLoader[Any], collate_fn: Probe, worker_init_fn: Watched) -> DataLoader[Any]:
    arguments: dict[str, Any] = {"num_workers": min(1, loader.num_workers), "collate_fn": collate_fn}
    if loader.num_workers:
        arguments |= {
            "worker_init_fn": worker_init_fn,
            "multiprocessing_context": loader.multiprocessing_context,
            "timeout": loader.timeout,
        }
    if isinstance(loader.dataset, IterableDataset):
        arguments |= {"batch_size": loader.batch_size}
    elif loader.batch_sampler is not None:
        arguments |= {"batch_sampler": [first_indices(loader)]}
    else:
        arguments |= {"sampler": [first_indices(loader)], "batch_size": None}
    return DataLoader(loader.dataset, **arguments)


def explain(error: BaseException) -> Finding:
    """What an exception on the way to the first batch means."""
    text = str(error)
    if "Original Traceback" in text:
        place = find_place(text, innermost_first=False)
        shown = text.strip().splitlines()[-1] + (f" ({place})" if place else "")
        return Finding("problem", "batch", f"a worker raised {shown}", "The job itself would fail there too.")
    if isinstance(error, StopIteration):
        return Finding("problem", "batch", "the loader gave no batch", "Check that every worker gets a share of data.")
    if isinstance(error, Exception):
        remedy = explain_loader_failure(error, "first batch").remedy
    else:
        remedy = "The job itself would fail there too."
    return Finding("problem", "batch", f"it cannot be loaded: {describe_error(error)}", remedy)


def judge_batch(first: FirstBatch, loader: DataLoader[Any]) -> list[Finding]:
    """What the first batch says about the job, and about all its workers together."""
    nbytes = sum(tensor.numel() * tensor.element_size() for tensor in tensors_in(first.batch))
    source = "one worker, its start included" if loader.num_workers else "the main process"
    message = (
        f"{describe_structure(first.batch)}, {format_bytes(nbytes)}, {format_seconds(first.duration_s)} from {source}"
    )
    findings = [Finding("ok", "batch", message)]
    if loader.num_workers:
        in_queue = loader.num_workers * (loader.prefetch_factor or 2)
        findings += [
            judge_threads(first.facts, loader.num_workers),
            judge_queue(in_queue, nbytes, len(tensors_in(first.batch)), open_files_limit()),
            judge_memory(first.facts.get("private_bytes"), loader.num_workers, free_memory_bytes()),
        ]
    return findings


def judge_threads(facts: Mapping[str, int], workers: int) -> Finding:
    """The threads that all workers use, against the cores that they may use."""
    if "torch_threads" not in facts:
        return Finding("ok", "worker threads", "the worker did not say")
    per_worker = max(facts["torch_threads"], facts.get("opencv_threads", 1))
    opencv = f", OpenCV {facts['opencv_threads']}" if "opencv_threads" in facts else ""
    message = f"in a worker torch uses {facts['torch_threads']}{opencv}"
    variables = [name for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS") if name in os.environ]
    message += "".join(f", {name}={os.environ[name]}" for name in variables)
    if facts.get("cores", allowed_cores()) < allowed_cores():
        return Finding(
            "warning",
            "worker threads",
            f"{message}; a worker may use {facts['cores']} of the {allowed_cores()} cores of the main process",
            "os.sched_setaffinity(0, range(os.cpu_count())) in worker_init_fn: something narrowed it.",
        )
    if per_worker > 1 and per_worker * workers > _OVERSUBSCRIBED * usable_cores():
        how = "cv2.setNumThreads(0)" if facts.get("opencv_threads", 1) > 1 else "torch.set_num_threads(1)"
        return Finding(
            "warning",
            "worker threads",
            f"{message}: {workers} workers make {per_worker * workers} threads on {usable_cores():g} cores",
            f"{how} in worker_init_fn",
        )
    return Finding("ok", "worker threads", message)


def judge_queue(
    batches: int, batch_bytes: int, tensors: int, descriptors: int | None, free_bytes: int | None = None
) -> Finding:
    """What the batches under way take of /dev/shm and of the descriptors.

    Args:
        batches: Under way at most: workers times prefetch_factor.
        batch_bytes: Of the tensors in one.
        tensors: In one.
        descriptors: The limit on them; None: none.
        free_bytes: Of /dev/shm; None: of this machine.
    """
    free_bytes = shm_free_bytes() if free_bytes is None else free_bytes
    needed = batches * batch_bytes
    message = f"up to {batches} batches under way take {format_bytes(needed)}"
    if free_bytes is not None and needed > free_bytes:
        return Finding(
            "warning",
            "queue",
            f"{message}, and /dev/shm has {format_bytes(free_bytes)} free",
            "In Docker: --shm-size=8g or --ipc=host; else fewer workers or prefetch_factor=1.",
        )
    if descriptors is not None and sharing_strategy() == "file_descriptor" and batches * tensors > descriptors / 2:
        return Finding(
            "warning",
            "queue",
            f"{message}, and {batches * tensors} of {descriptors} descriptors",
            "ulimit -n 65536, or torch.multiprocessing.set_sharing_strategy('file_system')",
        )
    return Finding("ok", "queue", f"{message} of shared memory")


def judge_memory(private_bytes: int | None, workers: int, free_bytes: int) -> Finding:
    """What all workers take of the memory, going by one after its first batch."""
    if private_bytes is None:
        return Finding("ok", "worker memory", "not told by this system")
    needed = private_bytes * workers
    message = f"{format_bytes(private_bytes)} of its own after one batch, {format_bytes(needed)} for {workers}"
    if needed > free_bytes:
        return Finding(
            "warning",
            "worker memory",
            f"{message}, and {format_bytes(free_bytes)} are free",
            f"Try num_workers={max(1, int(free_bytes // private_bytes))}.",
        )
    return Finding("ok", "worker memory", message)

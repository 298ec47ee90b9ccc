"""A first batch from one worker, and what follows for all workers: threads, shared memory, descriptors and memory."""

from __future__ import annotations

import faulthandler
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch.utils.data import DataLoader, IterableDataset

from bottleneck.analysis.advice.rules.cores import OVERSUBSCRIBED
from bottleneck.analysis.advice.rules.transfer import NEARLY_FULL
from bottleneck.analysis.advice.worker_room import MEMORY_SHARE
from bottleneck.doctor.finding import Finding
from bottleneck.doctor.job_checks.job import FAILS_TOO, first_indices
from bottleneck.doctor.job_checks.traceback_place import find_place
from bottleneck.doctor.machine_checks.cores import thread_settings
from bottleneck.job.structure import describe_structure
from bottleneck.job.target import describe_error
from bottleneck.loader.worker.worker_facts import WorkerFacts, look_at_worker
from bottleneck.measure.explain_errors import explain_loader_failure, one_line
from bottleneck.measure.facts.loader_facts import batches_in_flight, describe_queue
from bottleneck.measure.facts.payload import parts_of
from bottleneck.measure.system.cores import allowed_cores, allowed_cpus, usable_cores
from bottleneck.measure.system.environment import free_memory_bytes, shm_free_bytes
from bottleneck.measure.usage.process import read_memory
from bottleneck.results.evidence import LoaderFacts, Payload
from bottleneck.results.format import duration, size


class WithWorkerFacts:
    """A collate_fn that adds what the process is like in which it runs; it stands at the top of a module, for spawn."""

    def __init__(self, collate_fn: Callable[[Any], Any]) -> None:
        self._collate_fn = collate_fn

    def __call__(self, samples: Any) -> tuple[Any, WorkerFacts]:
        return self._collate_fn(samples), look_at_worker(None, ())


class StackWatch:
    """A worker_init_fn that also lets the worker write its stacks when it takes too long.

    Args:
        worker_init_fn: The user's, which it calls.
        trace: The file for the stacks.
        limit_s: After which time they are written.
    """

    def __init__(self, worker_init_fn: Callable[[int], Any] | None, trace: Path, limit_s: float) -> None:
        self._worker_init_fn, self._trace, self._limit_s = worker_init_fn, trace, limit_s

    def __call__(self, worker: int) -> None:
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
class FirstBatch:
    """A batch, and the process that made it.

    Attributes:
        batch: As the loader gave it.
        duration_s: From asking for an iterator to the batch: with the start of a worker, if there is one.
        facts: Of the process that collated it.
        private_bytes: Memory of the worker's own after the batch; None where that is not known.
        cores: That the worker may run on; None where that is not known.
    """

    batch: Any
    duration_s: float
    facts: WorkerFacts
    private_bytes: int | None = None
    cores: int | None = None


def examine_batch(loader: DataLoader[Any], trace: Path, limit_s: float) -> tuple[list[Finding], bool]:
    """Load one batch as the job does, and judge by it.

    Args:
        loader: The job's; it is not iterated itself.
        trace: A file for the stacks of a worker that takes too long.
        limit_s: After which time it does.

    Returns:
        Findings, of which the first is about the batch itself; and whether the same code may be tried in the main
        process, because it took no process with it.
    """
    try:
        first = take_batch(loader, trace, limit_s)
    except (Exception, SystemExit) as error:  # noqa: BLE001 - whatever the user's code raises
        return [explain(error)], not str(error).startswith("DataLoader worker")
    return judge_batch(first, loader), True


def take_batch(loader: DataLoader[Any], trace: Path, limit_s: float) -> FirstBatch:
    """Load one batch as the job does, in one worker if it has workers."""
    initialise = StackWatch(loader.worker_init_fn, trace, 0.9 * limit_s)
    began_s = time.perf_counter()
    iterator: Any = iter(_loader_of_one_batch(loader, initialise))
    try:
        batch, facts = next(iterator)
        duration_s = time.perf_counter() - began_s
        if not loader.num_workers:
            return FirstBatch(batch, duration_s, facts)
        (worker,) = iterator._workers
        memory, cores = read_memory([worker.pid], 0.0), allowed_cpus(worker.pid)
        return FirstBatch(
            batch,
            duration_s,
            facts,
            private_bytes=None if memory is None else memory.private_bytes,
            cores=None if cores is None else len(cores),
        )
    finally:
        # The traceback of an exception would keep the iterator, and with it the worker.
        getattr(iterator, "_shutdown_workers", lambda: None)()


def _loader_of_one_batch(loader: DataLoader[Any], worker_init_fn: StackWatch) -> DataLoader[Any]:
    arguments: dict[str, Any] = {
        "num_workers": min(1, loader.num_workers),
        "collate_fn": WithWorkerFacts(loader.collate_fn),
    }
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
        return Finding(
            "problem", "batch", f"a worker raised {one_line(error)}" + (f" ({place})" if place else ""), FAILS_TOO
        )
    if isinstance(error, StopIteration):
        return Finding("problem", "batch", "the loader gave no batch", "Check that every worker gets a share of data.")
    remedy = explain_loader_failure(error, "first batch").remedy if isinstance(error, Exception) else FAILS_TOO
    return Finding("problem", "batch", f"it cannot be loaded: {describe_error(error)}", remedy)


def judge_batch(first: FirstBatch, loader: DataLoader[Any]) -> list[Finding]:
    """What the first batch says about the job, and about all its workers together."""
    parts = list(parts_of(first.batch))
    payload = Payload(bytes=sum(part.nbytes for part in parts), tensor_count=len(parts))
    source = "one worker, its start included" if loader.num_workers else "the main process"
    message = f"{describe_structure(first.batch)}, {size(payload.bytes)}, {duration(first.duration_s)} from {source}"
    findings = [Finding("ok", "batch", message)]
    if loader.num_workers:
        findings += [
            judge_threads(first.facts, first.cores, loader.num_workers),
            judge_queue(describe_queue(loader, payload), batches_in_flight(loader), shm_free_bytes()),
            judge_memory(first.private_bytes, loader.num_workers, free_memory_bytes()),
        ]
    return findings


def judge_threads(facts: WorkerFacts, cores: int | None, workers: int) -> Finding:
    """The threads that all workers use, against the cores that they may use.

    Args:
        facts: Of one worker.
        cores: That it may run on.
        workers: How many there are.
    """
    opencv = facts.opencv_threads
    message = f"in a worker torch uses {facts.torch_threads}"
    message += "" if opencv is None else f", OpenCV {opencv}"
    message += "".join(f", {setting}" for setting in thread_settings())
    if cores is not None and cores < allowed_cores():
        return Finding(
            "warning",
            "worker threads",
            f"{message}; a worker may use {cores} of the {allowed_cores()} cores of the main process",
            "os.sched_setaffinity(0, range(os.cpu_count())) in worker_init_fn: something narrowed it.",
        )
    each = max(facts.torch_threads, opencv or 1)
    if each > 1 and each * workers > OVERSUBSCRIBED * usable_cores():
        how = "cv2.setNumThreads(0)" if (opencv or 1) > 1 else "torch.set_num_threads(1)"
        return Finding(
            "warning",
            "worker threads",
            f"{message}: {workers} workers make {each * workers} threads on {usable_cores():g} cores",
            f"{how} in worker_init_fn",
        )
    return Finding("ok", "worker threads", message)


def judge_queue(facts: LoaderFacts, batches: int, free_bytes: int | None) -> Finding:
    """What the batches in flight take of /dev/shm and of the descriptors.

    Args:
        facts: What they take, and the limit on descriptors.
        batches: How many they are at most.
        free_bytes: Of /dev/shm; None where there is none.
    """
    needed, descriptors, limit = facts.shared_memory_bytes_needed, facts.descriptors_needed, facts.descriptor_limit
    message = f"up to {batches} batches in flight take {size(needed)}"
    if free_bytes is not None and (needed or 0) > free_bytes:
        return Finding(
            "warning",
            "queue",
            f"{message}, and /dev/shm has {size(free_bytes)} free",
            "In Docker: --shm-size=8g or --ipc=host; else fewer workers or prefetch_factor=1.",
        )
    if descriptors and limit and descriptors >= NEARLY_FULL * limit:
        return Finding(
            "warning",
            "queue",
            f"{message}, and {descriptors:.0f} of {limit:.0f} descriptors",
            "ulimit -n 65536, or torch.multiprocessing.set_sharing_strategy('file_system')",
        )
    return Finding("ok", "queue", f"{message} of shared memory")


def judge_memory(private_bytes: int | None, workers: int, free_bytes: int) -> Finding:
    """What all workers take of the memory, going by one after its first batch."""
    if private_bytes is None:
        return Finding("ok", "worker memory", "not known on this system")
    needed = private_bytes * workers
    message = f"{size(private_bytes)} of its own after one batch, {size(needed)} for {workers}"
    if needed > MEMORY_SHARE * free_bytes:
        return Finding(
            "warning",
            "worker memory",
            f"{message}, and {size(free_bytes)} are free",
            f"Try num_workers={max(1, int(MEMORY_SHARE * free_bytes // private_bytes))}.",
        )
    return Finding("ok", "worker memory", message)

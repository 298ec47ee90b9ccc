"""Examinations of a job: its description, its dataset's pickle, and a first batch and sample for real.

They run the user's code, so `inspected.py` calls them in a process of their own.
"""

from __future__ import annotations

import operator
import time
from collections.abc import Callable, Iterator
from functools import partial
from itertools import islice
from typing import Any

from torch.utils.data import DataLoader, IterableDataset

from bottleneck.doctor.finding import Finding, format_bytes, format_seconds
from bottleneck.doctor.job_checks.structure import describe_structure
from bottleneck.errors import ExitStatus
from bottleneck.job.checks import check
from bottleneck.job.description import Pipeline
from bottleneck.job.start_method import start_method_of
from bottleneck.job.target import describe_error
from bottleneck.measure.facts.pickling import PickleSize, pickle_size
from bottleneck.measure.system.cores import usable_cores

_LARGE_PICKLE_BYTES = 64 << 20
_LONG_PICKLES_S = 2.0
"""What all workers' pickles together may take before it is told: they are sent one after the other."""
_MOST_SAMPLES = 100
_SAMPLES_S = 1.0
"""How long samples are taken for after the first one."""


def examine_description(pipeline: Pipeline) -> list[Finding]:
    """Whether the pipeline can run at all, and how its workers and batches go together.

    Raises:
        PipelineError: It cannot run.
    """
    check(pipeline)
    findings = [Finding("ok", "target", repr(pipeline))]
    loader = pipeline.make_loader()
    workers, cores = loader.num_workers, usable_cores()
    if workers > cores:
        remedy = f"Try num_workers={max(1, int(cores))}."
        findings.append(Finding("warning", "workers", f"{workers} workers share {cores:g} cores", remedy))
    batches = _count_batches(loader)
    if batches is not None and workers > 1 and batches < workers:
        findings.append(
            Finding(
                "warning",
                "batches",
                f"an epoch has {batches} for {workers} workers: some never work",
                "Use fewer workers or a smaller batch_size.",
            )
        )
    return findings


def _count_batches(loader: DataLoader[Any]) -> int | None:
    if isinstance(loader.dataset, IterableDataset):
        return None
    try:
        return len(loader)
    except Exception:  # noqa: BLE001 - a sampler of the user's without a length
        return None


def examine_pickle(
    pipeline: Pipeline, measure: Callable[[Any], PickleSize] = pickle_size, start_method: str | None = None
) -> Finding:
    """What spawn or forkserver would send to every worker, and whether it can be sent at all.

    Args:
        pipeline: The job.
        measure: How to find the size of a pickle.
        start_method: Of its workers; None: as its loader says.
    """
    loader = pipeline.make_loader()
    method = start_method or start_method_of(loader)
    needed = loader.num_workers > 0 and method != "fork"
    what = {"dataset": loader.dataset, "collate_fn": loader.collate_fn, "worker_init_fn": loader.worker_init_fn}
    sizes = {name: measure(value) for name, value in what.items()}
    refused = [f"{name} cannot be pickled ({size.failure})" for name, size in sizes.items() if size.failure]
    if refused:
        if needed:
            remedy = (
                "Open files and connections in __getitem__ instead of __init__, and use named functions, no lambdas."
            )
            return Finding("problem", "pickle", f"{refused[0]}: no worker can start by {method}", remedy)
        return Finding("ok", "pickle", f"{refused[0]}: works with fork only, Python's default before 3.14")
    return _judge_pickle(sizes["dataset"], loader.num_workers if needed else 0, method)


def _judge_pickle(size: PickleSize, workers: int, method: str) -> Finding:
    least = "" if size.complete else "at least "
    message = f"the dataset takes {least}{format_bytes(size.stream_bytes)}, {format_seconds(size.duration_s)}"
    if size.shared_bytes:
        message += f", beside {format_bytes(size.shared_bytes)} of tensors in shared memory"
    if not workers:
        return Finding("ok", "pickle", f"{message}; not sent to workers here")
    message += f", sent to each of {workers} by {method}"
    if size.stream_bytes > _LARGE_PICKLE_BYTES or size.duration_s * workers > _LONG_PICKLES_S or not size.complete:
        return Finding(
            "warning",
            "pickle",
            message,
            "Workers start late: keep paths or arrays on disk (np.memmap opened on first use), not lists of objects.",
        )
    return Finding("ok", "pickle", message)


def examine_samples(pipeline: Pipeline, read_clock_s: Callable[[], float] = time.perf_counter) -> Finding:
    """A few samples in this process, of the second batch: those of the first one have been read before.

    Args:
        pipeline: The job.
        read_clock_s: A steady clock.
    """
    loader = pipeline.make_loader()
    times_s: list[float] = []
    structure, index = "", None
    try:
        source = _samples(loader)
        while len(times_s) < 2 or sum(times_s) < _SAMPLES_S:
            began_s = read_clock_s()
            try:
                index, fetch = next(source)
                sample = fetch()
            except StopIteration:
                break
            times_s.append(read_clock_s() - began_s)
            structure = structure or describe_structure(sample)
    except (Exception, SystemExit) as error:  # noqa: BLE001 - whatever the user's code raises
        at = "" if index is None else f" at index {index}"
        return failed("sample", f"the dataset raised{at}", error)
    if not times_s:
        return Finding("problem", "sample", "the dataset gave no sample", "Check its length, paths and filters.")
    message = f"{structure}, the first in {format_seconds(times_s[0])}"
    if len(times_s) > 1:
        mean_s = sum(times_s[1:]) / (len(times_s) - 1)
        message += f", {len(times_s) - 1} more in {format_seconds(mean_s)} each"
    return Finding("ok", "sample", message)


def _samples(loader: DataLoader[Any]) -> Iterator[tuple[Any, Callable[[], Any]]]:
    """Index and function of each sample to take; None for the index where there are none."""
    if isinstance(loader.dataset, IterableDataset):
        iterator = iter(loader.dataset)
        while True:
            yield None, partial(next, iterator)
    for index in _second_batch(loader):
        yield index, partial(operator.getitem, loader.dataset, index)


def first_indices(loader: DataLoader[Any]) -> Any:
    """What the sampler of a map-style dataset gives first: indices of a batch, or an index where nothing batches."""
    return next(iter(loader.sampler if loader.batch_sampler is None else loader.batch_sampler))


def _second_batch(loader: DataLoader[Any]) -> list[Any]:
    if loader.batch_sampler is None:
        return list(islice(loader.sampler, 1, _MOST_SAMPLES)) or [first_indices(loader)]
    batches = iter(loader.batch_sampler)
    first = next(batches)
    return list(next(batches, first))


def failed(subject: str, what: str, error: BaseException) -> Finding:
    """An exception of the user's code as a finding."""
    return Finding(
        "problem",
        subject,
        f"{what}: {describe_error(error)}",
        "The job itself would fail there too.",
        ExitStatus.COULD_NOT_MEASURE,
    )

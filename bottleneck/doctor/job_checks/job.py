"""Examinations of a job: its description, its dataset's pickle, and samples for real.

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

from bottleneck.analysis.advice.rules.workers import LARGE_PICKLE_BYTES, LONG_START_S
from bottleneck.doctor.finding import Finding
from bottleneck.job.checks import check
from bottleneck.job.description import Pipeline
from bottleneck.job.start_method import start_method_of
from bottleneck.job.structure import describe_structure
from bottleneck.job.target import describe_error
from bottleneck.measure.explain_errors import PICKLE_REMEDY
from bottleneck.measure.facts.pickling import PickleSize, pickle_size
from bottleneck.measure.system.cores import usable_cores
from bottleneck.results.format import duration, size

FAILS_TOO = "The job itself would fail there too."
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


def examine_pickle(pipeline: Pipeline, measure: Callable[[Any], PickleSize] = pickle_size) -> Finding:
    """What spawn or forkserver would send to every worker, and whether it can be sent at all.

    Args:
        pipeline: The job.
        measure: How to find the size of a pickle.
    """
    loader = pipeline.make_loader()
    method = start_method_of(loader)
    workers = 0 if method == "fork" else loader.num_workers
    what = {"dataset": loader.dataset, "collate_fn": loader.collate_fn, "worker_init_fn": loader.worker_init_fn}
    sizes = {name: measure(value) for name, value in what.items()}
    for name, found in sizes.items():
        if found.failure and workers:
            return Finding(
                "problem",
                "pickle",
                f"{name} cannot be pickled ({found.failure}): no worker can start by {method}",
                PICKLE_REMEDY,
            )
        if found.failure:
            message = f"{name} cannot be pickled ({found.failure}): works with fork only, Python's default before 3.14"
            return Finding("ok", "pickle", message)
    return _judge_pickle(sizes["dataset"], workers, method)


def _judge_pickle(found: PickleSize, workers: int, method: str) -> Finding:
    least = "" if found.complete else "at least "
    message = f"the dataset takes {least}{size(found.stream_bytes)}, {duration(found.duration_s)}"
    if found.shared_bytes:
        message += f", beside {size(found.shared_bytes)} of tensors in shared memory"
    if not workers:
        return Finding("ok", "pickle", f"{message}; not sent to workers here")
    message += f", sent to each of {workers} by {method}"
    large = found.stream_bytes >= LARGE_PICKLE_BYTES
    if large or found.duration_s * workers >= LONG_START_S or not found.complete:
        return Finding(
            "warning",
            "pickle",
            message,
            "Workers start late: keep paths or arrays on disk (np.memmap opened on first use), not lists of objects.",
        )
    return Finding("ok", "pickle", message)


def examine_samples(pipeline: Pipeline, read_clock_s: Callable[[], float] = time.perf_counter) -> Finding:
    """A few samples in this process, of the second batch: those of the first one have been read before."""
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
        return Finding("problem", "sample", f"the dataset raised{at}: {describe_error(error)}", FAILS_TOO)
    if not times_s:
        return Finding("problem", "sample", "the dataset gave no sample", "Check its length, paths and filters.")
    first_s, *more_s = times_s
    message = f"{structure}, the first in {duration(first_s)}"
    if more_s:
        message += f", {len(more_s)} more in {duration(sum(more_s) / len(more_s))} each"
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

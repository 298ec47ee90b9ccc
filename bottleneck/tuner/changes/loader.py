"""Changes to the DataLoader: its workers, its queues, its memory, its start."""

from __future__ import annotations

import gc
import multiprocessing
import os
import sys
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import torch
from torch.utils.data import IterableDataset

from bottleneck.job.inspect import find_handles
from bottleneck.job.loader_args import loader_argument_names, start_method_of
from bottleneck.job.pipeline import Pipeline
from bottleneck.results.format import duration
from bottleneck.results.tuning import Outcome
from bottleneck.tuner.change import Change, Context, Excluded
from bottleneck.tuner.changes.data import epoch_of
from bottleneck.tuner.search import BEYOND_CORES

_MAX_AHEAD = 16
_START_MATTERS = 0.04
"""Minimum share of an epoch that starting the workers takes, for a faster start to gain anything."""
_FASTEST_FIRST = ("fork", "forkserver", "spawn")
_HARMLESS = 0.97
"""Factor of throughput above which more workers make no difference."""
_NO_WORKERS = "the loader has no workers"
_IN_INIT = "in worker_init_fn, after what yours does"
_DATA = "https://docs.pytorch.org/docs/stable/data.html"


def _set(argument: str, pipeline: Pipeline, value: Any = True) -> Pipeline:
    return pipeline.replace(**{argument: value})


# --- num_workers --------------------------------------------------------------------------------------------


def _why_not_workers(here: Context) -> str | None:
    is_stream = isinstance(here.loader.dataset, IterableDataset)
    return "the dataset is a stream, which divides itself among the workers in its own way" if is_stream else None


def _next_workers(here: Context, judged: Mapping[Any, Outcome]) -> int | Excluded | None:
    limit, present = here.cores * (BEYOND_CORES if here.workers_wait else 1), here.loader.num_workers
    # A step on the CPU needs cores, too. Beyond the number of cores memory may be short: increase stepwise.
    has_room = here.device.type != "cpu" or here.supply.has_cores_to_keep_up
    needed = min(here.workers_needed, max(here.cores if has_room else limit // 2, 2 * present))
    # The diagnosis has tried those that it advises, or knows the cores that a step takes and the memory that is left.
    needed, limit = max(needed, here.workers_advised), max(limit, here.workers_advised)
    count = next_count(present, here.given.make_loader().num_workers, judged, limit, needed)
    if count is None:
        return None
    above = min((other for other in here.gained if other > present), default=None)
    if count > present and above is not None and here.gained[above] >= _HARMLESS:
        return Excluded(count, f"{above} workers make no difference compared with {present}")
    why = here.supply.why_not_fewer(count) if count < present else None
    return count if why is None else Excluded(count, why)


def next_count(present: int, given: int, judged: Mapping[Any, Outcome], limit: int, needed: int = 0) -> int | None:
    """Return the next number of workers to try: more while that pays, then halfway; fewer, or none, if more do not pay.

    Args:
        present: Number in the best job so far.
        given: Number in the original job.
        judged: Outcomes of other numbers.
        limit: The largest number.
        needed: Number that would keep the step busy, which is tried at once; if unknown (0), the number is doubled.
            One worker, with its one thread, may be no faster than the main process.
    """
    worse = {given, *map(int, judged)} - {present}
    above = min((count for count in worse if count > present), default=None)
    doubled = min(max(1, 2 * present), max(limit, given))
    if above is None and doubled > present:
        return min(needed, max(limit, given)) if needed > present else doubled
    if above is not None and above - present > 1 and above >= doubled:
        return (present + above) // 2
    has_grown = any(count < present for count in worse)
    if present > 0 and not has_grown:
        return present // 2
    # Without workers nothing is handed over, which may be better if one worker is worse than two.
    return 0 if 0 < present <= given and 0 not in worse else None


# --- prefetch_factor, pin_memory, in_order ------------------------------------------------------------------


def _next_prefetch(here: Context, judged: Mapping[Any, Outcome]) -> int | None:
    doubled = 2 * (here.loader.prefetch_factor or 2)
    return doubled if doubled <= _MAX_AHEAD and doubled not in judged else None


def _why_not_pinned(here: Context) -> str | None:
    if here.device.type == "cpu":
        return "the job trains on the CPU, where nothing is copied to a device"
    return "the loader pins its batches already" if here.loader.pin_memory else None


def _why_not_out_of_order(here: Context) -> str | None:
    if "in_order" not in loader_argument_names():
        return "this version of PyTorch has no in_order, which came with 2.6"
    if here.loader.num_workers < 2:
        return "the loader has fewer than two workers"
    if not getattr(here.loader, "in_order", True):
        return "batches already come in the order in which they are ready"
    return here.supply.why_not_queue()


# --- effects that show only over whole epochs: the start of the workers -------------------------------------


def _why_not_start(here: Context) -> str | None:
    if not here.loader.num_workers:
        return _NO_WORKERS
    if here.loader.persistent_workers:
        return "the loader keeps its workers already"
    if here.epoch_s is None or isinstance(here.loader.dataset, IterableDataset):
        return "an epoch of the loader has no known length"
    if here.start_s < _START_MATTERS * here.epoch_s:
        return f"starting workers takes {duration(here.start_s)} of an epoch of {duration(here.epoch_s)}"
    return None


def _why_not_kept(here: Context) -> str | None:
    name = epoch_of(here.pipeline.dataset) or epoch_of(here.loader.collate_fn)
    stale = f"persistent workers keep the state with which they started, but there is `{name}`"
    return _why_not_start(here) or (stale if name else None)


def _faster_methods(here: Context) -> list[str]:
    """Return faster start methods; without `fork` if the dataset has a file open, which forked workers would share."""
    known = [method for method in _FASTEST_FIRST if method in multiprocessing.get_all_start_methods()]
    present = start_method_of(here.loader)
    faster = known[: known.index(present)] if present in known else []
    return [method for method in faster if method != "fork" or not find_handles(here.pipeline.dataset)]


def _why_not_method(here: Context) -> str | None:
    why = f"workers start by {start_method_of(here.loader)}, and no other method is faster and safe for the dataset"
    return _why_not_start(here) or (None if _faster_methods(here) else why)


# --- threads of the workers ---------------------------------------------------------------------------------


class WorkerThreads:
    """A `worker_init_fn` that sets the threads of a worker, after the user's own function."""

    def __init__(self, threads: int, given: Callable[[int], None] | None) -> None:
        self.threads = threads
        self.given = given

    def __call__(self, worker: int) -> None:
        if self.given is not None:
            self.given(worker)
        torch.set_num_threads(self.threads)
        if (opencv := sys.modules.get("cv2")) is not None:
            opencv.setNumThreads(self.threads)


def _doubled_threads(here: Context) -> int:
    init = here.loader.worker_init_fn
    return 2 * (init.threads if isinstance(init, WorkerThreads) else 1)  # PyTorch gives a worker one thread


def _why_not_threads(here: Context) -> str | None:
    if not here.loader.num_workers:
        return _NO_WORKERS
    return None if "cv2" in sys.modules else _why_not_doubled(here)


def _why_not_doubled(here: Context) -> str | None:
    if start_method_of(here.loader) == "fork":
        return "a forked worker with several threads hangs once its parent has computed with several (GNU OpenMP)"
    if here.workers_wait:
        return "the workers mostly wait for something other than a core"
    fits = _doubled_threads(here) * here.loader.num_workers <= here.cores
    return None if fits else "a worker has one thread, and there is no core for a second one"


def _next_threads(here: Context, judged: Mapping[Any, Outcome]) -> int | None:
    # In each worker OpenCV starts a thread per core.
    if "cv2" in sys.modules and not isinstance(here.loader.worker_init_fn, WorkerThreads) and 1 not in judged:
        return 1
    doubled = _doubled_threads(here)
    return None if _why_not_doubled(here) or doubled in judged else doubled


def _with_threads(pipeline: Pipeline, value: int) -> Pipeline:
    init = pipeline.make_loader().worker_init_fn
    users = init.given if isinstance(init, WorkerThreads) else init
    return pipeline.replace(worker_init_fn=WorkerThreads(value, users))


# --- advice of the diagnosis about the workers --------------------------------------------------------------


def _after(given: Callable[[int], None] | None, do: Callable[[], object], worker: int) -> None:
    """Act as a `worker_init_fn`: call the user's own, then another function."""
    if given is not None:
        given(worker)
    do()


def _why_not_advised(id: str, otherwise: str, here: Context) -> str | None:
    if not here.loader.num_workers:
        return _NO_WORKERS
    return None if id in here.advised else otherwise


def _with_init(do: Callable[[], object], pipeline: Pipeline) -> Pipeline:
    return pipeline.replace(worker_init_fn=partial(_after, pipeline.make_loader().worker_init_fn, do))


def _freeze() -> None:
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 50)


CHANGES = (
    Change(
        "num_workers",
        partial(_set, "num_workers"),
        alters="nothing",
        line="DataLoader(..., num_workers={value})",
        advice=("more-workers", "use-workers", "too-many-workers", "no-workers-better", "uneven-samples"),
        why_not=_why_not_workers,
        next_value=_next_workers,
        input_only=True,
        source="https://docs.pytorch.org/tutorials/recipes/recipes/tuning_guide.html",
    ),
    Change(
        "prefetch_factor",
        partial(_set, "prefetch_factor"),
        alters="memory",
        line="DataLoader(..., prefetch_factor={value})",
        input_only=True,
        why_not=lambda here: here.supply.why_not_queue() if here.loader.num_workers else _NO_WORKERS,
        next_value=_next_prefetch,
        source=_DATA,
    ),
    Change(
        "pin_memory",
        partial(_set, "pin_memory"),
        alters="memory",
        line="DataLoader(..., pin_memory=True)\nbatch = batch.to(device, non_blocking=True)",
        script_line="DataLoader(..., pin_memory=True)",
        advice=("pin-memory", "non-blocking"),
        why_not=_why_not_pinned,
        source="https://docs.pytorch.org/tutorials/intermediate/pinmem_nonblock.html",
    ),
    Change(
        "in_order",
        partial(_set, "in_order", value=False),
        alters="order",
        line="DataLoader(..., in_order=False)",
        advice=("uneven-samples",),
        why_not=_why_not_out_of_order,
        input_only=True,
        source=_DATA,
    ),
    Change(
        "persistent_workers",
        partial(_set, "persistent_workers"),
        alters="memory",
        line="DataLoader(..., persistent_workers=True)",
        advice=("persistent-workers",),
        why_not=_why_not_kept,
        whole_epochs=True,
        source=_DATA,
    ),
    Change(
        "start_method",
        partial(_set, "multiprocessing_context"),
        alters="nothing",
        line='DataLoader(..., multiprocessing_context="{value}")',
        advice=("spawn-pickling", "persistent-workers"),
        why_not=_why_not_method,
        whole_epochs=True,
        next_value=lambda here, judged: next((each for each in _faster_methods(here) if each not in judged), None),
        source="https://docs.python.org/3/library/multiprocessing.html#contexts-and-start-methods",
    ),
    Change(
        "worker_threads",
        _with_threads,
        alters="nothing",
        line=f"torch.set_num_threads({{value}})  # and cv2.setNumThreads({{value}}), {_IN_INIT}",
        advice=("thread-oversubscription",),
        why_not=_why_not_threads,
        next_value=_next_threads,
        input_only=True,
        source="https://docs.pytorch.org/docs/stable/generated/torch.set_num_threads.html",
    ),
    Change(
        "worker_affinity",
        alters="nothing",
        apply=lambda pipeline: _with_init(partial(os.sched_setaffinity, 0, os.sched_getaffinity(0)), pipeline),
        line=f"os.sched_setaffinity(0, range(os.cpu_count()))  # {_IN_INIT}",
        advice=("worker-affinity",),
        why_not=partial(_why_not_advised, "worker-affinity", "the workers were not seen to be bound to fewer cores"),
        input_only=True,
        source="https://docs.python.org/3/library/os.html#os.sched_setaffinity",
    ),
    Change(
        "gc_freeze",
        partial(_with_init, _freeze),
        alters="memory",
        line="gc.collect(); gc.freeze(); gc.set_threshold(50_000, 20, 50)  # before the workers start",
        advice=("garbage-collection",),
        why_not=partial(_why_not_advised, "garbage-collection", "garbage collections were not seen to take much"),
        input_only=True,
        source="https://docs.python.org/3/library/gc.html#gc.freeze",
    ),
)

"""What has to be ready before the first block: recorded data, cached batches, and the list of experiments."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils.data import DataLoader

from bottleneck.errors import MeasurementError
from bottleneck.job import marks
from bottleneck.job.description import Pipeline
from bottleneck.job.transfer import copies_nothing
from bottleneck.loader import modes, trees
from bottleneck.loader.record.plan import Plan, make_plan
from bottleneck.loader.switched_loader import SwitchedLoader, can_skip_batches
from bottleneck.measure.batch_cache import BatchCache, CachedBatch, keep_on_host
from bottleneck.measure.explain_errors import NOT_THE_USERS, explain_step_failure, loader_failures
from bottleneck.measure.ladder import Capabilities, Ladder, build_ladder
from bottleneck.results.evidence import RecordedBatches
from bottleneck.results.format import cache_option

_MOST_CACHED_BATCHES = 32
_FEWEST_CACHED_BATCHES = 8


@dataclass(frozen=True)
class Recorded:
    """What recording has brought."""

    plan: Plan
    batches: list[CachedBatch]
    """Batches in host memory."""


def record(
    loader: SwitchedLoader, batch_bytes: int, host_bytes: int, limit_s: float, clock: Callable[[], float]
) -> Recorded:
    """Let the workers record, keep some of their batches, and settle how the dataset is cut.

    Args:
        loader: The running loader.
        batch_bytes: What a batch takes.
        host_bytes: What the batches in host memory may take, a copy of one of them included.
        limit_s: Time for it, once every worker has recorded a batch.
        clock: Seconds from any beginning.

    Raises:
        MeasurementError: If the user's code fails.
    """
    workers = max(1, loader.num_workers)
    wanted = min(_MOST_CACHED_BATCHES, max(_FEWEST_CACHED_BATCHES, 2 * workers))
    kept: list[CachedBatch] = []
    started, taken = clock(), 0
    with loader_failures("recording"):
        loader.switch(modes.RECORD)
        for number in range(10 * workers + wanted):
            batch, samples = loader.next_batch()
            nbytes = max(batch_bytes, trees.nbytes(batch))
            room = not kept or (taken + 2 * nbytes <= host_bytes and len(kept) < wanted)
            if batch is not None and room:
                kept.append(CachedBatch(keep_on_host(batch), samples))
                taken += nbytes
            del batch  # it lies in shared memory, of which there may be little
            late = clock() - started > limit_s
            everyone = len(loader.reports()) >= workers
            if kept and ((everyone and (late or not room)) or (late and number > 4 * workers)):
                break
        if not kept:
            raise MeasurementError(
                "The collate function gave nothing: each batch was None.", "Let it return what the job trains on."
            )
        plan = make_plan(loader.reports(), iterable=loader.iterable)
        loader.use_plan(plan)
    return Recorded(plan, kept)


def describe_recorded(recorded: Recorded) -> RecordedBatches:
    """Return how many batches were recorded, and how unlike in size they are: what is served is a sample of all."""
    sizes = [trees.nbytes(cached.batch) for cached in recorded.batches]
    mean = statistics.fmean(sizes)
    return RecordedBatches(
        count=max(len(sizes), len(recorded.plan.batch_sizes)),
        size_cv=statistics.stdev(sizes) / mean if len(sizes) > 1 and mean else 0.0,
    )


@dataclass(frozen=True)
class Caches:
    """The batches cached in the main process."""

    host: BatchCache
    device: BatchCache
    """The same as `host` where nothing is copied."""
    changed: bool
    """The job changes its batches in place."""


def make_caches(
    kept: list[CachedBatch],
    *,
    copies: bool,
    transfer: Callable[[Any], Any],
    step: Callable[[Any], Any],
    device_bytes: Callable[[], int],
) -> Caches:
    """Put batches on the device, and see whether the job changes them in place; warms the train step up as well.

    Args:
        kept: Batches in host memory; those that the device has no room for are dropped.
        copies: There is a copy to the device.
        transfer: Copies a batch to the device.
        step: The train step.
        device_bytes: Gives what the batches on the device may take, a copy of one of them included; asked once the
            train step has taken what memory it needs.

    Raises:
        MeasurementError: If the transfer or the train step raises.
    """
    step = _explained(step, "device", "train step")
    if copies:
        moving = _explained(transfer, "host", "transfer to the device")
        nbytes = _warm_up(moving(trees.copy_deep(kept[0].batch)), step)
        del kept[max(1, device_bytes() // nbytes - 1) :]
        on_device = BatchCache([CachedBatch(moving(trees.copy_deep(c.batch)), c.samples) for c in kept])
        host = BatchCache(kept)
    else:
        host = on_device = BatchCache(kept)
    changed = on_device.probe(step)
    if on_device is not host:
        changed = host.probe(transfer) or changed
    return Caches(host, on_device, changed)


def _warm_up(batch: Any, step: Callable[[Any], Any]) -> int:
    """Train on a batch that nobody needs any more; returns what it takes [bytes]."""
    nbytes = max(1, trees.nbytes(batch))
    step(batch)
    return nbytes


@contextmanager
def noticed_marks() -> Iterator[set[str]]:
    """Gather the names of the marked stages that are called inside the block, in this process."""
    called: set[str] = set()

    def notice(site: str, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        called.add(marks.name_of(site))
        return function(*args, **kwargs)

    marks.handler = notice
    try:
        yield called
    finally:
        marks.handler = None


def warn_of_marks(uncalled: tuple[str, ...], by_the_job: set[str]) -> Iterator[tuple[str, str]]:
    """Yield (id, message) for marked stages that the loader does not call.

    Args:
        uncalled: Their names.
        by_the_job: Names of the marked stages that the transfer or the train step calls.
    """
    for name in sorted(by_the_job.intersection(uncalled)):
        yield (
            "mark-outside-loader",
            f'`@bottleneck.stage("{name}")` marks code of the train step or of the copy to the device, which runs in '
            "the main process: only what the loader runs can be cut. Its time is part of `compute` or `copy`.",
        )
    silent = [f'`"{name}"`' for name in uncalled if name not in by_the_job]
    if silent:
        yield (
            "mark-not-called",
            f"Marked, but nothing was recorded of it: {', '.join(silent)}. Neither the dataset nor the collate "
            "function called it while batches were recorded.",
        )


def _explained(function: Callable[[Any], Any], experiment: str, what: str) -> Callable[[Any], Any]:
    def call(batch: Any) -> Any:
        try:
            return function(batch)
        except NOT_THE_USERS:
            raise
        except BaseException as error:
            raise explain_step_failure(error, experiment, what) from error

    return call


def make_short_ladder(
    pipeline: Pipeline, user_loader: DataLoader[Any], device: torch.device, *, pinned: bool, why: str
) -> Ladder:
    """List what can be measured of a pipeline of which nothing was recorded: device, host and raw."""
    return build_ladder(
        Capabilities(
            copies=not copies_nothing(pipeline, device),
            hands_over=user_loader.num_workers > 0 or pinned,
            within_sample=("fetch",),
            has_samples=False,
            has_collated=False,
            can_skip_batches=can_skip_batches(user_loader),
            unrecorded=why,
        )
    )


def make_ladder(
    pipeline: Pipeline,
    user_loader: DataLoader[Any],
    device: torch.device,
    plan: Plan,
    *,
    pinned: bool,
    wanted_bytes: int | None = None,
) -> Ladder:
    """List what can be measured in a pipeline; `wanted_bytes` is what the caches would need where they lack memory."""
    return build_ladder(
        Capabilities(
            copies=not copies_nothing(pipeline, device),
            hands_over=user_loader.num_workers > 0 or pinned,
            within_sample=plan.within_sample,
            has_samples=plan.has_samples,
            has_collated=plan.has_collated,
            can_stop=plan.can_stop,
            can_skip_batches=can_skip_batches(user_loader),
            fetch_reason=plan.reason,
            marks=plan.marks,
            **({} if wanted_bytes is None else {"more_room": cache_option(wanted_bytes)}),
        )
    )

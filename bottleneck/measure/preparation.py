"""What is recorded of a job, and which experiments that allows."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from dataclasses import dataclass, replace

from bottleneck.errors import MeasurementError
from bottleneck.loader import modes, trees
from bottleneck.loader.plan import Plan, make_plan
from bottleneck.loader.switched import SwitchedLoader, can_skip_batches
from bottleneck.measure.batch_cache import CachedBatch, keep_on_host, tensor_bytes
from bottleneck.measure.explain_errors import loader_failures
from bottleneck.measure.job_on_device import JobOnDevice
from bottleneck.measure.ladder import Capabilities, Ladder, build_ladder
from bottleneck.results.evidence import RecordedBatches
from bottleneck.results.format import cache_option

_MOST_CACHED_BATCHES = 32
_FEWEST_CACHED_BATCHES = 8


@dataclass(frozen=True)
class Recording:
    """How the dataset is cut, and batches in host memory."""

    plan: Plan
    batches: list[CachedBatch]


def record(
    loader: SwitchedLoader,
    batch_bytes: int,
    host_bytes: int,
    device_bytes: Callable[[], int],
    limit_s: float,
    clock: Callable[[], float],
) -> Recording:
    """Let the workers record, keep some of their batches, and settle how the dataset is cut.

    Args:
        batch_bytes: What a batch takes.
        host_bytes: What the batches in host memory may take, a copy of one of them included.
        device_bytes: Gives the same for batches, or parts of them, that the loader has put on a device; asked once
            there is one, and before any is kept.
        limit_s: Time for it, once every worker has recorded a batch.
    """
    workers = max(1, loader.num_workers)
    wanted = min(_MOST_CACHED_BATCHES, max(_FEWEST_CACHED_BATCHES, 2 * workers))
    kept: list[CachedBatch] = []
    started, on_host, on_device, device_room = clock(), 0, 0, 0
    with loader_failures("recording"):
        loader.switch(modes.RECORD)
        for number in range(10 * workers + wanted):
            batch, samples = loader.next_batch()
            there = sum(taken for device, taken in tensor_bytes(batch).items() if device.type != "cpu")
            here = max(batch_bytes, trees.nbytes(batch)) - there
            if there and not device_room:
                device_room = device_bytes()
            fits = on_host + 2 * here <= host_bytes and on_device + 2 * there <= device_room
            room = not kept or (fits and len(kept) < wanted)
            if batch is not None and room:
                kept.append(CachedBatch(keep_on_host(batch), samples))
                on_host, on_device = on_host + here, on_device + there
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
    return Recording(plan, kept)


def describe_recorded(recorded: Recording) -> RecordedBatches:
    """Return how many batches were recorded, and how unlike in size they are: what is served is a sample of all."""
    sizes = [trees.nbytes(cached.batch) for cached in recorded.batches]
    mean = statistics.fmean(sizes)
    return RecordedBatches(
        count=max(len(sizes), len(recorded.plan.batch_sizes)),
        size_cv=statistics.stdev(sizes) / mean if len(sizes) > 1 and mean else 0.0,
    )


def short_ladder(job: JobOnDevice, why: str) -> Ladder:
    """List what can be measured of a job of which nothing was recorded: device, host and raw."""
    nothing = Plan("fetch", has_samples=False, has_collated=False)
    return build_ladder(replace(_capabilities(job, nothing), unrecorded=why))


def make_ladder(job: JobOnDevice, plan: Plan, wanted_bytes: int | None = None) -> Ladder:
    """List what can be measured of a job; `wanted_bytes` is what the caches would need where they lack memory."""
    can = _capabilities(job, plan)
    return build_ladder(can if wanted_bytes is None else replace(can, more_room=cache_option(wanted_bytes)))


def _capabilities(job: JobOnDevice, plan: Plan) -> Capabilities:
    hands_over = job.loader.num_workers > 0 or job.pinned
    return Capabilities(job.copies, hands_over, plan, can_skip_batches(job.loader), not_copied=job.not_copied)

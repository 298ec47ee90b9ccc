"""A job opened as a diagnosis opens it, for benchmarks that look at single blocks."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from bottleneck.job.cuts import find_sites
from bottleneck.job.pipeline import Pipeline
from bottleneck.job.step import device_of
from bottleneck.loader import trees
from bottleneck.loader.switched import SwitchedLoader
from bottleneck.measure.bench import Bench
from bottleneck.measure.device import JobOnDevice
from bottleneck.measure.ladder import Ladder
from bottleneck.measure.prepare import make_caches, make_ladder, record

_CACHE_BYTES = 1 << 28
_RECORDING_S = 2.0
_HANG_S = 60.0


@contextmanager
def staged_job(fields: dict[str, Any]) -> Iterator[tuple[Bench, Ladder]]:
    """Start the workers and record; yield what runs blocks, and the arms that there are.

    Args:
        fields: Of a pipeline, as a user's `build` returns them.
    """
    pipeline = Pipeline.from_mapping(fields)
    device, user_loader = device_of(pipeline), pipeline.make_loader()
    sites = find_sites(user_loader.dataset, pipeline.augment)
    loader = SwitchedLoader(user_loader, sites, seed=0, hang_s=_HANG_S)
    try:
        loader.start()
        batch_bytes = trees.nbytes(loader.next_batch()[0])
        loader.allow_caches(_CACHE_BYTES // max(1, loader.num_workers))
        recorded = record(loader, batch_bytes, _CACHE_BYTES, lambda: _CACHE_BYTES, _RECORDING_S, time.perf_counter)
        job = JobOnDevice.of(pipeline, user_loader, device)
        caches = make_caches(
            recorded.batches, copies=job.copies, transfer=job.transfer, step=job.step,
            device_bytes=lambda: _CACHE_BYTES, synchronize=_nothing_to_wait_for,
        )  # fmt: skip
        ladder = make_ladder(job, recorded.plan)
        bench = Bench(
            loader=loader, host=caches.host, device=caches.device, transfer=job.transfer, step=job.step,
            synchronize=_nothing_to_wait_for, clock=time.perf_counter,
        )  # fmt: skip
        yield bench, ladder
    finally:
        loader.close()


def _nothing_to_wait_for() -> None:
    """The step that stands for an accelerator returns when it is done."""

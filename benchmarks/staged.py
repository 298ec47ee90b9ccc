"""A job opened as a diagnosis opens it, for benchmarks that look at single blocks."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from bottleneck.job.cuts import find_sites
from bottleneck.job.description import Pipeline
from bottleneck.job.train_step import make_train_step
from bottleneck.job.transfer import copies_nothing, make_transfer, resolve_device
from bottleneck.loader import trees
from bottleneck.loader.switched_loader import SwitchedLoader
from bottleneck.measure.bench import Bench
from bottleneck.measure.ladder import Ladder
from bottleneck.measure.preparation import make_caches, make_ladder, record

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
    device, user_loader = resolve_device(pipeline.device), pipeline.make_loader()
    sites = find_sites(user_loader.dataset, pipeline.augment)
    loader = SwitchedLoader(user_loader, sites, seed=0, hang_s=_HANG_S)
    try:
        loader.start()
        batch_bytes = trees.nbytes(loader.next_batch()[0])
        loader.allow_caches(_CACHE_BYTES // max(1, loader.num_workers))
        recorded = record(loader, batch_bytes, _CACHE_BYTES, _RECORDING_S, time.perf_counter)
        copies, step = not copies_nothing(pipeline, device), make_train_step(pipeline, device)
        transfer = make_transfer(pipeline, device, pinned=False) if copies else _leave
        caches = make_caches(
            recorded.batches, copies=copies, transfer=transfer, step=step, device_bytes=lambda: _CACHE_BYTES
        )
        ladder = make_ladder(pipeline, user_loader, device, recorded.plan, pinned=False)
        bench = Bench(
            loader=loader, host=caches.host, device=caches.device, transfer=transfer, step=step,
            synchronize=_nothing_to_wait_for, clock=time.perf_counter,
        )  # fmt: skip
        yield bench, ladder
    finally:
        loader.close()


def _leave(batch: Any) -> Any:
    return batch


def _nothing_to_wait_for() -> None:
    """The step that stands for an accelerator returns when it is done."""

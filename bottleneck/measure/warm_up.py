"""Warm the job up: its batches are cached in host memory and on the device, and everything gets ready to be timed."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from bottleneck.job import marks
from bottleneck.loader import trees
from bottleneck.loader.calls import Tape
from bottleneck.loader.switched import SwitchedLoader
from bottleneck.measure.batch_cache import PROBING_S, BatchCache, CachedBatch, copy_batch, tensors_of
from bottleneck.measure.bench import DEVICE_WARM_UP_S, Bench
from bottleneck.measure.cache_budget import CacheBudget
from bottleneck.measure.device import devices_of, free_device_bytes, make_synchronize
from bottleneck.measure.evidence.payload import WatchedStep, describe_payload
from bottleneck.measure.explain_errors import NOT_THE_USERS, explain_step_failure
from bottleneck.measure.job_on_device import JobOnDevice
from bottleneck.measure.ledger import Ledger
from bottleneck.measure.loop import Loop
from bottleneck.measure.preparation import Recording
from bottleneck.measure.ranks.group import Group
from bottleneck.measure.ranks.lockstep import bench_maker
from bottleneck.measure.ranks.team import rank_warnings
from bottleneck.measure.replays import Replays
from bottleneck.measure.training import Training, make_training


def make_bench(
    job: JobOnDevice,
    loader: SwitchedLoader,
    recorded: Recording,
    budget: CacheBudget,
    ledger: Ledger,
    clock: Callable[[], float],
    loop: Loop,
    group: Group | None = None,
) -> tuple[Bench, Training]:
    """Cache batches, run the first steps, and return what runs blocks; what shows on the way goes to the ledger."""
    used = (job.device, *devices_of(job.pipeline.model, job.pipeline.optimizer))
    synchronize = make_synchronize(job.device, used)
    if group is None:
        ledger.warn_all(rank_warnings(used))
    training = make_training(job.pipeline, job.step, job.device, synchronize, clock)
    step = WatchedStep(job.step, clock, loop.batches_ahead)
    with Tape().listening() as called:
        caches = make_caches(
            recorded.batches, copies=job.copies, transfer=job.onto_device, step=step if group is None else job.step,
            copying_step=job.step if job.loop_copies else None,
            device_bytes=lambda: budget.on_device(free_device_bytes(job.device)),
            synchronize=synchronize, group=group,
        )  # fmt: skip
    if group is None:
        step.catch_up(lambda: caches.device.serve().batch)
    batch = recorded.batches[0].batch
    payload = describe_payload(batch, job.pipeline.model)
    if not loop.has_queue:  # what another thread reads is not seen
        payload = step.add_unread(payload, batch)
    ledger.evidence = replace(ledger.evidence, payload=payload)
    ledger.warn_all(_warn_of_marks(recorded.plan.uncalled, {marks.name_of(site) for site in called}))
    synchronize()
    warning = caches.warning()
    if warning is None:
        loader.serve_batches_themselves()
    else:
        ledger.warn(*warning)
    replays = Replays(
        budget.for_replays(free_device_bytes(job.device)), recorded.batches,
        in_shared_memory=loader.num_workers > 0 and not job.pinned,
    )  # fmt: skip
    make = Bench if group is None else bench_maker(group, job)
    bench = make(
        loader=loader, host=caches.host, device=caches.device, transfer=job.transfer, step=training.watch(job.step),
        synchronize=synchronize, clock=clock, split_blocks=job.on_cpu, replays=replays,
        onto_device=job.onto_device,
        device_warm_up_s=0.0 if job.on_cpu and not loop.has_queue else DEVICE_WARM_UP_S, loop=loop,
    )  # fmt: skip
    return bench, training


@dataclass(frozen=True)
class Caches:
    """The batches cached in the main process."""

    host: BatchCache
    device: BatchCache
    """The same as `host` where nothing is copied."""
    loop_copies: bool = False
    """The train step copies its batches by itself."""

    def warning(self) -> tuple[str, str] | None:
        """Return id and message where batches are cloned for each step."""
        copies = self.host is not self.device
        of_host = "train step" if self.loop_copies else "copy to the device"
        changing = list(dict.fromkeys(["train step"] * self.device.clones + [of_host] * (copies and self.host.clones)))
        cloned = ["`device`"] * self.device.clones + ["`host`"] * self.host.clones
        if not changing:
            return None
        return (
            "batch-changed-in-place",
            f"The {' and the '.join(changing)} {'changes its' if len(changing) == 1 else 'change their'} batch in "
            "place, so cached batches are cloned for each step; the cost of the clone is part of "
            f"{' and '.join(cloned)}.",
        )


def make_caches(
    kept: list[CachedBatch],
    *,
    copies: bool,
    transfer: Callable[[Any], Any],
    step: Callable[[Any], Any],
    device_bytes: Callable[[], int],
    synchronize: Callable[[], None],
    copying_step: Callable[[Any], Any] | None = None,
    group: Group | None = None,
) -> Caches:
    """Put batches on the device, and see whether the job changes them in place; warms the train step up as well.

    Args:
        kept: Batches in host memory; those that the device has no room for are dropped.
        copies: There is a copy to the device.
        device_bytes: Gives what the batches on the device may take, a copy of one of them included; asked once the
            train step has taken what memory it needs.
        synchronize: Waits for the device: what a step takes is not known before it is done.
        copying_step: The train step, where that also gets batches in host memory, and copies them by itself.
        group: The ranks of the job, which all do the same number of steps; None for a single process.
    """
    step_to_the_end = _to_the_end(_explained(step, "device", "train step"), synchronize)
    # A loop that copies by itself may read its batch in a stream of its own, as a prefetcher does; a clone on the
    # device is made in the current one.
    wait = synchronize if copying_step is not None else lambda: None
    if copies:
        moving = _explained(transfer, "host", "transfer to the device")
        nbytes = _warm_up(moving(copy_batch(kept[0].batch)), step_to_the_end)
        del kept[max(1, device_bytes() // nbytes - 1) :]
        if group is not None:
            _keep_alike(group, kept, lambda: step_to_the_end(moving(copy_batch(kept[0].batch))))
        on_device = BatchCache([CachedBatch(moving(copy_batch(c.batch)), c.samples) for c in kept], wait)
        host = BatchCache(kept)
    else:
        if group is not None:
            _keep_alike(group, kept, lambda: step_to_the_end(copy_batch(kept[0].batch)))
        there = any(tensor.device.type != "cpu" for tensor in tensors_of(kept[0].batch))
        host = on_device = BatchCache(kept, wait if there else lambda: None)
    limit_s = PROBING_S if group is None else math.inf
    on_device.probe(step_to_the_end, limit_s=limit_s)
    if on_device is not host and copying_step is not None:
        host.probe(_to_the_end(_explained(copying_step, "host", "train step"), synchronize), limit_s=limit_s)
    elif on_device is not host:
        host.probe(transfer)
    return Caches(host, on_device, copying_step is not None)


def _to_the_end(step: Callable[[Any], Any], synchronize: Callable[[], None]) -> Callable[[Any], None]:
    """Return a step that is done when it returns."""

    def run(batch: Any) -> None:
        step(batch)
        synchronize()

    return run


def _keep_alike(group: Group, kept: list[CachedBatch], run: Callable[[], Any]) -> None:
    """Drop batches until all ranks keep equally many, and no more than there is time to try the train step on."""
    for _ in range(2):  # the first one may compile
        started = time.perf_counter()
        run()
    tried = math.ceil(PROBING_S / max(time.perf_counter() - started, 1e-9))
    del kept[group.fewest(min(len(kept), tried)) :]


def _warm_up(batch: Any, step: Callable[[Any], Any]) -> int:
    """Train on a batch that is not needed any more; returns its size [bytes]."""
    nbytes = max(1, trees.nbytes(batch))
    step(batch)
    return nbytes


def _warn_of_marks(uncalled: tuple[str, ...], by_the_job: set[str]) -> Iterator[tuple[str, str]]:
    """Yield (id, message) for marked stages that the loader does not call; the transfer or the train step may."""
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

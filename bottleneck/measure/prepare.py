"""Prepare a job for timing, from the first batch: record, fill the caches, warm up."""

from __future__ import annotations

import itertools
import math
import statistics
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch.utils.data import DataLoader

from bottleneck.errors import MeasurementError
from bottleneck.job import marks
from bottleneck.job.inspect import modules_of
from bottleneck.job.loader_classes import can_skip_batches
from bottleneck.loader import modes, trees
from bottleneck.loader.calls import Tape
from bottleneck.loader.recording.plan import Plan, make_plan
from bottleneck.loader.recording.record import READ_BY_COPY
from bottleneck.loader.switched import SwitchedLoader
from bottleneck.measure.bench import DEVICE_WARM_UP_S, MAX_STEPS_AHEAD, Bench
from bottleneck.measure.caches import (
    PROBING_S,
    BatchCache,
    CacheBudget,
    CachedBatch,
    copy_batch,
    held_bytes,
    is_on_device,
    keep_on_host,
    tensor_bytes,
)
from bottleneck.measure.device import JobOnDevice, devices_of, free_device_bytes, make_synchronize, waited_for
from bottleneck.measure.evidence.payload import WatchedStep, describe_payload
from bottleneck.measure.evidence.pickled import describe_pickled
from bottleneck.measure.explain_errors import job_failures, loader_failures
from bottleneck.measure.ladder import Capabilities, Ladder, build_ladder
from bottleneck.measure.ledger import Ledger
from bottleneck.measure.machine.device_time import make_events
from bottleneck.measure.options import Loop
from bottleneck.measure.ranks.group import ALONE, World
from bottleneck.measure.ranks.lockstep import pacing_for
from bottleneck.measure.ranks.team import rank_warnings
from bottleneck.measure.replays import Replays
from bottleneck.measure.training import Training, make_training
from bottleneck.measure.updates import Updates, holds_optimizer
from bottleneck.results.evidence import Payload, RecordedBatches
from bottleneck.results.format import cache_option
from bottleneck.results.records import Warning
from bottleneck.results.warnings.cuts import (
    cut_changes_its_argument,
    cut_not_called,
    cut_not_used,
    lazy_values,
    lazy_values_recorded,
    mark_not_called,
    mark_not_used,
    mark_output_changed,
    mark_outside_loader,
    no_cut_used,
    rest_counts_as_load,
)
from bottleneck.results.warnings.job import batch_changed_in_place
from bottleneck.results.warnings.too_little import checked_less

_MAX_CACHED_BATCHES = 32
_MIN_CACHED_BATCHES = 8


@dataclass(frozen=True)
class Recording:
    """The cuts of the dataset, and recorded batches in host memory."""

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
    """Let the workers record, keep some of their batches, and decide how the dataset is cut.

    Args:
        batch_bytes: Size of a batch.
        host_bytes: Limit for the batches in host memory, a copy of one of them included.
        device_bytes: Returns the same limit for batches, or parts of them, that the loader has put on a device; called
            once there is one, before any is kept.
        limit_s: Seconds for recording, once every worker has recorded a batch.
    """
    workers = max(1, loader.num_workers)
    wanted = min(_MAX_CACHED_BATCHES, max(_MIN_CACHED_BATCHES, 2 * workers))
    kept: list[CachedBatch] = []
    started, on_host, on_device, device_room = clock(), 0, 0, 0
    with loader_failures("recording"):
        loader.switch(modes.RECORD)
        for number in range(10 * workers + wanted):
            batch, samples = loader.next_batch()
            there = sum(taken for device, taken in tensor_bytes(batch).items() if device.type != "cpu")
            here = max(batch_bytes, held_bytes(batch)) - there
            if there and not device_room:
                device_room = device_bytes()
            fits = on_host + 2 * here <= host_bytes and on_device + 2 * there <= device_room
            room = not kept or (fits and len(kept) < wanted)
            if batch is not None and room:
                kept.append(CachedBatch(keep_on_host(batch), samples))
                on_host, on_device = on_host + here, on_device + there
            del batch  # it is in shared memory, which may be scarce
            late = clock() - started > limit_s
            everyone = len(loader.reports()) >= workers
            if kept and ((everyone and (late or not room)) or (late and number > 4 * workers)):
                break
        if not kept:
            raise MeasurementError(
                "The collate function returned no data: each batch was None.",
                "Let it return the data that the job trains on.",
            )
        plan = make_plan(loader.reports(), iterable=loader.iterable)
        loader.use_plan(plan)
    return Recording(plan, kept)


def warnings_of_plan(plan: Plan) -> Iterator[Warning]:
    """Yield warnings of the way in which a dataset is cut."""
    for caveats in plan.caveats:
        yield from itertools.starmap(cut_not_used, caveats.unused_cuts.items())
        yield from (cut_not_called(cut, caveats.recorded_items) for cut in caveats.uncalled_cuts)
        if caveats.rest_share:
            yield rest_counts_as_load(caveats.rest_share)
        if caveats.undivided:
            yield no_cut_used(caveats.undivided)
        yield from itertools.starmap(cut_changes_its_argument, caveats.copied_arguments.items())
        yield from itertools.starmap(mark_not_used, caveats.unused_marks.items())
        yield from itertools.starmap(mark_output_changed, caveats.copied_marks.items())
        for value, stage in caveats.lazy:
            yield lazy_values_recorded(value) if stage == READ_BY_COPY else lazy_values(value, stage)
        if caveats.checked_less:
            yield checked_less()


def describe_recorded(recorded: Recording) -> RecordedBatches:
    """Return the number of recorded batches, and how much their sizes differ: the served ones are a sample of all."""
    sizes = [trees.nbytes(cached.batch) for cached in recorded.batches]
    mean = statistics.fmean(sizes)
    return RecordedBatches(
        count=max(len(sizes), len(recorded.plan.batch_sizes)),
        size_cv=statistics.stdev(sizes) / mean if len(sizes) > 1 and mean else 0.0,
    )


def short_ladder(job: JobOnDevice, why: str) -> Ladder:
    """List the experiments of a job without recordings: device, host and raw."""
    nothing = Plan("fetch", has_samples=False, has_collated=False)
    return build_ladder(replace(_capabilities(job, nothing), unrecorded=why))


def make_ladder(job: JobOnDevice, plan: Plan, wanted_bytes: int | None = None) -> Ladder:
    """List the experiments of a job; `wanted_bytes` is the memory that the caches would need, if they lack it."""
    can = _capabilities(job, plan)
    return build_ladder(can if wanted_bytes is None else replace(can, more_room=cache_option(wanted_bytes)))


def _capabilities(job: JobOnDevice, plan: Plan) -> Capabilities:
    hands_over = job.loader.num_workers > 0 or job.pinned
    collates = hands_over or job.loader.collate_fn is not trees.as_it_is
    if not collates and not plan.marks.sample:
        plan = replace(plan, has_samples=False)
    return Capabilities(job.not_copied, hands_over, plan, can_skip_batches(job.loader), collates=collates)


@dataclass(frozen=True)
class FirstSteps:
    """Findings of the first steps.

    Attributes:
        caches: The batches that are served to the train step.
        payload: Contents of a batch.
        called: Names of the marked stages that the train step or the copy to the device called.
    """

    caches: Caches
    payload: Payload
    called: set[str]


def run_first_steps(
    job: JobOnDevice,
    batches: list[CachedBatch],
    device_bytes: Callable[[], int],
    synchronize: Callable[[], None],
    clock: Callable[[], float],
    loop: Loop,
    group: World = ALONE,
) -> FirstSteps:
    """Cache batches, try the train step on them, and note in the loop how many batches an update takes.

    Args:
        job: The job.
        batches: Batches in host memory; those that do not fit on the device are dropped.
        device_bytes: As in `make_caches`.
        synchronize: Waits for the device.
        clock: Monotonic seconds.
        loop: The user's own loop, if that is the train step.
        group: The ranks of the job, which all do the same number of steps.
    """
    counts_updates = not loop.batches_ahead  # for the loop of a script, updates are known
    updates = Updates(clock, are_expected=counts_updates and holds_optimizer(job.pipeline.optimizer, job.step))
    counted = updates.watch(job.step)
    step = WatchedStep(counted, clock, loop.batches_ahead)
    with Tape().listening() as called, updates:
        caches = make_caches(
            batches,
            copies=job.copies,
            transfer=job.onto_device,
            step=step if group.is_alone else counted,
            copying_step=job.step if job.loop_copies else None,
            device_bytes=device_bytes,
            synchronize=synchronize,
            group=group,
        )
        if group.is_alone:
            step.catch_up(lambda: caches.device.serve().batch)
        if group.is_alone and counts_updates:
            updates.catch_up(lambda: step(caches.device.serve().batch))
    payload = _describe_handed_over(job.loader, [cached.batch for cached in batches])
    if not loop.has_queue:  # reads of another thread are not seen
        payload = step.add_unread(payload, batches[0].batch)
    if counts_updates:
        loop.batches_per_update = updates.batches_each
    return FirstSteps(caches, payload, {marks.name_of(site) for site in called})


def _describe_handed_over(loader: DataLoader[Any], batches: list[Any]) -> Payload:
    """Describe a batch, and what it takes to hand it over."""
    payload = describe_payload(batches[0])
    if not loader.num_workers:
        return payload
    passes_descriptors = torch.multiprocessing.get_sharing_strategy() == "file_descriptor"  # type: ignore[no-untyped-call]  # torch's
    in_flight = 1 + loader.num_workers * (loader.prefetch_factor or 1)
    return replace(
        payload,
        pickled=describe_pickled(batches),
        descriptors_in_flight=in_flight * (payload.tensor_count or 0) if passes_descriptors else None,
    )


def make_bench(
    job: JobOnDevice,
    loader: SwitchedLoader,
    recorded: Recording,
    budget: CacheBudget,
    ledger: Ledger,
    clock: Callable[[], float],
    loop: Loop,
    group: World = ALONE,
) -> tuple[Bench, Training]:
    """Cache batches, run the first steps, and return the bench with its training; findings go to the ledger."""
    used = (job.device, *devices_of(job.pipeline.model, job.pipeline.optimizer))
    synchronize = make_synchronize(job.device, used)
    if group.is_alone:
        ledger.warn_all(rank_warnings(used))
    training = make_training(job.pipeline, job.step, job.device, synchronize, clock)

    def device_bytes() -> int:
        return budget.on_device(free_device_bytes(job.device))

    first = run_first_steps(job, recorded.batches, device_bytes, synchronize, clock, loop, group)
    ledger.note(payload=first.payload)
    ledger.warn_all(_warn_of_marks(recorded.plan.uncalled, first.called, job.loader))
    synchronize()
    caches, warning = first.caches, first.caches.warning()
    if warning is not None:
        ledger.warn(warning)
    elif not (caches.host.renews or caches.device.renews):
        loader.serve_batches_themselves()
    in_shared_memory = loader.num_workers > 0 and not job.pinned
    bench = Bench(
        loader=loader,
        host=caches.host,
        device=caches.device,
        transfer=job.transfer,
        step=training.watch(job.step),
        synchronize=synchronize,
        clock=clock,
        split_blocks=job.on_cpu,
        replays=Replays(device_bytes(), recorded.batches, in_shared_memory=in_shared_memory),
        onto_device=job.onto_device,
        steps_ahead=0 if job.on_cpu else MAX_STEPS_AHEAD,
        make_events=partial(make_events, job.device),
        device_warm_up_s=0.0 if job.on_cpu and not loop.has_queue else DEVICE_WARM_UP_S,
        loop=loop,
        make_pacing=pacing_for(group, job),
    )
    return bench, training


@dataclass(frozen=True)
class Caches:
    """The batches cached in the main process."""

    host: BatchCache
    device: BatchCache
    """The same as `host` if nothing is copied."""
    loop_copies: bool = False
    """True if the train step copies its batches itself."""

    def warning(self) -> Warning | None:
        """Return a warning if batches are cloned for each step."""
        copies = self.host is not self.device
        of_host = "train step" if self.loop_copies else "copy to the device"
        changing = list(dict.fromkeys(["train step"] * self.device.clones + [of_host] * (copies and self.host.clones)))
        cloned = ["device"] * self.device.clones + ["host"] * self.host.clones
        return batch_changed_in_place(changing, cloned) if changing else None


def make_caches(
    kept: list[CachedBatch],
    *,
    copies: bool,
    transfer: Callable[[Any], Any],
    step: Callable[[Any], Any],
    device_bytes: Callable[[], int],
    synchronize: Callable[[], None],
    copying_step: Callable[[Any], Any] | None = None,
    group: World = ALONE,
) -> Caches:
    """Put batches on the device, and find out if the job changes them in place; also warms up the train step.

    Args:
        kept: Batches in host memory; those that do not fit on the device are dropped.
        copies: True if there is a copy to the device.
        device_bytes: Returns the limit for batches on the device, a copy of one of them included; called once the train
            step has allocated its memory.
        synchronize: Waits for the device: the time of a step is known only when it is done.
        copying_step: The train step, if it also gets batches in host memory and copies them itself.
        group: The ranks of the job, which all do the same number of steps.
    """
    step_to_the_end = waited_for(job_failures("device")(step), synchronize)
    # A loop that copies itself may read its batch in a separate stream, as a prefetcher does; a clone on the device is
    # made in the current one.
    wait = synchronize if copying_step is not None else lambda: None
    if copies:
        moving = job_failures("host", "transfer to the device")(transfer)
        first = moving(copy_batch(kept[0].batch))
        nbytes = max(1, trees.nbytes(first))
        step_to_the_end(first)
        del first  # before asking for the free memory
        del kept[max(1, device_bytes() // nbytes - 1) :]
        if not group.is_alone:
            _keep_alike(group, kept, lambda: step_to_the_end(moving(copy_batch(kept[0].batch))))
        on_device = BatchCache([CachedBatch(moving(copy_batch(c.batch)), c.samples) for c in kept], wait)
        host = BatchCache(kept)
    else:
        if not group.is_alone:
            _keep_alike(group, kept, lambda: step_to_the_end(copy_batch(kept[0].batch)))
        host = on_device = BatchCache(kept, wait if is_on_device(kept[0].batch) else lambda: None)
    limit_s = PROBING_S if group.is_alone else math.inf
    on_device.probe(step_to_the_end, limit_s=limit_s)
    if on_device is not host and copying_step is not None:
        host.probe(waited_for(job_failures("host")(copying_step), synchronize), limit_s=limit_s)
    elif on_device is not host:
        host.probe(transfer)
    return Caches(host, on_device, copying_step is not None)


def _keep_alike(group: World, kept: list[CachedBatch], run: Callable[[], Any]) -> None:
    """Drop batches until all ranks keep the same number, and no more than there is time to try the train step on."""
    for _ in range(2):  # the first one may compile
        started = time.perf_counter()
        run()
    tried = math.ceil(PROBING_S / max(time.perf_counter() - started, 1e-9))
    del kept[min(group.share(min(len(kept), tried))) :]


def _warn_of_marks(
    uncalled: Mapping[str, frozenset[str]], by_the_job: set[str], loader: DataLoader[Any]
) -> Iterator[Warning]:
    """Yield warnings of marked stages that the loader does not call, though the transfer or the step may."""
    for name in sorted(by_the_job.intersection(uncalled)):
        yield mark_outside_loader(name)
    # Marks of another job may be in any module that this process has imported.
    own = modules_of(loader.dataset, loader.collate_fn) if uncalled else frozenset()
    silent = [name for name, modules in uncalled.items() if name not in by_the_job and modules & own]
    if silent:
        yield mark_not_called(silent)

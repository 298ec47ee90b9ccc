"""One diagnosis from beginning to end: start the workers, record, measure in rounds, put everything back."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch.utils.data import DataLoader

from bottleneck.errors import MeasurementError
from bottleneck.job.cuts import CutSite, find_sites
from bottleneck.job.description import Pipeline
from bottleneck.job.train_step import make_train_step
from bottleneck.job.transfer import copies_nothing, make_transfer, resolve_device
from bottleneck.loader import trees
from bottleneck.loader.observe.observation import Observation
from bottleneck.loader.record.plan import Plan
from bottleneck.loader.switched_loader import SwitchedLoader
from bottleneck.measure.batch_cache import CachedBatch, keep_on_host
from bottleneck.measure.bench import DEVICE_WARM_UP_S, Bench
from bottleneck.measure.cache_budget import CacheBudget, choose_budget, wanted_bytes
from bottleneck.measure.cold.cold_session import ColdSession
from bottleneck.measure.describe import describe_arm, describe_pipeline
from bottleneck.measure.device import device_can_pin, devices_of, free_device_bytes, make_synchronize
from bottleneck.measure.explain_errors import (
    came_from_loader,
    explain_early_end,
    explain_escape,
    explain_loader_failure,
    job_failures,
    loader_failures,
)
from bottleneck.measure.facts.epoch_gap import describe_epoch_gap
from bottleneck.measure.facts.later_starts import later_start_matters, later_starts_s
from bottleneck.measure.facts.loader_facts import describe_loader
from bottleneck.measure.facts.observation import BUDGET_SHARE, LONGEST_S, observe, summarise, with_times
from bottleneck.measure.facts.payload import describe_payload
from bottleneck.measure.facts.unread import WatchedStep
from bottleneck.measure.interrupts import interrupts_deferred
from bottleneck.measure.ladder import Arm
from bottleneck.measure.ledger import Ledger
from bottleneck.measure.options import MeasureOptions
from bottleneck.measure.passes.passes import Passes, note_waits
from bottleneck.measure.preparation import (
    Recorded,
    describe_recorded,
    make_caches,
    make_ladder,
    make_short_ladder,
    noticed_marks,
    record,
    warn_of_marks,
)
from bottleneck.measure.preserve.preserved import Preserved, preserved
from bottleneck.measure.progress import ProgressCallback, ProgressUpdate
from bottleneck.measure.ranks import rank_warnings
from bottleneck.measure.replays import Replays
from bottleneck.measure.rounds.receiving import receiving_s_per_batch
from bottleneck.measure.rounds.rounds import Judge, Rounds
from bottleneck.measure.rounds.running_start import ROUNDS as RUNNING_ROUNDS
from bottleneck.measure.rounds.running_start import is_slow, measure_running_start, too_slow_for_stages
from bottleneck.measure.rounds.schedule import longest_budget_s, total_budget_s
from bottleneck.measure.setup import move_model, seed_everything, shared_cores_warning
from bottleneck.measure.system.environment import describe_environment, free_memory_bytes
from bottleneck.measure.training.training import Training, make_training
from bottleneck.measure.trial.worker_trial import BUDGET_SHARE as TRIAL_SHARE
from bottleneck.measure.trial.worker_trial import try_workers
from bottleneck.measure.visit import Counters
from bottleneck.results.records import Cost, Judgement, Measurement
from bottleneck.results.stacks import StackProfile
from bottleneck.results.traces import TraceFile

_RECORDING_SHARE = 0.06
"""The share of the budget for recording, beyond one batch per worker."""
_EMPTY_BATCHES = 20
"""Batches that may be None, as filters give them, until one is waited for no longer to know its size."""
_CHECKING_SHARE = 0.1
"""The share of the budget in which the workers check that recordings replay; with slow samples they check less."""
_HANG_S = 300.0
"""How long the first batch may take; opening a large dataset does."""
_SHORTEST_HANG_S, _HANG_FACTOR = 60.0, 20.0
"""Later ones may take this, or so many times what the first took."""


@dataclass(frozen=True)
class Outcome:
    """What was measured, and what ended it early if anything did."""

    measurement: Measurement
    failure: BaseException | None = None
    profile: StackProfile | None = None
    """What the workers' code does; None where it was not asked for, or nothing came of it."""
    traces: tuple[TraceFile, ...] = ()
    """The traces that were asked for, as far as anything came of it."""


def measure(
    pipeline: Pipeline,
    options: MeasureOptions,
    *,
    judge: Judge,
    on_progress: ProgressCallback,
    clock: Callable[[], float] = time.perf_counter,
) -> Outcome:
    """Measure a pipeline, and leave everything as it was if the options ask for that.

    Args:
        pipeline: The job; it has been checked.
        options: How long, how hard, and whether the job is put back afterwards.
        judge: Says of the blocks so far whether they suffice.
        on_progress: Called between blocks.
        clock: Seconds from any beginning; monotonic.

    Returns:
        The measurement. A failure of the user's code and Ctrl-C do not raise: they end the measuring and come
        with what has been measured so far.

    Raises:
        PipelineError: The description cannot be run.
        MeasurementError: The state of the job does not fit into memory a second time.
    """
    device = resolve_device(pipeline.device)
    loader = pipeline.make_loader()
    sites = find_sites(loader.dataset, pipeline.augment)
    ledger = Ledger(describe_environment(device), describe_pipeline(pipeline, loader))
    failure: BaseException | None = None
    kept: Preserved | None = None
    try:
        with _left_as_found(pipeline, loader, device) if options.restore else nullcontext() as kept:
            session = Session(pipeline, loader, device, sites, options, ledger, judge, on_progress, clock)
            try:
                session.run()
            finally:
                session.close()
    except BaseException as error:  # noqa: BLE001 - a fault of ours is raised again
        failure = _what_ended_it(error)
    if failure is not None:
        ledger.warn("ended-early", explain_early_end(failure))
    for note in kept.notes if kept is not None else ():
        ledger.warn("not-restored", note)
    return Outcome(ledger.measurement(), failure, ledger.profile, ledger.traces)


def _what_ended_it(error: BaseException) -> BaseException:
    """Return what ended the measuring, for people; raise what is a fault of ours."""
    if isinstance(error, (MeasurementError, KeyboardInterrupt)):
        return error
    # PyTorch's handler of SIGCHLD raises wherever this process happens to be when a worker dies.
    if isinstance(error, RuntimeError) and came_from_loader(error):
        return explain_loader_failure(error, "raw")
    if isinstance(error, Exception):
        raise error
    return explain_escape(error)


def _left_as_found(
    pipeline: Pipeline, loader: DataLoader[Any], device: torch.device
) -> AbstractContextManager[Preserved]:
    return preserved(
        model=pipeline.model,
        optimizer=pipeline.optimizer,
        train_step=pipeline.train_step,
        loader=loader,
        dataset=loader.dataset,
        device=device,
        others={"the loss": pipeline.loss_fn, "the transfer": pipeline.to_device},
    )


@dataclass(frozen=True)
class FirstBatch:
    """What the first batch of the workers says."""

    batch_bytes: int
    kept: CachedBatch | None
    """The batch itself, where the job is so slow that it is measured with it before anything is recorded."""


class Session:
    """The state of one diagnosis while it runs."""

    def __init__(
        self,
        pipeline: Pipeline,
        loader: DataLoader[Any],
        device: torch.device,
        sites: tuple[CutSite, ...],
        options: MeasureOptions,
        ledger: Ledger,
        judge: Judge,
        on_progress: ProgressCallback,
        clock: Callable[[], float],
    ) -> None:
        self._pipeline, self._user_loader, self._device = pipeline, loader, device
        self._options, self._ledger, self._judge = options, ledger, judge
        self._on_progress, self._clock = on_progress, clock
        self._started_s = clock()
        self._pinned = bool(loader.pin_memory) and device_can_pin()
        try:
            self._loader = SwitchedLoader(
                loader, sites, options.seed, _HANG_S,
                sample_rate_hz=options.profile.rate_hz if options.profile is not None else None,
                notes_files=options.cold, checking_s=_CHECKING_SHARE * self._budget_s,
            )  # fmt: skip
        except OSError as error:
            raise MeasurementError(
                f"There is no room for a temporary file: {error}.",
                "Free some space in /dev/shm or the temporary folder.",
            ) from error
        # Walking through a batch of many Python objects, only to leave all of them where they are, takes its time.
        nothing_to_copy = copies_nothing(pipeline, device)
        self._transfer = _stay if nothing_to_copy else make_transfer(pipeline, device, self._pinned)
        self._step = make_train_step(pipeline, device)
        self._training = Training()
        self._cache_budget = CacheBudget(0, 0, 0)
        self._bench: Bench | None = None
        self._counters: Counters | None = None
        self._cold = ColdSession(self._loader, ledger, clock)

    # --- the whole -----------------------------------------------------------------------------------------

    def run(self) -> None:
        """Measure until precise or out of time.

        Raises:
            MeasurementError: The user's code failed, or a worker.
        """
        seed_everything(self._options.seed)
        move_model(self._pipeline, self._device)
        first = self._start_workers()
        self._choose_cache_budget(first.batch_bytes)
        rounds_before = self._decide_before_recording(first) if first.kept is not None else 0
        if rounds_before and self._is_too_slow_for_stages():
            return
        recorded = self._record(first.batch_bytes)
        self._ledger.evidence = replace(self._ledger.evidence, recorded_batches=describe_recorded(recorded))
        observation = self._observe()
        self._describe_epoch_gap([self._first_batch_s])
        receiving_s = receiving_s_per_batch(self._loader, self._clock)
        self._ledger.evidence = replace(self._ledger.evidence, receiving_s_per_batch=receiving_s)
        if self._options.cold:
            self._tell("reading a pool of samples")
            self._cold.make_pool(self._budget_s, self._options.seed)
        self._bench = bench = self._make_bench(recorded)
        self._try_workers(bench, recorded)
        ladder = make_ladder(
            self._pipeline, self._user_loader, self._device, recorded.plan, pinned=self._pinned,
            wanted_bytes=self._ledger.evidence.cache_bytes_wanted,
        )  # fmt: skip
        ladder = with_times(ladder, observation)
        self._ledger.ladder = ladder = self._cold.extend(ladder) if self._options.cold else ladder
        bench.cold = self._cold.pool
        seen = summarise(observation, ladder.spans, self._ledger.evidence)
        facts = describe_loader(self._pipeline, self._user_loader, self._loader, observation.pixels, seen)
        self._ledger.evidence = replace(seen, loader=facts)
        crowded = shared_cores_warning(self._pipeline, self._device, self._loader.num_workers)
        if crowded is not None:
            self._ledger.warn("threads-share-cores", crowded)
        rounds = Rounds(
            bench, ladder, self._ledger, self._options, self._judge, self._tell, self._started_s, rounds_before
        )
        self._counters = rounds.counters
        self._counters.training = self._training
        with self._counters.utilisation.watching(self._loader.workers, self._device), self._training:
            rounds.run()
        self._start_workers_again(bench)
        self._cold.warm()
        passes = Passes(self._pipeline, self._device, bench, self._ledger, self._options, self._budget_s, self._tell)
        passes.run(device_bound=rounds.device_bound)

    def close(self) -> None:
        """Stop the workers, and note what the diagnosis took; Ctrl-C waits until that is done."""
        with interrupts_deferred():
            self._note_cost()
            self._loader.close()

    def _note_cost(self) -> None:
        bench = self._bench
        caches = self._loader.cache_bytes
        if bench is not None:
            caches += bench.host.nbytes + (bench.device.nbytes if bench.device is not bench.host else 0)
            note_waits(bench, self._ledger)
            self._ledger.evidence = replace(self._ledger.evidence, loop_s_per_batch=bench.loop_s_per_batch)
        if self._counters is not None:
            ladder, cached = self._ledger.ladder, self._loader.cache_bytes
            self._ledger.evidence = replace(self._ledger.evidence, reads=self._counters.reads.summary(ladder))
            if ladder is not None:
                used = self._counters.utilisation.evidence(ladder, cached)
                self._ledger.evidence = replace(self._ledger.evidence, utilisation=used)
        if self._ledger.ladder is not None:
            self._ledger.evidence = replace(self._ledger.evidence, training=self._training.evidence())
            for id_, message in self._training.warnings(self._ledger.ladder):
                self._ledger.warn(id_, message)
        choosing_s = self._loader.order.choosing_s_per_batch
        self._ledger.evidence = replace(self._ledger.evidence, sampler_s_per_batch=choosing_s)
        self._cold.note(self._counters.reads if self._counters is not None else None)
        seconds = self._clock() - self._started_s
        batches, samples = (bench.batches, bench.samples) if bench is not None else (0, 0)
        self._ledger.cost = Cost(seconds, batches, samples, caches)

    def _tell(
        self,
        phase: str,
        *,
        arm: Arm | None = None,
        round_: int | None = None,
        rounds: int | None = None,
        judgement: Judgement | None = None,
    ) -> None:
        self._on_progress(
            ProgressUpdate(
                phase=phase,
                experiment=describe_arm(arm, self._ledger.ladder) if arm is not None else None,
                round=round_,
                rounds=rounds,
                efficiency=judgement.efficiency if judgement is not None else None,
                elapsed_s=self._clock() - self._started_s,
                budget_s=self._budget_s,
            )
        )

    @property
    def _budget_s(self) -> float:
        return total_budget_s(self._options.budget_s, quick=self._options.quick)

    # --- before measuring ----------------------------------------------------------------------------------

    def _start_workers(self) -> FirstBatch:
        """Start the workers, and look at their first batch."""
        self._tell("starting workers")
        started = self._clock()
        with loader_failures("raw"):
            self._loader.start()
            batch, samples = self._loader.next_batch()
            first_batch_s = self._clock() - started
            for _ in range(_EMPTY_BATCHES if batch is None else 0):
                batch, samples = self._loader.next_batch()
                if batch is not None:
                    break
        self._ledger.evidence = replace(self._ledger.evidence, first_batch_s=first_batch_s)
        self._loader.set_timeout(max(_SHORTEST_HANG_S, _HANG_FACTOR * first_batch_s))
        slow = self._loader.num_workers and batch is not None and is_slow(first_batch_s, self._budget_s)
        return FirstBatch(trees.nbytes(batch), CachedBatch(keep_on_host(batch), samples) if slow else None)

    @property
    def _first_batch_s(self) -> float:
        return self._ledger.evidence.first_batch_s or 0.0

    def _decide_before_recording(self, first: FirstBatch) -> int:
        """Measure device and raw of a slow job as it was started; return how many rounds of them there are."""
        assert first.kept is not None
        self._tell(f"measuring first how the job runs: its first batch took {self._first_batch_s:.0f} s")
        self._ledger.ladder = make_short_ladder(
            self._pipeline, self._user_loader, self._device, pinned=self._pinned, why="there was no time to record it"
        )
        self._bench = bench = self._make_bench(Recorded(Plan("fetch"), [first.kept]))
        bench.until_s = self._deadline_s
        with self._training, job_failures("raw"):
            measure_running_start(bench, self._ledger)
        return RUNNING_ROUNDS

    def _is_too_slow_for_stages(self) -> bool:
        now_s = self._clock()
        warning = too_slow_for_stages(self._first_batch_s, now_s - self._started_s, self._deadline_s - now_s)
        if warning is not None:
            self._ledger.warn(*warning)
        return warning is not None

    @property
    def _deadline_s(self) -> float:
        """When a slow job has to be done."""
        return self._started_s + longest_budget_s(self._options.budget_s, quick=self._options.quick)

    def _choose_cache_budget(self, batch_bytes: int) -> None:
        given = self._options.cache_budget_bytes
        copies = not copies_nothing(self._pipeline, self._device)
        self._cache_budget = choose_budget(
            batch_bytes,
            max(1, self._loader.num_workers),
            given=given,
            free_bytes=free_memory_bytes(),
            device_shares=copies and (given is not None or free_device_bytes(self._device) is None),
        )
        self._loader.allow_caches(self._cache_budget.worker_bytes)

    def _record(self, batch_bytes: int) -> Recorded:
        self._tell("recording")
        limit_s = _RECORDING_SHARE * self._budget_s
        recorded = record(self._loader, batch_bytes, self._cache_budget.host_bytes, limit_s, self._clock)
        if not (recorded.plan.has_samples and recorded.plan.has_collated):
            wanted = wanted_bytes(batch_bytes, recorded.plan.recorded_bytes, max(1, self._loader.num_workers))
            self._ledger.evidence = replace(self._ledger.evidence, cache_bytes_wanted=wanted)
        for id_, message in recorded.plan.warnings:
            self._ledger.warn(id_, message)
        return recorded

    def _observe(self) -> Observation:
        self._tell("observing")
        limit_s = min(LONGEST_S, BUDGET_SHARE * self._budget_s)
        return observe(self._loader, limit_s, self._clock)

    def _describe_epoch_gap(self, starts_s: Sequence[float]) -> None:
        gap = describe_epoch_gap(self._loader, self._user_loader, self._clock, starts_s)
        if gap is not None:
            self._ledger.evidence = replace(self._ledger.evidence, epoch_gap=gap)

    def _start_workers_again(self, bench: Bench) -> None:
        """Measure the beginning of a later epoch, where that matters: files and memory were cold at the first one."""
        if later_start_matters(self._ledger.evidence.epoch_gap, bench.step_s, self._budget_s):
            self._tell("starting workers as for another epoch")
            starts_s = later_starts_s(self._loader, self._user_loader, self._clock)
            if starts_s:
                self._describe_epoch_gap(starts_s)

    def _try_workers(self, bench: Bench, recorded: Recorded) -> None:
        if not self._loader.num_workers:
            self._tell("trying workers")
            self._training.begin_round()
            found = try_workers(
                self._user_loader, bench, recorded.batches, pinned=self._pinned, on_cpu=self._device.type == "cpu",
                limit_s=TRIAL_SHARE * self._budget_s,
            )  # fmt: skip
            self._ledger.evidence = replace(
                self._ledger.evidence, handoff=found.handoff, workers_tried=found.workers_tried
            )
            self._training.begin_round()

    def _make_bench(self, recorded: Recorded) -> Bench:
        self._tell("warming up")
        used = (self._device, *devices_of(self._pipeline.model, self._pipeline.optimizer))
        synchronize = make_synchronize(self._device, used)
        for id_, message in rank_warnings(used):
            self._ledger.warn(id_, message)
        self._training = make_training(self._pipeline, self._step, self._device, synchronize, self._clock)
        copies = not copies_nothing(self._pipeline, self._device)
        step = WatchedStep(self._step, self._clock)
        with noticed_marks() as called:
            caches = make_caches(
                recorded.batches, copies=copies, transfer=self._transfer, step=step,
                device_bytes=lambda: self._cache_budget.on_device(free_device_bytes(self._device)),
            )  # fmt: skip
        step.catch_up(lambda: caches.device.serve().batch)
        batch = recorded.batches[0].batch
        payload = step.add_unread(describe_payload(batch, self._pipeline.model), batch)
        self._ledger.evidence = replace(self._ledger.evidence, payload=payload)
        for id_, message in warn_of_marks(recorded.plan.uncalled, called):
            self._ledger.warn(id_, message)
        synchronize()
        if caches.changed:
            self._ledger.warn(
                "batch-changed-in-place",
                "The train step changes its batch in place, so cached batches are cloned for each step; the cost of "
                "the clone is part of `device` and `host`.",
            )
        return Bench(
            loader=self._loader, host=caches.host, device=caches.device, transfer=self._transfer,
            step=self._training.watch(self._step), synchronize=synchronize,
            clock=self._clock, split_blocks=self._device.type == "cpu",
            replays=Replays(
                self._cache_budget.for_replays(free_device_bytes(self._device)), recorded.batches,
                in_shared_memory=self._loader.num_workers > 0 and not self._pinned,
            ),
            device_warm_up_s=0.0 if self._device.type == "cpu" else DEVICE_WARM_UP_S,
        )  # fmt: skip


def _stay(batch: Any) -> Any:
    return batch

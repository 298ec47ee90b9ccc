"""One diagnosis from beginning to end: start the workers, record, measure in rounds, take what disturbs blocks last."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace

from bottleneck.errors import MeasurementError
from bottleneck.job.cuts import CutSite
from bottleneck.loader.calls import seed_generators
from bottleneck.loader.examining.examine import ItemSeen
from bottleneck.loader.observing.observation import Observation
from bottleneck.loader.processes import find_death
from bottleneck.loader.recording.plan import Plan
from bottleneck.measure.bench import Bench, receiving_s_per_batch
from bottleneck.measure.caches import CacheBudget, CachedBatch, wanted_bytes
from bottleneck.measure.cold import ColdFiles, with_cold
from bottleneck.measure.compiling import Compiling
from bottleneck.measure.device import JobOnDevice, free_device_bytes, pinned_bytes_per_s
from bottleneck.measure.evidence.dataset import (
    describe_loader,
    describe_sampler,
    describe_snapshots,
    note_collections,
    note_kept_samples,
    warn_of_repeated_stream,
)
from bottleneck.measure.evidence.io import find_blind_spots
from bottleneck.measure.evidence.source import find_places
from bottleneck.measure.evidence.stages import BUDGET_SHARE, MAX_OBSERVING_S, observe, summarise, with_times
from bottleneck.measure.evidence.touched import examine, with_examined
from bottleneck.measure.evidence.waits import (
    STARTS,
    describe_epoch_gap,
    later_start_matters,
    later_starts_s,
    with_later_orders,
)
from bottleneck.measure.explain_errors import job_failures, loader_failures
from bottleneck.measure.keep.interrupts import interrupts_deferred
from bottleneck.measure.ladder import Ladder
from bottleneck.measure.ledger import Ledger
from bottleneck.measure.machine.unseen import unseen
from bottleneck.measure.options import MeasureOptions
from bottleneck.measure.passes.after_rounds import Passes, note_waits
from bottleneck.measure.passes.more_requests import expected_s, try_more, workers_to_try
from bottleneck.measure.prepare import (
    Recording,
    describe_recorded,
    make_bench,
    make_ladder,
    record,
    short_ladder,
    warnings_of_plan,
)
from bottleneck.measure.ranks.group import ALONE, World
from bottleneck.measure.ranks.team import can_all_measure, measure_all, options_of_rounds
from bottleneck.measure.rounds.rounds import Rounds
from bottleneck.measure.rounds.schedule import Timekeeper, Times
from bottleneck.measure.rounds.standing import Judge
from bottleneck.measure.rounds.visit import Counters
from bottleneck.measure.running import (
    MIN_STATE_S,
    STATE_SHARE,
    FirstBatch,
    Running,
    RunningStart,
    slow_from_s,
    warning_if_too_slow,
)
from bottleneck.measure.start import Started, allow_caches, open_loader, start_workers
from bottleneck.measure.starting import is_worth_a_trial, with_first_batch, with_trial
from bottleneck.measure.training import Training
from bottleneck.results.records import Cost
from bottleneck.results.warnings.unseen import not_observed

_CLOSING_SHARE = 0.12
"""Share of the budget that is reserved for the time after the rounds, at most."""
_RECORDING_SHARE = 0.06
"""Share of the budget for recording, beyond one batch per worker."""


class Session:
    """State of one diagnosis while it runs."""

    def __init__(
        self,
        job: JobOnDevice,
        sites: tuple[CutSite, ...],
        options: MeasureOptions,
        ledger: Ledger,
        judge: Judge,
        timekeeper: Timekeeper,
        group: World = ALONE,
    ) -> None:
        self._group = group
        self._job = job
        self._options = options
        self._ledger = ledger
        self._judge = judge
        self._time = timekeeper
        self._clock = timekeeper.clock
        self._tell = timekeeper.tell
        self._budget_s = timekeeper.budget_s
        self._sites = sites
        self._training = Training()
        self._bench: Bench | None = None
        self._examined: list[ItemSeen] = []
        self._counters = Counters()
        self._open()

    def _open(self) -> None:
        self._loader = open_loader(self._job.loader, self._sites, self._options, self._budget_s)
        self._cold = None
        if self._options.cold:
            self._cold = ColdFiles(self._loader, self._ledger, self._clock, self._options.seed)

    # --- the whole -----------------------------------------------------------------------------------------

    def run(self) -> None:
        """Measure until precise or out of time."""
        seed_generators(self._options.seed)
        self._job.move_model()
        self._tell("starting workers")
        slow_s = slow_from_s(self._loader.num_workers, self._time.longest_budget_s)
        started = start_workers(self._loader, self._clock, slow_s)
        starting = with_first_batch(self._options.loop.starting, started.seconds, started.first.worker_s)
        self._ledger.note(first_batch_s=started.seconds, starting=starting)
        budget = allow_caches(self._loader, self._job, started.nbytes, self._options.cache_budget_bytes)
        running = None
        if started.kept is not None and self._group.is_alone:
            running = self._run_as_it_is(started.kept, started.first, budget)
            if running is not None and self._is_answered(running):
                return
        self._record_and_visit(started, budget, running)

    def _closing_s(self, bench: Bench) -> float:
        """Return the seconds of the budget that are reserved for the time after the rounds."""
        gap = self._ledger.evidence.epoch_gap
        starts_s = STARTS * (gap.seconds or 0.0) if later_start_matters(gap, bench.step_s, self._budget_s) else 0.0
        trial_s = expected_s(self._ledger, self._loader.num_workers, bench.step_s or 0.0)
        return min(_CLOSING_SHARE * self._budget_s, starts_s + trial_s + self._passes(bench).expected_s())

    def _passes(self, bench: Bench) -> Passes:
        return Passes(
            self._job.device,
            bench,
            self._ledger,
            self._options,
            self._budget_s,
            self._tell,
            trains=self._group.is_alone,
            left_s=lambda: self._budget_s + self._time.left_out_s - self._time.elapsed_s(),
            begin_round=self._training.begin_round,
        )

    def _is_answered(self, running: Running) -> bool:
        """Return True if nothing follows a running start: it says enough, or there is no time for more."""
        warning = warning_if_too_slow(running.batch_s, self._time.elapsed_s(), self._time.longest_budget_s)
        if running.is_device_bound:
            self._look_at_loader(self._ledger.evidence.first_batch_s or 0.0)
            self._describe_job(Observation())
            self._finish(device_bound=True)
            return True
        if warning is not None:
            self._ledger.warn(warning)
        return warning is not None

    def _record_and_visit(self, started: Started, budget: CacheBudget, running: Running | None) -> None:
        # If batches take seconds, one per worker has to suffice.
        limit_s = _RECORDING_SHARE * self._budget_s if running is None else 0.0
        recorded = self._record(started.nbytes, budget, limit_s)
        self._tell("observing")
        try:
            observation = observe(self._loader, min(MAX_OBSERVING_S, BUDGET_SHARE * self._budget_s), self._clock)
            self._examined = examine(self._loader)
        except (MeasurementError, RuntimeError) as error:
            recorded = self._record_unobserved(error, started.nbytes, budget, limit_s)
            observation = Observation()
        self._look_at_loader(started.seconds)
        if running is None:
            self._loader.forget_batches()
        self._bench = bench = self._make_bench(recorded, budget)
        self._make_ladder(recorded, observation)
        if self._cold is not None:
            bench.preparer = self._cold
        options = options_of_rounds(self._options, self._group)
        times = Times(self._time.counted_from_s, self._closing_s(bench), self._time.ends_at)
        rounds = Rounds(bench, self._ledger, options, self._judge, self._tell, times, self._counters, running)
        self._counters.training = self._training
        with self._watching():
            measure_all(self._group, self._job, bench, self._ledger, rounds, self._training, self._time)
        if self._group.leads:
            self._finish(device_bound=rounds.device_bound)

    @contextmanager
    def _watching(self) -> Iterator[None]:
        """Watch the use of resources while blocks are measured."""
        watching = self._counters.utilisation.watching(self._loader.workers, self._job.device)
        with watching, self._counters.collections:
            yield

    def _finish(self, *, device_bound: bool) -> None:
        """Take the measurements that would disturb timed blocks."""
        bench = self._bench
        assert bench is not None
        note_kept_samples(self._job.loader, self._loader, self._ledger)
        note_collections(self._loader, self._ledger)
        gap = with_later_orders(self._ledger.evidence.epoch_gap, self._loader)
        self._ledger.note(epoch_gap=gap)
        self._start_workers_again(bench)
        self._start_one_process()
        self._try_more_requests(device_bound=device_bound)
        with loader_failures("raw"):  # the following passes run the original job
            bench.preparer.restore()
        self._passes(bench).run(device_bound=device_bound)

    def close(self) -> None:
        """Stop the workers, and note the cost of the diagnosis; Ctrl-C waits until that is done."""
        with interrupts_deferred():  # for a bounded time, at the very end
            self._note_cost()
            self._training.release()
            self._loader.close()

    def _note_cost(self) -> None:
        bench, ledger, reads = self._bench, self._ledger, None
        caches = cached = self._loader.cache_bytes
        if bench is not None:
            caches += bench.host.nbytes + (bench.device.nbytes if bench.device is not bench.host else 0)
            note_waits(bench, ledger)
            ledger.note(loop_s_per_batch=bench.loop_s_per_batch, step_s_per_batch=bench.step_s_per_batch)
        if bench is not None:
            reads, used = self._counters.reads, self._counters.utilisation.evidence(ledger.ladder, cached)
            ledger.note(reads=reads.summary(ledger.ladder), utilisation=used)
        if ledger.ladder.spans:
            ledger.note(training=self._training.evidence())
            ledger.warn_all(self._training.warnings(ledger.ladder))
        choosing_s = self._loader.order.choosing_s_per_batch
        ledger.note(sampler_s_per_batch=choosing_s)
        if self._cold is not None:
            self._cold.note(reads)
        batches, samples = (bench.batches, bench.samples) if bench is not None else (0, 0)
        ledger.cost = Cost(self._time.elapsed_s(), batches, samples, caches)

    # --- before the rounds ---------------------------------------------------------------------------------

    def _run_as_it_is(self, kept: CachedBatch, first: FirstBatch, budget: CacheBudget) -> Running | None:
        """Measure device and raw of a slow job right after its start; None if only its first batch was slow."""
        self._tell("measuring as it runs")
        self._ledger.ladder = short_ladder(self._job, why="the job was measured as it runs, with nothing recorded")
        self._bench = bench = self._make_bench(Recording(Plan("fetch"), [kept]), budget)
        bench.until_s = self._time.started_s + self._time.longest_budget_s
        self._counters.training = self._training
        workers = self._loader.workers
        self._counters.reads.start(workers, find_blind_spots(self._loader.user_dataset, workers))
        state_s = max(MIN_STATE_S, STATE_SHARE * (self._time.budget_s - self._time.left_out_s))
        start = RunningStart(
            bench, self._ledger, self._counters, self._judge, self._tell, self._time.counted_from_s + state_s
        )
        with self._watching(), job_failures("raw"):
            return start.measure(first)

    def _record(self, batch_bytes: int, budget: CacheBudget, limit_s: float) -> Recording:
        self._tell("recording")
        recorded = record(
            self._loader,
            batch_bytes,
            budget.host_bytes,
            lambda: budget.on_device(free_device_bytes(self._job.device)),
            limit_s,
            self._clock,
        )
        plan, workers, wanted = recorded.plan, max(1, self._loader.num_workers), None
        if not (plan.has_samples and plan.has_collated):
            wanted = wanted_bytes(batch_bytes, plan.recorded_bytes, workers)
        self._ledger.note(cache_bytes_wanted=wanted, recorded_batches=describe_recorded(recorded))
        self._ledger.warn_all(warnings_of_plan(plan))
        return recorded

    def _record_unobserved(self, error: Exception, batch_bytes: int, budget: CacheBudget, limit_s: float) -> Recording:
        """Restart without observing if a signal killed a worker meanwhile: the job may work without."""
        death = find_death(str(error))
        if not self._group.is_alone or death is None or death.signal is None:
            raise error
        self._ledger.warn(not_observed(str(error).strip()))
        self._tell("starting workers")
        dead = self._loader
        self._open()
        dead.close()
        start_workers(self._loader, self._clock)
        allow_caches(self._loader, self._job, batch_bytes, self._options.cache_budget_bytes)
        return self._record(batch_bytes, budget, limit_s)

    def _look_at_loader(self, first_batch_s: float) -> None:
        self._describe_epoch_gap([first_batch_s], asked=True)
        receiving_s = receiving_s_per_batch(self._loader, self._clock)
        self._ledger.note(receiving_s_per_batch=receiving_s)
        if self._cold is not None:
            self._tell("reading a pool of samples")
            self._cold.make_pool(self._budget_s)

    def _describe_epoch_gap(self, starts_s: Sequence[float], *, asked: bool) -> None:
        gap = describe_epoch_gap(self._loader, self._job.loader, self._clock, starts_s, asked=asked)
        if gap is not None:
            self._ledger.note(epoch_gap=gap)

    def _start_workers_again(self, bench: Bench) -> None:
        """Measure the beginning of a later epoch if it matters: files and memory were cold at the first one."""
        if later_start_matters(self._ledger.evidence.epoch_gap, bench.step_s, self._budget_s):
            self._tell("starting workers as for another epoch")
            starts_s = later_starts_s(self._loader, self._job.loader, self._clock)
            if starts_s:
                self._describe_epoch_gap(starts_s, asked=False)

    def _start_one_process(self) -> None:
        """Separate each worker's imports from the data sent to it, if workers take long to start."""
        starting, loader = self._ledger.evidence.starting, self._job.loader
        if self._group.is_alone and is_worth_a_trial(starting, loader):
            self._tell("starting a single worker")
            self._ledger.note(starting=with_trial(starting, loader, self._clock, self._budget_s))

    def _try_more_requests(self, *, device_bound: bool) -> None:
        """Let more workers read for a moment if those of the job wait for the network."""
        workers = workers_to_try(self._ledger, self._loader)
        if device_bound or not self._group.is_alone or not workers:
            return
        self._tell("reading with more workers")
        self._loader.rest()
        with suppress(Exception):  # the measurements are worth more
            pace = try_more(self._job.loader, workers, self._options.seed, self._clock)
            self._ledger.note(network=replace(self._ledger.evidence.network, more=pace))

    def _make_bench(self, recorded: Recording, budget: CacheBudget) -> Bench:
        self._tell("warming up")
        with Compiling(self._clock, lambda: self._tell("compiling")) as compiling:
            bench, self._training = make_bench(
                self._job, self._loader, recorded, budget, self._ledger, self._clock, self._options.loop, self._group
            )
        self._time.leave_out(compiling.seconds)
        return bench

    def _make_ladder(self, recorded: Recording, observation: Observation) -> Ladder:
        """List the experiments; observations of their stages go to the ledger."""
        job, ledger = self._job, self._ledger
        ladder = make_ladder(job, recorded.plan, ledger.evidence.cache_bytes_wanted)
        ladder = with_times(ladder, observation, recorded.batches[0].batch)
        if not can_all_measure(self._group, ladder):
            ladder = short_ladder(job, why="ranks were cut in different ways, so that no stage is the same on all")
        ledger.ladder = ladder = with_cold(ladder, self._cold.failure) if self._cold is not None else ladder
        self._describe_job(observation)
        ledger.evidence = with_examined(ledger.evidence, self._examined, observation, ladder.spans, recorded.plan)
        return ladder

    def _describe_job(self, observation: Observation) -> None:
        """Note the facts about the loader, its dataset and its source."""
        job, ledger = self._job, self._ledger
        seen = summarise(observation, ledger.ladder.spans, ledger.evidence)
        facts = describe_loader(job.pipeline, job.loader, self._loader, observation.pixels, seen)
        facts = replace(facts, pinned_bytes_per_s=pinned_bytes_per_s(job.device))
        ledger.evidence = replace(
            seen,
            loader=facts,
            source=find_places(job.loader, seen.transforms),
            sampler=describe_sampler(self._loader),
            snapshots=describe_snapshots(job.loader, self._loader),
        )
        ledger.warn_all(job.warnings(self._loader.num_workers))
        ledger.warn_all(unseen())
        warn_of_repeated_stream(facts, ledger)

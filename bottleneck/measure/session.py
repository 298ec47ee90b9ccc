"""One diagnosis from beginning to end: start the workers, record, measure in rounds, put everything back."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils.data import DataLoader

from bottleneck.errors import BottleneckError, MeasurementError
from bottleneck.measure.arms import Arm, Capabilities, build_ladder
from bottleneck.measure.batches import BatchCache, CachedBatch, keep_on_host
from bottleneck.measure.blocks import Bench
from bottleneck.measure.describe import describe_arm, describe_pipeline
from bottleneck.measure.device import make_synchronize
from bottleneck.measure.environment import OtherLoad, describe_environment, free_memory_bytes
from bottleneck.measure.evidence import StorageReads, summarise_waits
from bottleneck.measure.failure import explain_loader_failure, explain_step_failure
from bottleneck.measure.ledger import Ledger
from bottleneck.measure.options import MeasureOptions
from bottleneck.measure.preserve import preserved
from bottleneck.measure.progress import ProgressCallback, ProgressUpdate
from bottleneck.measure.schedule import (
    MIN_ROUNDS,
    SHORTEST_BLOCK_S,
    OrderOfArms,
    Pace,
    make_schedule,
    total_budget_s,
)
from bottleneck.pipeline.cuts import CutSite, find_sites
from bottleneck.pipeline.description import Pipeline
from bottleneck.pipeline.train_step import make_train_step
from bottleneck.pipeline.transfer import copies_nothing, make_transfer, resolve_device
from bottleneck.results.records import Cost, Judgement, Measurement
from bottleneck.staging import stages, trees
from bottleneck.staging.loader import LoaderEnded, SwitchedLoader
from bottleneck.staging.plan import Plan, make_plan

Judge = Callable[[Measurement], Judgement]

_GIB = 1 << 30
_HOST_SHARE = 0.25
"""The share of the memory for caches that batches in the main process get; the workers get the rest."""
_MOST_CACHED_BATCHES = 32
_RECORDING_SHARE = 0.06
"""The share of the budget for recording, beyond one batch per worker."""
_HANG_S = 300.0
_SLOW_STEP_S = 0.25


@dataclass(frozen=True)
class Outcome:
    """What was measured, and what ended it early if anything did."""

    measurement: Measurement
    failure: BaseException | None = None


def measure(
    pipeline: Pipeline,
    options: MeasureOptions,
    *,
    judge: Judge,
    on_progress: ProgressCallback,
    clock: Callable[[], float] = time.perf_counter,
) -> Outcome:
    """Measure a pipeline, and leave everything as it was.

    Args:
        pipeline: The job; it has been checked.
        options: Budget, seed and memory.
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
    kept = None
    try:
        with preserved(
            model=pipeline.model,
            optimizer=pipeline.optimizer,
            train_step=pipeline.train_step,
            loader=loader,
            dataset=loader.dataset,
            device=device,
            others={"the loss": pipeline.loss_fn, "the transfer": pipeline.to_device},
        ) as kept:
            session = Session(pipeline, loader, device, sites, options, ledger, judge, on_progress, clock)
            try:
                session.run()
            finally:
                session.close()
    except (MeasurementError, KeyboardInterrupt) as error:
        failure = error
    for note in kept.notes if kept is not None else ():
        ledger.warn("not-restored", note)
    return Outcome(ledger.measurement(), failure)


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
        self._cache_bytes = options.cache_budget_bytes or min(_GIB, free_memory_bytes() // 10)
        self._pinned = bool(loader.pin_memory) and torch.cuda.is_available()
        for_workers = int(self._cache_bytes * (1 - _HOST_SHARE))
        self._loader = SwitchedLoader(loader, sites, for_workers, options.seed, _HANG_S)
        self._transfer = make_transfer(pipeline, device, self._pinned)
        self._step = make_train_step(pipeline, device)
        self._bench: Bench | None = None
        self._rounds = 0
        self._rounds_planned = MIN_ROUNDS
        self._judgement: Judgement | None = None
        self._other_load = OtherLoad()
        self._reads = StorageReads()

    # --- the whole -----------------------------------------------------------------------------------------

    def run(self) -> None:
        """Measure until precise or out of time.

        Raises:
            MeasurementError: The user's code failed, or a worker.
        """
        torch.manual_seed(self._options.seed)
        self._move_model()
        first_batch = self._start_workers()
        plan, host = self._record(first_batch)
        self._bench = self._make_bench(host)
        self._ledger.ladder = self._make_ladder(plan)
        self._measure_rounds()

    def close(self) -> None:
        """Stop the workers, and note what the diagnosis took; Ctrl-C waits until that is done."""
        with _no_interrupt():
            self._note_cost()
            self._loader.close()

    def _note_cost(self) -> None:
        bench = self._bench
        caches = self._loader.cache_bytes
        if bench is not None:
            caches += bench.host.nbytes + (bench.device.nbytes if bench.device is not bench.host else 0)
            raw = self._ledger.ladder.raw if self._ledger.ladder is not None else None
            if raw is not None and bench.waits_s.get(raw):
                self._ledger.evidence["wait_s"] = summarise_waits(bench.waits_s[raw])
            self._ledger.evidence["reads"] = self._reads.summary()
        seconds = self._clock() - self._started_s
        batches, samples = (bench.batches, bench.samples) if bench is not None else (0, 0)
        self._ledger.cost = Cost(seconds, batches, samples, caches)

    def _tell(self, phase: str, arm: Arm | None = None) -> None:
        judgement = self._judgement
        self._on_progress(
            ProgressUpdate(
                phase=phase,
                experiment=describe_arm(arm, self._ledger.ladder) if arm is not None else None,
                round=self._rounds + 1 if arm is not None else None,
                rounds=self._rounds_planned if arm is not None else None,
                efficiency=judgement.efficiency if judgement is not None else None,
                elapsed_s=self._clock() - self._started_s,
                budget_s=total_budget_s(self._options.budget_s, quick=self._options.quick),
            )
        )

    # --- before measuring ----------------------------------------------------------------------------------

    def _move_model(self) -> None:
        model = self._pipeline.model
        if isinstance(model, torch.nn.Module) and self._pipeline.train_step is None:
            try:
                model.to(self._device)
            except Exception as error:
                raise explain_step_failure(error, "device", "model, when moved to the device,") from error

    def _start_workers(self) -> Any:
        self._tell("starting workers")
        started = self._clock()
        with _loader_failures("raw"):
            self._loader.start()
            batch, _ = self._loader.next_batch()
        self._ledger.evidence["first_batch_s"] = self._clock() - started
        return batch

    def _record(self, first_batch: Any) -> tuple[Plan, list[CachedBatch]]:
        """Let the workers record, keep some of their batches, and settle how the dataset is cut."""
        self._tell("recording")
        loader, host_bytes = self._loader, int(self._cache_bytes * _HOST_SHARE)
        if self._device.type != "cpu":
            host_bytes //= 2  # the same batches are kept on the device
        size = trees.nbytes(first_batch)
        del first_batch
        if size > host_bytes:
            raise MeasurementError(
                f"One batch takes {size / 1e6:,.0f} MB, more than the {host_bytes / 1e6:,.0f} MB for cached batches.",
                f"Give the caches more memory: cache_bytes={8 * size}.",
            )
        kept: list[CachedBatch] = []
        started, taken = self._clock(), 0
        wanted = min(_MOST_CACHED_BATCHES, max(8, 2 * loader.num_workers))
        limit_s = _RECORDING_SHARE * total_budget_s(self._options.budget_s, quick=self._options.quick)
        with _loader_failures("recording"):
            loader.switch(stages.RECORD)
            for number in range(10 * max(1, loader.num_workers) + wanted):
                batch, samples = loader.next_batch()
                if batch is not None and taken + size <= host_bytes and len(kept) < wanted:
                    kept.append(CachedBatch(keep_on_host(batch), samples))
                    taken += size
                everyone = len(loader.reports()) >= max(1, loader.num_workers)
                late = self._clock() - started > limit_s
                enough = len(kept) >= wanted or taken + size > host_bytes or late
                if kept and ((everyone and enough) or (late and number > 4 * loader.num_workers)):
                    break
        names = {number: site.name for number, site in enumerate(loader.sites)}
        plan = make_plan(loader.reports(), names, iterable=loader.iterable)
        loader.use_plan(plan)
        with _loader_failures("recording"):
            loader.rest()
        for id_, message in plan.warnings:
            self._ledger.warn(id_, message)
        return plan, kept

    def _make_bench(self, kept: list[CachedBatch]) -> Bench:
        host = BatchCache(kept)
        step, transfer = self._step, self._transfer
        synchronize = make_synchronize(self._device)
        if copies_nothing(self._pipeline, self._device):
            on_device = host
        else:
            try:
                on_device = BatchCache([CachedBatch(transfer(trees.copy_deep(c.batch)), c.samples) for c in kept])
            except Exception as error:
                raise explain_step_failure(error, "host", "transfer to the device") from error

        def guarded_step(batch: Any) -> Any:
            try:
                return step(batch)
            except BottleneckError:
                raise
            except (Exception, SystemExit) as error:
                raise explain_step_failure(error, "device") from error

        self._tell("warming up")
        changed = on_device.probe(guarded_step)
        if on_device is not host:
            changed = host.probe(transfer) or changed
        synchronize()
        if changed:
            self._ledger.warn(
                "batch-changed-in-place",
                "The train step changes its batch in place, so cached batches are cloned for each step; the cost of "
                "the clone is part of `device` and `host`.",
            )
        return Bench(
            loader=self._loader, host=host, device=on_device, transfer=transfer, step=step,
            synchronize=synchronize, clock=self._clock, split_blocks=self._device.type == "cpu",
        )  # fmt: skip

    def _make_ladder(self, plan: Plan) -> Any:
        loader_class = type(self._user_loader)
        return build_ladder(
            Capabilities(
                copies=not copies_nothing(self._pipeline, self._device),
                hands_over=self._loader.num_workers > 0 or self._pinned,
                within_sample=plan.within_sample,
                has_samples=plan.has_samples,
                has_collated=plan.has_collated,
                can_stop=plan.can_stop,
                passes_tokens=loader_class.__iter__ is DataLoader.__iter__,
                fetch_reason=plan.reason,
            )
        )

    # --- measuring -----------------------------------------------------------------------------------------

    def _measure_rounds(self) -> None:
        ladder = self._ledger.ladder
        assert self._bench is not None and ladder is not None  # noqa: PT018 - narrows the types
        workers = self._loader.num_workers
        self._other_load.start()
        self._reads.start(self._loader.workers)
        deciding, full = OrderOfArms(self._options.seed), OrderOfArms(self._options.seed + 1)
        paces = {arm: self._try_out(arm) for arm in full.next_round(ladder.arms())}
        self._rounds = 1
        schedule = make_schedule(
            ladder, paces, workers, started_s=self._started_s, now_s=self._clock(),
            budget_s=self._options.budget_s, quick=self._options.quick,
        )  # fmt: skip
        self._rounds_planned = 1 + MIN_ROUNDS + schedule.decide_first
        for number in range(10_000):
            narrow = number < schedule.decide_first
            arms = deciding.next_round((ladder.device, ladder.raw)) if narrow else full.next_round(ladder.arms())
            for arm in arms:
                late = self._clock() + schedule.lengths.seconds[arm] > schedule.deadline_s
                # Two rounds of device and raw are the least that says anything at all.
                if late and not (number < 2 and arm in (ladder.device, ladder.raw)):
                    continue
                self._tell("measuring", arm)
                self._visit(arm, schedule.lengths.batches[arm])
            self._rounds += 1
            self._judgement = self._judge(self._ledger.measurement())
            if self._is_enough(narrow=narrow, deadline_s=schedule.deadline_s, next_s=schedule.lengths.round_s(arms)):
                break
        self._ledger.evidence["other_load_cores"] = self._other_load.stop()
        self._warn_of_other_load()

    def _is_enough(self, *, narrow: bool, deadline_s: float, next_s: float) -> bool:
        self._rounds_planned = max(self._rounds_planned, self._rounds + 1)
        if self._clock() >= deadline_s:
            return True
        cheapest_s = 0.0 if narrow else next_s / 4
        if not narrow and self._clock() + cheapest_s > deadline_s:
            return True
        return not narrow and self._rounds > MIN_ROUNDS and self._judgement is not None and self._judgement.precise

    def _try_out(self, arm: Arm) -> Pace:
        """Run an arm for a moment, to know how long its blocks take."""
        assert self._bench is not None
        self._tell("trying out", arm)
        bench = self._bench
        with self._failures(arm):
            started = self._clock()
            bench.prepare(arm)
            prepared = self._clock()
            batches = max(1, self._loader.num_workers) if arm.mode is not None else 2
            block = bench.measure(arm, 0, batches)
        if block.seconds >= SHORTEST_BLOCK_S:
            # Of a slow job every batch is dear: this was a block like any other.
            self._ledger.add(arm, block)
        else:
            bench.waits_s.pop(arm, None)
        return Pace(block.seconds / batches, prepared - started)

    def _visit(self, arm: Arm, batches: int) -> None:
        assert self._bench is not None
        with self._failures(arm):
            self._bench.prepare(arm)
            before = self._reads.read()
            block = self._bench.measure(arm, self._rounds, batches)
            self._reads.add(arm, before, block.samples)
        self._ledger.add(arm, block)
        for cache in {id(c): c for c in (self._bench.host, self._bench.device)}.values():
            if cache.changed_since_probe():
                cache.clones = True
                self._ledger.warn(
                    "batch-changed-in-place",
                    "The train step changed a cached batch in place after a while; from then on each gets a clone. "
                    "Make the step copy before it works in place, and measure again.",
                )

    @contextmanager
    def _failures(self, arm: Arm) -> Iterator[None]:
        """Tell failures of the user's step from failures of the loader."""
        name = describe_arm(arm, self._ledger.ladder)
        try:
            yield
        except BottleneckError:
            raise
        except LoaderEnded as error:
            raise _nothing_to_load() from error
        except (Exception, SystemExit) as error:
            if _came_from_loader(error):
                raise explain_loader_failure(error, name) from error
            raise explain_step_failure(error, name) from error

    def _warn_of_other_load(self) -> None:
        cores = self._ledger.evidence["other_load_cores"]
        if cores > 0.2:
            self._ledger.warn(
                "other-load",
                f"Other processes kept {cores:.1f} cores busy during the diagnosis; the job might be faster on a quiet "
                "machine. Stop them, or measure again when they are done.",
            )


def _came_from_loader(error: BaseException) -> bool:
    """Whether an exception passed through the loader's iterator on its way."""
    trace = error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code is SwitchedLoader.next_batch.__code__:
            return True
        trace = trace.tb_next
    return False


def _nothing_to_load() -> MeasurementError:
    return MeasurementError(
        "The loader gave no batch: its dataset or its sampler is empty.",
        "Check len(dataset), and with an IterableDataset that at least one worker gets a share of the data.",
    )


@contextmanager
def _loader_failures(experiment: str) -> Iterator[None]:
    try:
        yield
    except LoaderEnded as error:
        raise _nothing_to_load() from error
    except BottleneckError:
        raise
    except Exception as error:
        raise explain_loader_failure(error, experiment) from error


@contextmanager
def _no_interrupt() -> Iterator[None]:
    """Hold Ctrl-C back while things are put in order, which is bounded in time."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    previous = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, previous if previous is not None else signal.SIG_DFL)

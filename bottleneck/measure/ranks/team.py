"""One diagnosis of all ranks: rank 0 leads, the others follow, and the measurements of each are gathered at the end."""

from __future__ import annotations

import math
import os
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

import msgspec
import torch
from torch.utils.data import DataLoader, IterableDataset

from bottleneck.job.loader_args import length_of
from bottleneck.job.world import find_place
from bottleneck.loader.switched import SwitchedLoader
from bottleneck.measure.bench import Bench, block_batches
from bottleneck.measure.device import JobOnDevice
from bottleneck.measure.explain_errors import job_failures
from bottleneck.measure.ladder import Arm, Ladder
from bottleneck.measure.ledger import Blocks, Ledger, describe_arm
from bottleneck.measure.machine.counters import MachineUsage, cpu_seconds
from bottleneck.measure.machine.environment import read_process_times
from bottleneck.measure.machine.limits import allowed_cores, allowed_cpus
from bottleneck.measure.options import MeasureOptions
from bottleneck.measure.ranks.group import Group, Solo, World
from bottleneck.measure.ranks.lockstep import Call, Lockstep
from bottleneck.measure.rounds.rounds import Rounds
from bottleneck.measure.rounds.schedule import Timekeeper
from bottleneck.measure.rounds.turns import OrderOfArms, StealTime, Turns, Visit
from bottleneck.measure.training import Training
from bottleneck.results.names import RAW
from bottleneck.results.records import Rank, RankExperiment, RankTrial, RankTrials, TrialName, Warning
from bottleneck.results.values import Block, blocks_of
from bottleneck.results.warnings.job import one_rank_of_many
from bottleneck.results.warnings.unseen import cold_left_out

Found = TypeVar("Found")
SHARE = 0.3
"""Share of the budget for the trials."""
_MIN_ROUNDS = 3
_MAX_ROUNDS = 8
_MAX_BLOCK_S = 0.8
_MIN_BLOCK_S = 0.3
_STEPS = 20
_WORTH_FREEING = 0.02
"""Share of the job's step that a rank must wait for its loader to justify a trial without that."""
_AS_LONG = 0.5
"""Share of the longest wait above which a rank is freed as well."""
_DEVICE = Ladder.device
_RAW = Ladder.raw
_LOADER = replace(Ladder.raw, coupled=False)


class RankReport(msgspec.Struct, frozen=True):
    """Report of a rank to rank 0 after the rounds."""

    rank: Rank
    cpus: Sequence[int]
    """Numbers of the cores that it may use; empty if unknown."""
    cores_busy: float
    """Cores used by its processes in the rounds."""


def options_of_rank(options: MeasureOptions, group: World, ledger: Ledger) -> MeasureOptions:
    """Return the options that are possible for many ranks; the ledger gets warnings of the others, and their number."""
    if group.is_alone:
        return options
    _note(ledger, world=group.size, backend=str(torch.distributed.get_backend()))
    if options.cold:
        ledger.warn(cold_left_out())
    return replace(options, cold=False, profile=options.profile if group.leads else None)


def options_of_rounds(options: MeasureOptions, group: World) -> MeasureOptions:
    """Return options for the rounds of the ladder that leave time for the trials of many ranks in the budget."""
    if group.is_alone or options.budget_s is None:
        return options
    return replace(options, budget_s=(1 - SHARE) * options.budget_s)


def can_all_measure(group: World, ladder: Ladder) -> bool:
    """Return True if all ranks can measure the same; called on each of them."""
    return len(set(group.share(repr([(rung.name, rung.coupled, rung.drained) for rung in ladder.rungs])))) == 1


def measure_all(
    group: World,
    job: JobOnDevice,
    bench: Bench,
    ledger: Ledger,
    rounds: Rounds,
    training: Training,
    time: Timekeeper,
) -> None:
    """Measure the rounds of the ladder, then trials that compare ranks, if many; rank 0's ledger gets the results."""
    if isinstance(group, Solo):
        rounds.run()
        rounds.note_other_load()
        return
    assert isinstance(bench.pacing, Lockstep)
    lockstep = bench.pacing
    trials = Trials(lockstep, bench.loader, ledger, training)
    began_s, times = time.clock(), read_process_times()
    _in_step(lockstep, trials, rounds.run)
    cores_busy = read_process_times().since(times) / max(1e-9, time.clock() - began_s)
    own = RankReport(summarise(group, job, bench, ledger), allowed_cpus() or (), cores_busy)
    ranks = gather_ranks(group, own, ledger, rounds)
    time.tell("comparing ranks")
    first_round, budget_s = rounds.number + 1, SHARE * time.budget_s
    freed = _in_step(lockstep, trials, lambda: trials.lead(ranks, first_round, budget_s, time.clock))
    tried = group.gather(msgspec.json.encode(trials.found).decode())
    group.part()
    if tried is None:
        return
    of_all = tuple(trial for text in tried for trial in msgspec.json.decode(text, type=list[RankTrial]))
    ledger.ranks, ledger.rank_trials = ranks, RankTrials(of_all, freed or ())
    _note(ledger, hosts=len({rank.host for rank in ranks}), sync_reason=lockstep.sharing.reason or None)


def _in_step(lockstep: Lockstep, trials: Trials, lead: Callable[[], Found]) -> Found | None:
    """Let rank 0 lead through some visits, and all others follow; return the result of rank 0."""
    if not lockstep.group.leads:
        trials.follow()
        return None
    found = lead()
    lockstep.announce(None)
    return found


def _note(ledger: Ledger, **changes: Any) -> None:
    ledger.note(ranks=replace(ledger.evidence.ranks, **changes))


# --- what each rank has measured --------------------------------------------------------------------------


def summarise(group: Group, job: JobOnDevice, bench: Bench, ledger: Ledger) -> Rank:
    """Return this rank with the blocks of all its experiments."""
    waits = bench.waits_s.get(_RAW, [])
    stages = {span.name: span.wall_s_per_batch for span in ledger.ladder.spans if span.wall_s_per_batch}
    place = find_place()
    return Rank(
        rank=group.rank,
        host=group.host,
        device=str(job.device),
        local_rank=place.local_rank if place is not None and place.rank == group.rank else None,
        cores=allowed_cores(),
        num_workers=job.loader.num_workers,
        samples_per_epoch=samples_per_epoch(job.loader),
        experiments=tuple(
            RankExperiment(
                e.name,
                e.coupled.seconds_per_batch if e.coupled is not None else None,
                e.drained.seconds_per_batch if e.drained is not None else None,
                blocks_of(e.coupled),
                blocks_of(e.drained),
            )
            for e in ledger.measurement().experiments
            if e.coupled or e.drained
        ),
        wait_s_per_batch=sum(waits) / len(waits) if waits else None,
        step_s_per_batch=bench.work_s_per_batch,
        stage=max(stages, key=lambda name: stages[name], default=None),
    )


def samples_per_epoch(loader: DataLoader[Any]) -> int | None:
    """Return the samples of this rank in one epoch; None if their number is unknown."""
    if isinstance(loader.dataset, IterableDataset) or (loader.batch_sampler is not None and loader.batch_size is None):
        return None
    return length_of(loader.sampler)


def gather_ranks(group: Group, own: RankReport, ledger: Ledger, rounds: Rounds) -> tuple[Rank, ...]:
    """Return all ranks with the cores shared on their hosts, on rank 0; nothing on the others."""
    texts = group.gather(msgspec.json.encode(own).decode())
    if texts is None:
        return ()
    reports = [msgspec.json.decode(text, type=RankReport) for text in texts]
    others = sum(each.cores_busy for each in reports[1:] if each.rank.host == group.host)
    _note(ledger, other_ranks_cores=others)
    rounds.note_other_load(others)
    # A launcher may have bound each rank to separate cores.
    cpus: dict[str, set[int]] = {}
    for each in reports:
        cpus.setdefault(each.rank.host, set()).update(each.cpus)
    return tuple(replace(each.rank, cores_of_host=len(cpus[each.rank.host]) or None) for each in reports)


# --- trials -----------------------------------------------------------------------------------------------


class Trials:
    """Further measurements of many ranks after the experiments of one.

    The cost of sharing gradients: steps with and without it, on batches that are already on the device. This shows a
    slow train step as well. The rank whose loader limits all: the rank that waits the most gets its batches from a
    cache while the others load, and the other way round; if gradients are shared, the others wait for it inside their
    steps. Competition between loaders: all at once, against one of them while the others rest.

    Args:
        lockstep: Runs the visits in step with the other ranks.
        loader: The loader of this rank.
        ledger: Has the blocks of the ladder's experiments.
        training: Restored at the beginning of each round.
    """

    def __init__(self, lockstep: Lockstep, loader: SwitchedLoader, ledger: Ledger, training: Training) -> None:
        self._lockstep = lockstep
        self._loader = loader
        self._ledger = ledger
        self._training = training
        self._calls: dict[str, Call] = {}
        """The trials of rank 0, by name."""
        self._kept = Blocks[str]()
        self._used: dict[str, Counter[str]] = {}
        """CPU time and network bytes of the blocks of loaders alone, by trial."""
        self._machine = MachineUsage(None)
        lockstep.read_counters = self._read_counters
        self._round = self._trained = 0

    def _read_counters(self) -> dict[str, float]:
        """Return the CPU time of this process and its workers, and the host's network bytes, as far as known."""
        times_s = [cpu_seconds(pid) for pid in (os.getpid(), *self._loader.workers)]
        known = {} if None in times_s else {"cpu_s": math.fsum(filter(None, times_s))}
        return known | {key: grown for key, grown in self._machine.counters().items() if key == "network_bytes"}

    @property
    def found(self) -> tuple[RankTrial, ...]:
        """The blocks of this rank."""
        rank = self._lockstep.group.rank
        return tuple(
            RankTrial(name, rank, tuple(blocks), **self._used.get(name, {}))  # type: ignore[arg-type]  # as called
            for name, blocks in self._kept.blocks.items()
        )

    def follow(self) -> None:
        """Take part in the visits that rank 0 announces, until there are no more."""
        while (call := self._lockstep.receive()) is not None:
            block = self._visit(call)
            if block is not None and call.trial:
                self._kept.add(call.trial, block)
            elif block is not None:
                self._ledger.add(call.arm, block)

    def lead(
        self, ranks: Sequence[Rank], first_round: int, budget_s: float, clock: Callable[[], float]
    ) -> tuple[int, ...]:
        """Run the worthwhile trials on all ranks, round by round; return the ranks that were freed.

        Args:
            ranks: The ranks after the rounds.
            first_round: Number of the first round.
            budget_s: Seconds for all trials.
            clock: Monotonic seconds.
        """
        freed = wait_most(ranks)
        self._calls = {call.trial: call for call in self._plan(freed)}
        # No block is measured again: the ranks that follow would keep both.
        turns, order = Turns(clock, self._take_turn, left_s=lambda: 0.0), OrderOfArms[str](seed=0)
        until_s, longest_s = clock() + budget_s, 0.0
        for number in range(_MAX_ROUNDS):
            began_s = clock()
            if number >= _MIN_ROUNDS and began_s + longest_s > until_s:
                break
            self._round = first_round + number
            turns.round(order.next_round(list(self._calls)), self._kept)
            longest_s = max(longest_s, clock() - began_s)
        return freed

    def _take_turn(self, trial: str, _: int | None) -> Visit | None:
        call = msgspec.structs.replace(self._calls[trial], round=self._round)
        self._lockstep.announce(call)
        block = self._visit(call)
        return None if block is None else Visit(block, 0.0, StealTime())

    def _visit(self, call: Call) -> Block | None:
        """Return the block of this rank; None if it rests."""
        if call.round != self._trained:
            self._training.begin_round()
            self._trained = call.round
        with job_failures(describe_arm(call.arm, self._ledger.ladder), mode=call.arm.mode):
            block = self._lockstep.take_part(call)
        if block is not None and self._lockstep.used:
            self._used.setdefault(call.trial, Counter()).update(self._lockstep.used)
        return block

    def _plan(self, freed: tuple[int, ...]) -> Iterator[Call]:
        shares = not self._lockstep.sharing.reason
        if shares:
            yield self._call("device", _DEVICE)
            yield self._call("device-unshared", _DEVICE, shares=False)
        if freed or shares:
            yield self._call("raw", _RAW)
        if shares:
            yield self._call("raw-unshared", _RAW, shares=False)
        if freed:
            others = tuple(rank for rank in range(self._lockstep.group.size) if rank not in freed)
            yield self._call("raw-freed", _RAW, ranks=others, others=_DEVICE)
            yield self._call("raw-held", _RAW, ranks=freed, others=_DEVICE)
        yield self._call("loaders", _LOADER)
        yield self._call("loader-alone", _LOADER, ranks=freed[:1] or (0,))

    def _call(self, trial: TrialName, arm: Arm, **changes: Any) -> Call:
        pace_s = self._ledger.seconds_per_batch(arm) or math.inf  # not measured: as short as possible
        step_s = self._ledger.seconds_per_batch(_DEVICE) or 0.0
        target_s = min(_MAX_BLOCK_S, max(_MIN_BLOCK_S, _STEPS * step_s))
        batches = block_batches(arm, pace_s, target_s, self._lockstep.most_workers)
        return msgspec.structs.replace(self._lockstep.plan(arm, 0, batches), trial=trial, looks=False, **changes)


def wait_most(ranks: Sequence[Rank]) -> tuple[int, ...]:
    """Return the rank that waits longest for its loader, with those that wait similarly long, if at most half.

    Empty if waiting is a negligible part of a step.
    """
    waits_s = {rank.rank: rank.wait_s_per_batch or 0.0 for rank in ranks}
    ordered = sorted(ranks, key=lambda rank: waits_s[rank.rank], reverse=True)
    first = next(iter(ordered), None)
    raw_s = next((e.coupled_s_per_batch for e in first.experiments if e.name == RAW), None) if first else None
    if first is None or not raw_s or waits_s[first.rank] <= _WORTH_FREEING * raw_s:
        return ()
    freed = tuple(rank.rank for rank in ordered if waits_s[rank.rank] > _AS_LONG * waits_s[first.rank])
    return freed if len(freed) <= len(ranks) / 2 else (first.rank,)


# --- one process that is diagnosed alone ------------------------------------------------------------------


def rank_warnings(
    used: Collection[torch.device], environment: Mapping[str, str] | None = None, *, visible: int | None = None
) -> Iterator[Warning]:
    """Yield a warning if one process is diagnosed though there may be more of them.

    Args:
        used: Devices that the job computes on.
        environment: Environment of the process; None for this one's.
        visible: Number of CUDA devices; None for torch's count.
    """
    place, on_cuda = find_place(environment), {device for device in used if device.type == "cuda"}
    launched = (place.size_name, place.world) if place is not None else None
    there = 0 if not on_cuda else torch.cuda.device_count() if visible is None else visible
    devices = (len(on_cuda), there) if there > len(on_cuda) else None
    if launched is not None or devices is not None:
        yield one_rank_of_many(launched, devices)

"""One diagnosis of all ranks: rank 0 leads, the others follow, and what each has measured is gathered at the end."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

import msgspec
import torch
from torch.utils.data import DataLoader, IterableDataset

from bottleneck.job.world import as_number, find_place
from bottleneck.measure.bench import Bench
from bottleneck.measure.job_on_device import JobOnDevice
from bottleneck.measure.ladder import Ladder
from bottleneck.measure.ledger import Ledger
from bottleneck.measure.options import MeasureOptions
from bottleneck.measure.ranks.group import Group
from bottleneck.measure.ranks.lockstep import LockstepBench
from bottleneck.measure.ranks.trials import SHARE, Trials
from bottleneck.measure.rounds.rounds import Rounds
from bottleneck.measure.system.cores import allowed_cores, allowed_cpus
from bottleneck.measure.system.environment import read_process_times
from bottleneck.measure.timekeeper import Timekeeper
from bottleneck.measure.training.training import Training
from bottleneck.results.blocks import Block, blocks_of
from bottleneck.results.ranks import Rank, RankExperiment, RankTrial, RankTrials

Found = TypeVar("Found")
_SIZES = {"LOCAL_WORLD_SIZE": "processes on this machine", "SLURM_NTASKS": "tasks of the batch job"}
"""What else says that there are several processes."""


class RankReport(msgspec.Struct, frozen=True):
    """What a rank hands to rank 0 after the rounds."""

    rank: Rank
    cpus: Sequence[int]
    """Numbers of the cores that it may use; none where these are unknown."""
    cores_busy: float
    """By its processes in the rounds."""


def note_ranks(group: Group, ledger: Ledger) -> None:
    """Note what is known before anything is measured."""
    _note(ledger, world=group.size, backend=str(torch.distributed.get_backend()))


def options_of_rank(options: MeasureOptions, group: Group, ledger: Ledger) -> MeasureOptions:
    """What can be measured of many ranks, of what was asked for; the ledger gets what cannot."""
    if options.cold:
        ledger.warn(
            "cold-left-out",
            "There is no experiment with cold files: in a job of many ranks one rank would drop the files of all. "
            "Diagnose one process for that.",
        )
    return replace(options, cold=False, profile=options.profile if group.leads else None)


def options_of_rounds(options: MeasureOptions) -> MeasureOptions:
    """What the rounds of the ladder may take, so that the trials fit into the budget too."""
    return options if options.budget_s is None else replace(options, budget_s=(1 - SHARE) * options.budget_s)


def can_all_measure(group: Group, ladder: Ladder) -> bool:
    """Whether all ranks can measure the same; called on each of them."""
    return group.all_say(repr([(rung.name, rung.coupled, rung.drained) for rung in ladder.rungs]))


def measure_all(
    group: Group,
    job: JobOnDevice,
    bench: Bench,
    ledger: Ledger,
    rounds: Rounds,
    training: Training,
    time: Timekeeper,
) -> None:
    """Measure the rounds of the ladder, then the trials that compare ranks; rank 0's ledger gets what is found.

    Args:
        group: By which the ranks agree.
        job: Of this rank.
        bench: Runs in step with the other ranks.
        ledger: Of this rank.
        rounds: Run by rank 0, and followed by the others.
        training: Of this rank.
        time: Of the diagnosis.
    """
    assert isinstance(bench, LockstepBench)
    trials = Trials(bench, ledger, training)
    began_s, times = time.clock(), read_process_times()
    _in_step(bench, trials, rounds.run)
    cores_busy = read_process_times().since(times) / max(1e-9, time.clock() - began_s)
    own = RankReport(summarise(group, job, bench, ledger), allowed_cpus() or (), cores_busy)
    ranks = gather_ranks(group, own, ledger, rounds)
    time.tell("comparing ranks")
    first_round, budget_s = rounds.number + 1, SHARE * time.budget_s
    freed = _in_step(bench, trials, lambda: trials.lead(ranks, first_round, budget_s, time.clock))
    tried = group.gather(msgspec.json.encode(trials.found).decode())
    group.barrier()
    group.is_over = True
    if tried is None:
        return
    of_all = tuple(trial for text in tried for trial in msgspec.json.decode(text, type=list[RankTrial]))
    ledger.ranks, ledger.rank_trials = ranks, RankTrials(of_all, freed or ())
    _note(ledger, hosts=len({rank.host for rank in ranks}), sync_reason=bench.sharing.reason or None)


def _in_step(bench: LockstepBench, trials: Trials, lead: Callable[[], Found]) -> Found | None:
    """Let rank 0 lead through some visits, and all others follow; return what it found."""
    if not bench.group.leads:
        trials.follow()
        return None
    found = lead()
    bench.announce(None)
    return found


def _note(ledger: Ledger, **changes: Any) -> None:
    ledger.evidence = replace(ledger.evidence, ranks=replace(ledger.evidence.ranks, **changes))


# --- what each rank has measured --------------------------------------------------------------------------


def summarise(group: Group, job: JobOnDevice, bench: Bench, ledger: Ledger) -> Rank:
    """This rank, with the blocks of all its experiments."""
    raw = ledger.ladder.raw if ledger.ladder is not None else None
    waits = bench.waits_s.get(raw, []) if raw is not None else []
    spans = ledger.ladder.spans if ledger.ladder is not None else ()
    stages = {span.name: span.wall_s_per_batch for span in spans if span.wall_s_per_batch}
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
            RankExperiment(e.name, _per_batch_s(coupled), _per_batch_s(drained), coupled, drained)
            for e in ledger.measurement().experiments
            for coupled, drained in [(blocks_of(e.coupled), blocks_of(e.drained))]
            if coupled or drained
        ),
        wait_s_per_batch=sum(waits) / len(waits) if waits else None,
        step_s_per_batch=bench.work_s_per_batch,
        stage=max(stages, key=lambda name: stages[name], default=None),
    )


def _per_batch_s(blocks: tuple[Block, ...]) -> float | None:
    batches = sum(block.batches for block in blocks)
    return sum(block.seconds for block in blocks) / batches if batches else None


def samples_per_epoch(loader: DataLoader[Any]) -> int | None:
    """Samples of this rank in one epoch; None where that has no known length."""
    if isinstance(loader.dataset, IterableDataset) or (loader.batch_sampler is not None and loader.batch_size is None):
        return None
    try:
        return len(loader.sampler)  # type: ignore[arg-type]  # those without a length raise
    except (TypeError, NotImplementedError):
        return None


def gather_ranks(group: Group, own: RankReport, ledger: Ledger, rounds: Rounds) -> tuple[Rank, ...]:
    """Return all ranks, each with the cores that those of its host share, on rank 0; nothing on the others."""
    texts = group.gather(msgspec.json.encode(own).decode())
    if texts is None:
        return ()
    reports = [msgspec.json.decode(text, type=RankReport) for text in texts]
    others = sum(each.cores_busy for each in reports[1:] if each.rank.host == group.host)
    _note(ledger, other_ranks_cores=others)
    rounds.note_other_load(others)
    # A launcher may have bound each rank to cores of its own.
    cpus: dict[str, set[int]] = {}
    for each in reports:
        cpus.setdefault(each.rank.host, set()).update(each.cpus)
    return tuple(replace(each.rank, cores_of_host=len(cpus[each.rank.host]) or None) for each in reports)


# --- one process that is diagnosed alone ------------------------------------------------------------------


def rank_warnings(
    used: Collection[torch.device], environment: Mapping[str, str] | None = None, *, visible: int | None = None
) -> Iterator[tuple[str, str]]:
    """Yield id and message where one process is diagnosed and there may be more of them.

    Args:
        used: The devices that the job computes on.
        environment: Of the process; None: of this one.
        visible: Number of CUDA devices; None: as torch counts them.
    """
    given = os.environ if environment is None else environment
    place, on_cuda = find_place(given), {device for device in used if device.type == "cuda"}
    signs = [f"{place.size_name} says {place.world} processes"] if place is not None else []
    for name, what in _SIZES.items():
        if (as_number(given.get(name)) or 0) > 1:
            signs.append(f"{name} says {given[name]} {what}")
    there = 0 if not on_cuda else torch.cuda.device_count() if visible is None else visible
    if there > len(on_cuda):
        signs.append(f"it uses {len(on_cuda)} of {there} visible devices")
    if signs:
        yield (
            "one-rank-of-many",
            f"This process was diagnosed alone, and {' and '.join(signs)}. What other processes take of the same "
            "cores, disk and network, and what sharing gradients with them costs, is not in any number; a loader that "
            "is quick enough alone may be too slow when the others run. Give it its share of the cores (taskset -c), "
            "and measure while the others run.",
        )

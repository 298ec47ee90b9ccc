"""One diagnosis of all ranks: who leads, who follows, and what is gathered in the end."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any, TypeVar

from bottleneck.measure.bench import Bench
from bottleneck.measure.job_on_device import JobOnDevice
from bottleneck.measure.ladder import Ladder
from bottleneck.measure.ledger import Ledger
from bottleneck.measure.options import MeasureOptions
from bottleneck.measure.ranks.group import Group
from bottleneck.measure.ranks.lockstep import LockstepBench
from bottleneck.measure.ranks.sharing import backend_name
from bottleneck.measure.ranks.summary import gather_ranks, gather_trials, summarise
from bottleneck.measure.ranks.trials import SHARE, Trials
from bottleneck.measure.rounds.rounds import Rounds
from bottleneck.measure.system.environment import read_process_times
from bottleneck.measure.timekeeper import Timekeeper
from bottleneck.measure.training.training import Training
from bottleneck.results.rank_trials import RankTrials

Found = TypeVar("Found")


def note_ranks(group: Group, ledger: Ledger) -> None:
    """Note what is known before anything is measured."""
    _note(ledger, world=group.size, backend=backend_name())


def options_of_rank(options: MeasureOptions, group: Group, ledger: Ledger) -> MeasureOptions:
    """What can be measured of many ranks, of what was asked for; the ledger says what cannot."""
    if options.cold:
        ledger.warn(
            "cold-left-out",
            "There is no experiment with cold files: in a job of many ranks one rank would drop the files of all. "
            "Diagnose one process for that.",
        )
    return replace(options, cold=False, profile=options.profile if group.leads else None)


def options_of_rounds(options: MeasureOptions) -> MeasureOptions:
    """What the rounds of the ladder may take, so that what tells ranks apart fits into the budget too."""
    return options if options.budget_s is None else replace(options, budget_s=(1 - SHARE) * options.budget_s)


def can_all_measure(group: Group, ladder: Ladder) -> bool:
    """Whether all ranks can measure the same; each must ask."""
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
    """Measure the rounds of the ladder, and then what tells ranks apart; what is found goes to the first one's ledger.

    Args:
        group: By which the ranks agree.
        job: Of this rank.
        bench: Runs in step with the other ranks.
        ledger: Of this rank.
        rounds: Run by the first rank; the others do as it says.
        training: Of this rank.
        time: Of the diagnosis.
    """
    assert isinstance(bench, LockstepBench)
    trials = Trials(bench, ledger, training)
    requests, nbytes = group.store.requests, group.store.bytes_moved
    began_s, times = time.clock(), read_process_times()
    _in_step(bench, trials, rounds.run)
    own_cores = read_process_times().since(times) / max(1e-9, time.clock() - began_s)
    note_load(group, ledger, rounds, own_cores)
    requests, nbytes = group.store.requests - requests, group.store.bytes_moved - nbytes
    ranks = gather_ranks(group, summarise(group, job, bench, ledger))
    time.tell("comparing ranks")
    first_round, budget_s = rounds.number + 1, SHARE * time.budget_s
    freed = _in_step(bench, trials, lambda: trials.lead(ranks, first_round, budget_s, time.clock))
    tried = gather_trials(group, trials.found)
    group.meet()
    group.is_over = True
    if not group.leads:
        return
    ledger.ranks, ledger.rank_trials = ranks, RankTrials(tried, freed or ())
    _note(
        ledger,
        hosts=len({rank.host for rank in ranks}),
        sync_reason=bench.sharing.reason or None,
        messages_per_round=requests / max(1, rounds.number),
        bytes_per_round=nbytes / max(1, rounds.number),
    )


def note_load(group: Group, ledger: Ledger, rounds: Rounds, own_cores: float) -> None:
    """Tell what the other ranks of the first one's host kept busy from what is no part of the job."""
    by_rank = group.gather(json.dumps([group.host, own_cores]))
    if by_rank is None:
        return
    others = sum(cores for host, cores in map(json.loads, by_rank) if host == group.host) - own_cores
    _note(ledger, other_ranks_cores=others)
    rounds.note_other_load(others)


def _in_step(bench: LockstepBench, trials: Trials, lead: Callable[[], Found]) -> Found | None:
    """Let the first rank lead through some visits, and all others follow; only on the first one is something found."""
    if not bench.group.leads:
        trials.follow()
        return None
    found = lead()
    bench.announce(None)
    return found


def _note(ledger: Ledger, **changes: Any) -> None:
    ledger.evidence = replace(ledger.evidence, ranks=replace(ledger.evidence.ranks, **changes))

"""Results of the trials on ranks: the cost of sharing gradients, the straggler, contention."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from bottleneck.analysis.advice.saturation import contended_resource
from bottleneck.analysis.statistics import Series, align, jackknife, log_ratio, series
from bottleneck.results.evidence import Contention, Evidence, Straggler, Sync
from bottleneck.results.names import COMPUTE
from bottleneck.results.records import Interval, Rank, RankTrial, RankTrials, Result, Stage, TrialName

_PRECISE_OF_COST, _PRECISE_OF_STEP = 0.25, 0.02
"""Largest half interval of a cost, as a part of it or of the step: otherwise it is not precise enough to act on."""
_NOT_PRECISE = "it was not measured precisely enough"
_MOSTLY_CPU = 0.5
"""CPU time as a part of a batch's extra time, above which memory is what the loaders share."""
_NO_FASTER = 1.25
"""Ratio of bytes received for all loaders to those for one, below which the network is used up."""
_FROM_NETWORK = 0.05
"""Bytes over the network for a batch, as a part of its payload, above which it comes from there: files are smaller
than the data decoded from them, and other traffic is smaller still."""


def compare_ranks(measurement: Result, of_all: RankTrials, efficiency: Interval | None) -> Result:
    """Add what the ranks show, alone and together; without trials a measurement is unchanged.

    Args:
        measurement: Measurement of rank 0.
        of_all: The trials of all ranks.
        efficiency: Efficiency of the job.
    """
    if not of_all.trials:
        return measurement
    trials = _Trials(of_all)
    ranks = tuple(_describe(rank, trials, measurement.stages) for rank in measurement.ranks)
    stragglers = [each for each in (_by_loader(trials, ranks), _by_step(trials, ranks, efficiency)) if each is not None]
    sync, reason = _sync(trials)
    together = replace(
        measurement.evidence.ranks,
        sync=sync,
        sync_reason=measurement.evidence.ranks.sync_reason or reason,
        straggler=max(stragglers, key=lambda each: each.gain.low if each.gain else 0.0, default=None),
        contention=_contention(trials, measurement),
    )
    return replace(measurement, ranks=ranks, evidence=replace(measurement.evidence, ranks=together))


class _Trials:
    def __init__(self, trials: RankTrials) -> None:
        self.freed = trials.freed
        self.by_rank = {(trial.name, trial.rank): trial for trial in trials.trials}
        # A batch counts as one: ranks may have batches of different sizes.
        self._series = {
            key: series(replace(block, samples=block.batches) for block in trial.blocks)
            for key, trial in self.by_rank.items()
        }

    def of(self, name: TrialName, rank: int = 0) -> Series:
        """Return the time per batch on a rank, round by round; empty without such a trial."""
        return self._series.get((name, rank), series(()))

    def slowest_first(self, name: TrialName) -> list[int]:
        """Return the ranks that had a trial."""
        known = {
            rank: found.seconds_per_batch for (each, rank), found in self._series.items() if each == name and len(found)
        }
        return sorted(known, key=lambda rank: known[rank], reverse=True)

    def slowest(self, name: TrialName) -> Series:
        """Return the time per batch on the slowest rank."""
        return self.of(name, next(iter(self.slowest_first(name)), 0))


# --- what ranks cost each other ---------------------------------------------------------------------------


def _sync(trials: _Trials) -> tuple[Sync, str | None]:
    """Return the time of sharing gradients in a step of the slowest rank, and the reason if it is unknown."""
    step, unshared = trials.of("device"), trials.slowest("device-unshared")
    gain = _ratio(trials.of("raw"), trials.slowest("raw-unshared"))
    found = jackknife(lambda a, b: a - b, (step, unshared)) if len(align((step, unshared))[0]) else None
    if found is None:
        return Sync(gain_if_free=gain), None
    cost = found.interval()
    off = (cost.high - cost.low) / 2
    if off > max(_PRECISE_OF_COST * cost.estimate, _PRECISE_OF_STEP * step.seconds_per_batch):
        return Sync(gain_if_free=gain), _NOT_PRECISE
    return Sync(cost_s_per_batch=cost.estimate, gain_if_free=gain), None


def _by_loader(trials: _Trials, ranks: Sequence[Rank]) -> Straggler | None:
    """Return the ranks that wait the most, and the job's gain with their loaders free.

    Loaders that contend are all slow, and freeing any of them helps the others. One that holds them is as slow while
    they rest.
    """
    gain, held = _ratio(trials.of("raw"), trials.of("raw-freed")), _ratio(trials.of("raw-held"), trials.of("raw-freed"))
    slow = _ranks_of(trials.freed, ranks)
    if not slow or gain is None or held is None or held.low <= 1:
        return None
    return _straggler(slow, slow[0].stage, gain)


def _by_step(trials: _Trials, ranks: Sequence[Rank], efficiency: Interval | None) -> Straggler | None:
    """Return the ranks whose train step is slow, and the job's gain if it were as quick as that of the next one."""
    order = trials.slowest_first("device-unshared")
    job = trials.of("raw") if len(trials.of("raw")) else trials.of("device")
    if len(order) < 2 or efficiency is None:
        return None
    steps_s = [trials.of("device-unshared", rank).seconds_per_batch for rank in order]
    # Of at most half of the ranks, those before the largest fall are slow.
    count = max(range(1, len(order) // 2 + 1), key=lambda at: steps_s[at - 1] / steps_s[at])
    slowest, next_ = (trials.of("device-unshared", rank) for rank in (order[0], order[count]))
    gained = jackknife(lambda whole, a, b: whole / (whole - (a - b)), (job, slowest, next_))
    slow = _ranks_of(order[:count], ranks)
    # A rank that waits for data gains nothing by a faster step: the rest of the gain counts.
    if gained is None or not slow or efficiency.low * gained.estimate <= 1:
        return None
    return _straggler(slow, COMPUTE, gained.interval())


def _ranks_of(numbers: Sequence[int], ranks: Sequence[Rank]) -> list[Rank]:
    known = {rank.rank: rank for rank in ranks}
    return [known[number] for number in numbers if number in known]


def _straggler(slow: Sequence[Rank], stage: str | None, gain: Interval) -> Straggler:
    first = slow[0]
    several = tuple(sorted(rank.rank for rank in slow)) if len(slow) > 1 else ()
    return Straggler(rank=first.rank, host=first.host, device=first.device, stage=stage, gain=gain, ranks=several)


# --- contention -------------------------------------------------------------------------------------------


def _contention(trials: _Trials, measurement: Result) -> Contention:
    """Return how much longer a loader takes for a batch when all ranks load, and the contended resource.

    Workers either compute longer for the same batch, or they wait longer. CPU time separates the two: it grows where
    running cores share memory bandwidth and caches, and does not where workers wait for cores, a disk or the network.
    """
    rank = next(iter(trials.freed), 0)
    ratio = _ratio(trials.of("loaders", rank), trials.of("loader-alone", rank))
    if ratio is None or ratio.low <= 1:
        return Contention(ratio=ratio)
    together, alone = trials.by_rank["loaders", rank], trials.by_rank["loader-alone", rank]
    workers = next((each.num_workers or 0 for each in measurement.ranks if each.rank == rank), 0)
    if _computes_longer(together, alone, workers):
        return Contention(ratio=ratio, what="memory")
    fills = _fills_network(together, alone, measurement.evidence)
    return Contention(ratio=ratio, what=contended_resource(measurement.evidence) or ("network" if fills else None))


def _computes_longer(together: RankTrial, alone: RankTrial, workers: int) -> bool:
    if together.cpu_s is None or alone.cpu_s is None:
        return False
    computes_s = together.cpu_s / _batches(together) - alone.cpu_s / _batches(alone)
    takes_s = _seconds(together) / _batches(together) - _seconds(alone) / _batches(alone)
    return computes_s >= _MOSTLY_CPU * takes_s * max(1, workers)  # each worker makes a batch at that time


def _fills_network(together: RankTrial, alone: RankTrial, evidence: Evidence) -> bool:
    payload = evidence.payload.bytes
    if together.network_bytes is None or alone.network_bytes is None or not payload:
        return False
    if alone.network_bytes / _batches(alone) < _FROM_NETWORK * payload:
        return False
    return together.network_bytes / _seconds(together) <= _NO_FASTER * alone.network_bytes / _seconds(alone)


def _batches(trial: RankTrial) -> int:
    return max(1, sum(block.batches for block in trial.blocks))


def _seconds(trial: RankTrial) -> float:
    return sum(block.seconds for block in trial.blocks)


# --- single ranks -----------------------------------------------------------------------------------------


def _describe(rank: Rank, trials: _Trials, spans: Iterable[Stage]) -> Rank:
    """Return a rank with its loader's costliest stage, and its time alone."""
    alone, step = trials.of("loader-alone", rank.rank), trials.of("device-unshared", rank.rank)
    is_freed = rank.rank in trials.freed[:1]
    return replace(
        rank,
        stage=_costliest(rank, spans) or rank.stage,
        alone_s_per_batch=alone.seconds_per_batch if len(alone) else None,
        unshared_step_s_per_batch=step.seconds_per_batch if len(step) else None,
        held=_ratio(trials.of("raw"), trials.of("raw-freed")) if is_freed else None,
    )


def _costliest(rank: Rank, spans: Iterable[Stage]) -> str | None:
    """Return the stage between the two experiments of the loader alone that are furthest apart."""
    drained = {found.name: found.drained_s_per_batch for found in rank.experiments}
    costs: dict[str, float] = {}
    for span in spans:
        outer, inner = drained.get(span.outer), drained.get(span.inner or "")
        if outer is not None:
            costs[span.name] = outer - (inner or 0.0)
    return max(costs, key=lambda name: costs[name]) if len(costs) > 1 else None


def _ratio(slower: Series, faster: Series) -> Interval | None:
    found = log_ratio(slower, faster) if len(slower) and len(faster) else None
    return None if found is None else found.exponentiated()

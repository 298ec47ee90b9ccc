"""What the trials on ranks say: the cost of sharing gradients, the rank that holds all others, contention."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from bottleneck.analysis.contention import find_contended
from bottleneck.analysis.estimates.statistics import Series, align, jackknife, log_ratio, series
from bottleneck.results.evidence import Contention, Straggler, Sync
from bottleneck.results.names import COMPUTE
from bottleneck.results.rank_trials import RankTrial, RankTrials, TrialName
from bottleneck.results.ranks import Rank
from bottleneck.results.records import Interval, Result, Stage

_PRECISE_OF_COST, _PRECISE_OF_STEP = 0.25, 0.02
"""Half the interval of a cost, as a part of it or of the step, at most: else it is no number to act on."""
_NOT_PRECISE = "it was not measured precisely enough"


def compare_ranks(measurement: Result, trials: RankTrials, efficiency: Interval | None) -> Result:
    """The measurement with what its ranks show, each by itself and together; without trials it stays as it is.

    Args:
        measurement: Of the first rank.
        trials: Of all ranks.
        efficiency: Of the job.
    """
    if not trials.trials:
        return measurement
    told = _Trials(trials)
    ranks = tuple(_described(rank, told, measurement.stages) for rank in measurement.ranks)
    found = [_by_loader(told, ranks), _by_step(told, ranks, efficiency)]
    held = [each for each in found if each is not None and each.gain is not None]
    sync, reason = _sync(told)
    together = replace(
        measurement.evidence.ranks,
        sync=sync,
        sync_reason=measurement.evidence.ranks.sync_reason or reason,
        straggler=max(held, key=lambda each: each.gain.low if each.gain else 0.0, default=None),
        contention=_contention(told, measurement),
    )
    return replace(measurement, ranks=ranks, evidence=replace(measurement.evidence, ranks=together))


class _Trials:
    """Blocks of trials, by what was tried and on which rank."""

    def __init__(self, trials: RankTrials) -> None:
        self.freed = trials.freed
        self.tried = {(trial.name, trial.rank): trial for trial in trials.trials}
        self._found = {key: _per_batch(trial) for key, trial in self.tried.items()}

    def of(self, name: TrialName, rank: int = 0) -> Series:
        """Time per batch on a rank, round by round; empty where that was not tried."""
        return self._found.get((name, rank), series(()))

    def slowest(self, name: TrialName) -> list[int]:
        """The ranks on which something was tried, the slowest first."""
        known = {
            rank: found.seconds_per_batch for (tried, rank), found in self._found.items() if tried == name if len(found)
        }
        return sorted(known, key=lambda rank: known[rank], reverse=True)


def _per_batch(trial: RankTrial) -> Series:
    """Blocks in which a batch counts as one: ranks may have batches of different sizes."""
    return series(replace(block, samples=block.batches) for block in trial.blocks)


# --- what ranks cost each other ---------------------------------------------------------------------------


def _sync(told: _Trials) -> tuple[Sync, str | None]:
    """What a step takes longer with gradients shared than on the rank that is the slowest without, or why not."""
    step = told.of("device")
    cost = _difference(step, told.of("device-unshared", _first(told.slowest("device-unshared"))))
    gain = _ratio(told.of("raw"), told.of("raw-unshared", _first(told.slowest("raw-unshared"))))
    if cost is None:
        return Sync(gain_if_free=gain), None
    off = (cost.high - cost.low) / 2
    if off > max(_PRECISE_OF_COST * cost.estimate, _PRECISE_OF_STEP * step.seconds_per_batch):
        return Sync(gain_if_free=gain), _NOT_PRECISE
    return Sync(cost_s_per_batch=cost.estimate, gain_if_free=gain), None


def _first(ranks: Sequence[int]) -> int:
    return ranks[0] if ranks else 0


def _by_loader(told: _Trials, ranks: Sequence[Rank]) -> Straggler | None:
    """The ranks that wait the most, and what the job gains with their loaders free.

    Loaders that contend are all slow, and freeing any of them helps the others. The one that holds them is as slow
    while they rest.
    """
    gain, held = _ratio(told.of("raw"), told.of("raw-freed")), _ratio(told.of("raw-held"), told.of("raw-freed"))
    slow = _named(told.freed, ranks)
    if not slow or gain is None or held is None or held.low <= 1:
        return None
    return _straggler(slow, slow[0].stage, gain)


def _by_step(told: _Trials, ranks: Sequence[Rank], efficiency: Interval | None) -> Straggler | None:
    """The ranks whose train step is slow, and what the job gains if it were as quick as that of the next one."""
    order = told.slowest("device-unshared")
    job = told.of("raw") if len(told.of("raw")) else told.of("device")
    if len(order) < 2 or efficiency is None:
        return None
    steps_s = [told.of("device-unshared", rank).seconds_per_batch for rank in order]
    # Of at most half of the ranks, those before the largest fall are slow.
    count = max(range(1, len(order) // 2 + 1), key=lambda at: steps_s[at - 1] / steps_s[at])
    slowest, next_ = (told.of("device-unshared", rank) for rank in (order[0], order[count]))
    gained = jackknife(lambda whole, a, b: whole / (whole - (a - b)), (job, slowest, next_))
    slow = _named(order[:count], ranks)
    # Who waits for data gains nothing by a faster step: of the gain, the part that is left counts.
    if gained is None or not slow or efficiency.low * gained.estimate <= 1:
        return None
    return _straggler(slow, COMPUTE, gained.interval())


def _named(numbers: Sequence[int], ranks: Sequence[Rank]) -> list[Rank]:
    known = {rank.rank: rank for rank in ranks}
    return [known[number] for number in numbers if number in known]


def _straggler(slow: Sequence[Rank], stage: str | None, gain: Interval) -> Straggler:
    first = slow[0]
    alike = tuple(sorted(rank.rank for rank in slow)) if len(slow) > 1 else ()
    return Straggler(rank=first.rank, host=first.host, device=first.device, stage=stage, gain=gain, ranks=alike)


def _contention(told: _Trials, measurement: Result) -> Contention:
    """What a batch takes a loader longer beside those of the other ranks than alone, and what they contend for."""
    rank = _first(told.freed)
    ratio = _ratio(told.of("loaders", rank), told.of("loader-alone", rank))
    if ratio is None:
        return Contention()
    together, alone = (told.tried[name, rank] for name in ("loaders", "loader-alone"))
    workers = next((each.num_workers or 0 for each in measurement.ranks if each.rank == rank), 0)
    what = find_contended(together, alone, workers, measurement.evidence) if ratio.low > 1 else None
    return Contention(ratio=ratio, what=what)


# --- single ranks -----------------------------------------------------------------------------------------


def _described(rank: Rank, told: _Trials, spans: Iterable[Stage]) -> Rank:
    """A rank with the stage that costs its loader the most, and what it takes by itself."""
    alone, step = told.of("loader-alone", rank.rank), told.of("device-unshared", rank.rank)
    held = _ratio(told.of("raw"), told.of("raw-freed")) if told.freed and rank.rank == told.freed[0] else None
    return replace(
        rank,
        stage=_costliest(rank, spans) or rank.stage,
        alone_s_per_batch=alone.seconds_per_batch if len(alone) else None,
        unshared_step_s_per_batch=step.seconds_per_batch if len(step) else None,
        held=held,
    )


def _costliest(rank: Rank, spans: Iterable[Stage]) -> str | None:
    """The stage between the two experiments of the loader alone that are furthest apart."""
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


def _difference(more: Series, less: Series) -> Interval | None:
    if not len(align((more, less))[0]):
        return None
    found = jackknife(lambda a, b: a - b, (more, less))
    return None if found is None else found.interval()

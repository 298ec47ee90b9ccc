"""Samples that are worth keeping: made the same each time, or few different ones behind many indices."""

from __future__ import annotations

from collections.abc import Iterator

from bottleneck.analysis.advice.case import WORTH, Case, Suggestion, rule
from bottleneck.analysis.advice.lines import has_own_remedy
from bottleneck.analysis.advice.samples import TINY_S, cost_in_words, cost_s, dataset_of
from bottleneck.analysis.advice.transforms import mostly_waits
from bottleneck.analysis.edits.edits import CACHE, DISTINCT
from bottleneck.analysis.settings import over_0
from bottleneck.results.evidence import DistinctSeen
from bottleneck.results.format import duration, gain, number, percent, plural, size
from bottleneck.results.names import LOAD, makes_samples, stages_in
from bottleneck.results.records import Stage

_MEMORY_SHARE = 0.5
"""Share of the free memory that a cache of the dataset may take."""
_MAX_STORED = 1e12
"""Bytes beyond which storing them is a separate project."""
_SLOW_DISK_BYTES_PER_S = 2e8
_QUICKER = 0.5
"""Time to read stored data over the time to make it, below which storing pays off."""


@rule(CACHE)
def _cache_dataset(case: Case) -> Iterator[Suggestion]:
    """Advise to make output that is always the same for an index only once."""
    seen, length, free = case.evidence.repeated, case.positive("dataset_length"), case.free_memory_bytes
    stages, each = _same_again(case)
    if not stages or not each or not length or not free:
        return
    stage, total, made_s = stages[0], each * length, over_0(seen.seconds_per_sample)
    fits = total <= _MEMORY_SHARE * free
    read_s = each / _SLOW_DISK_BYTES_PER_S
    # All of them would be free; unknown costs of the others are left out.
    costs = sum(one.cost_s_per_batch.estimate for one in stages[1:] if one.cost_s_per_batch is not None)
    left_s = case.step_s / max(case.gain_of(stage), 1.0) - max(costs, 0.0)
    if not fits and (made_s is None or total > _MAX_STORED or mostly_waits(case, stage) or read_s > _QUICKER * made_s):
        return
    whole = all(one in stages for one in case.stages if makes_samples(one.name)) and stage.name != LOAD
    done = "Make each sample" if whole else "Load the dataset" if stage.name == LOAD else f"Do {stage.name}"
    what = "samples" if whole else "loaded samples" if stage.name == LOAD else f"results of {stage.name}"
    room = f"of the {size(free)} that are free" if fits else f"more than half of the {size(free)} that are free"
    twice = (
        f"{plural(seen.samples, 'sample')} made twice came out identical, drew no random number, and took "
        f"{duration(made_s)} of a worker's time each time. "
        if seen.samples is not None
        else ""
    )
    yield Suggestion(
        stage=stage.name,
        title=f"{done} once, and keep it {'in memory' if fits else 'on disk'}",
        why=f"{twice}All {number(length)} {what} take about {size(total)}{' ' if fits else ', '}{room}; "
        f"{cost_in_words(case, stage)}",
        how=f"in {dataset_of(case)}.__init__: load every sample once into one array or tensor (np.stack), or a list "
        "where sizes differ, before the workers start, so that they share it; __getitem__ then only takes from it"
        if fits
        else 'fill one file once (np.lib.format.open_memmap); in __getitem__ np.load(path, mmap_mode="r")[index]',
        evidence={
            "loaded_bytes_per_sample": each,
            "dataset_length": length,
            "memory_available_bytes": free,
            "cost_s_per_batch": cost_s(stage),
            "made_twice": seen.samples,
        },
        frees_stage=len(stages) == 1,
        gain=case.at_most_headroom(case.step_s / max(left_s, case.device_s)),
        cause=made_s is not None and not has_own_remedy(case, stage),
    )


def _same_again(case: Case) -> tuple[list[Stage], float | None]:
    """Return the stages that repeat their output, the bottleneck first, and the bytes of that output."""
    seen, facts = case.evidence.repeated, case.evidence.loader
    if seen.samples is None:  # in files of earlier versions, and of streams
        return [stage for stage in (case.holding(LOAD),) if stage is not None], over_0(facts.loaded_bytes_per_sample)
    stages = [stage for stage in case.stages if set(stages_in(stage.name)) <= set(seen.stages)]
    held = next((stage for stage in case.suspects if stage in stages), None)
    if held is None or (over_0(seen.seconds_per_sample) or 0.0) < TINY_S:
        return [], None
    return [held, *(stage for stage in stages if stage is not held)], over_0(seen.bytes_per_sample)


# --- few different ones ------------------------------------------------------------------------------------

_ENOUGH = 32
"""Samples without which nothing is said about the others."""
_TIMES_EACH = 3.0
"""Times that each content comes on average, and indices over contents, from which keeping them pays off."""
_MAX_NEW = 0.05
"""Share of samples whose content came only once: about the share of further samples that bring a new one."""


@rule(DISTINCT)
def _keep_distinct(case: Case) -> Iterator[Suggestion]:
    """Advise to keep the few different samples of which a much longer dataset consists."""
    seen, length, free = case.evidence.distinct, case.positive("dataset_length"), case.free_memory_bytes
    total = (seen.different or 0) * (over_0(seen.bytes_each) or 0.0)
    stages = [stage for stage in _costly(case) if makes_samples(stage.name) and seen.stage in (None, stage.name)]
    if (
        not case.input_bound
        or not stages
        or not total
        or not length
        or not free
        or total > _MEMORY_SHARE * free
        or not _are_few(seen, length)
    ):
        return
    stage, different = stages[0], number(seen.different or 0)
    which, count = (f"about {different}",) * 2 if seen.seen_once else (f"the {different}", different)
    new = max(seen.seen_once or 0, 1) / (seen.samples or 1)
    yield Suggestion(
        stage=stage.name,
        title=f"Load {which} different samples once, and keep them in memory ({size(total)})",
        why=f"{plural(seen.samples or 0, 'sample')} of different indices had {count} different contents, and "
        f"about {percent(new)} of further ones would bring another. The dataset has {number(length)} indices. "
        f"{cost_in_words(case, stage)}{_together(case, stages)}",
        how=f"in {dataset_of(case)}.__init__: load each one once, before the workers start, into a dict by its path or "
        "key, which they share; or, in each worker, functools.lru_cache on the function that loads",
        evidence={
            "samples": seen.samples,
            "different": seen.different,
            "seen_once": seen.seen_once,
            "bytes_each": seen.bytes_each,
            "dataset_length": length,
            "memory_available_bytes": free,
            "cost_s_per_batch": cost_s(stage),
        },
        frees_stage=len(stages) == 1,
        gain=case.gain_of(stage),
        cause=not has_own_remedy(case, stage),
    )


def _costly(case: Case) -> list[Stage]:
    """Return the stages that clearly cost time and probably throughput, those that limit an input-bound job first."""
    suspects = case.suspects
    others = (stage for stage in case.stages if case.input_bound and stage not in suspects)
    costly = (stage for stage in others if stage.cost_s_per_batch is not None and stage.cost_s_per_batch.low > 0)
    gains = ((stage, stage.gain_if_free) for stage in costly)
    return suspects + [stage for stage, gain in gains if gain and (gain.low > 1 or gain.estimate >= WORTH)]


def _are_few(seen: DistinctSeen, length: float) -> bool:
    samples, different, once = seen.samples or 0, seen.different or 0, seen.seen_once
    enough = samples >= max(_ENOUGH, _TIMES_EACH * different)
    return enough and length >= _TIMES_EACH * different and once is not None and once <= _MAX_NEW * samples


def _together(case: Case, stages: list[Stage]) -> str:
    """Return a sentence on another stage that costs throughput; empty if none does."""
    other = next((stage for stage in case.held_by if stage not in stages), None)
    if other is None:
        return ""
    return f" {other.name} costs throughput, too: with all of the input free, at most {gain(case.headroom)}."


RULES = (_cache_dataset, _keep_distinct)

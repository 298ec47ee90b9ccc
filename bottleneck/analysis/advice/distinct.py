"""Few different samples behind many indices: a short list of files that a dataset repeats."""

from __future__ import annotations

from collections.abc import Iterator

from bottleneck.analysis.advice.amplified import MEMORY_SHARE
from bottleneck.analysis.advice.case import WORTH, Case, Suggestion, rule
from bottleneck.analysis.advice.samples import cost_in_words, cost_s, dataset_of
from bottleneck.analysis.edits.edits import DISTINCT
from bottleneck.analysis.settings import over_0
from bottleneck.results.evidence import DistinctSeen
from bottleneck.results.format import gain, number, percent, plural, size
from bottleneck.results.names import makes_samples
from bottleneck.results.records import Stage

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
        or total > MEMORY_SHARE * free
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
        cause=True,
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


RULES = (_keep_distinct,)

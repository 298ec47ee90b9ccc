"""The number of workers: doubled while that pays, then once between; fewer, and none, where more do not pay."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch.utils.data import IterableDataset

from bottleneck.job.pipeline import Pipeline
from bottleneck.results.tuning import Outcome
from bottleneck.tuning.change import Change, Here

_BEYOND_CORES = 4
"""Times the cores that there may be workers, where they mostly wait."""


def _why_not(here: Here) -> str | None:
    if isinstance(here.loader.dataset, IterableDataset):
        return "the dataset is a stream, which divides itself among the workers in a way of its own"
    return None


def next_count(present: int, given: int, judged: Mapping[Any, Outcome], limit: int) -> int | None:
    """The next number of workers to try; None when all has been tried that is worth it.

    Args:
        present: Of the best job so far.
        given: Of the job as it was.
        judged: What became of other numbers.
        limit: The largest number.
    """
    worse = {int(count) for count in judged} | {given}
    worse.discard(present)
    above = min((count for count in worse if count > present), default=None)
    doubled = min(max(1, 2 * present), max(limit, given))
    if above is None and doubled > present:
        return doubled
    if above is not None and above - present > 1 and above >= doubled:
        return (present + above) // 2
    has_grown = any(count < present for count in worse)
    if present > 0 and not has_grown:
        return present // 2
    # Without workers nothing is handed over, which may be better where one of them is worse than two.
    return 0 if 0 < present <= given and 0 not in worse else None


def _next(here: Here, judged: Mapping[Any, Outcome]) -> int | None:
    limit = here.cores * (_BEYOND_CORES if here.workers_wait else 1)
    given = here.given.make_loader().num_workers
    return next_count(here.loader.num_workers, given, judged, limit)


def _apply(pipeline: Pipeline, value: int) -> Pipeline:
    return pipeline.replace(num_workers=value)


CHANGES = (
    Change(
        "num_workers",
        _apply,
        on="loader",
        alters="nothing",
        line="DataLoader(..., num_workers={value})",
        advice=("more-workers", "use-workers", "too-many-workers", "no-workers-better", "uneven-samples"),
        why_not=_why_not,
        next_value=_next,
        source="https://docs.pytorch.org/tutorials/recipes/recipes/tuning_guide.html",
    ),
)

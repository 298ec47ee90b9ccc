"""Larger batches: doubled while that pays."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bottleneck.job.pipeline import Pipeline
from bottleneck.results.tuning import Outcome
from bottleneck.tuning.change import Change, Here

_MOST_TIMES = 32
"""Times the batch size of the job, up to which a larger one is tried."""
_FEWEST_BATCHES = 4


def _why_not(here: Here) -> str | None:
    if here.loader.batch_size is None:
        return "the loader does not choose the batches: a batch_sampler or the dataset does"
    return None


def _next(here: Here, judged: Mapping[Any, Outcome]) -> int | None:
    present, given = here.loader.batch_size or 1, here.given.make_loader().batch_size or 1
    doubled = 2 * present
    try:
        fits = len(here.loader.sampler) >= _FEWEST_BATCHES * doubled  # type: ignore[arg-type]  # perhaps no length
    except (TypeError, NotImplementedError):
        fits = True
    return doubled if doubled <= _MOST_TIMES * given and fits and doubled not in judged else None


def _larger(pipeline: Pipeline, value: int) -> Pipeline:
    return pipeline.replace(batch_size=value)


CHANGES = (
    Change(
        "batch_size", _larger, on="step", line="DataLoader(..., batch_size={value})",
        advice=("larger-batch",), why_not=_why_not, next_value=_next,
        source="https://docs.pytorch.org/tutorials/intermediate/tensorboard_profiler_tutorial.html",
    ),
)  # fmt: skip

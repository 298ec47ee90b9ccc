"""Workers that start more quickly, by another start method."""

from __future__ import annotations

import multiprocessing
from collections.abc import Mapping
from typing import Any

from bottleneck.job.inspect import find_handles
from bottleneck.job.loader_args import start_method_of
from bottleneck.job.pipeline import Pipeline
from bottleneck.results.tuning import Outcome
from bottleneck.tuning.change import Change, Here
from bottleneck.tuning.epochs import starts_matter_not

_QUICKEST_FIRST = ("fork", "forkserver", "spawn")


def _quicker(here: Here) -> list[str]:
    present = start_method_of(here.loader)
    there = [method for method in _QUICKEST_FIRST if method in multiprocessing.get_all_start_methods()]
    return there[: there.index(present)] if present in there else []


def _safe(here: Here) -> list[str]:
    """Those that do not give workers what they must not share: a forked one has the files that are open."""
    is_held = bool(find_handles(here.pipeline.dataset))
    return [method for method in _quicker(here) if method != "fork" or not is_held]


def _why_not(here: Here) -> str | None:
    if (why := starts_matter_not(here)) is not None:
        return why
    if not _quicker(here):
        return f"workers start by {start_method_of(here.loader)}, which is the quickest way here"
    return None if _safe(here) else "the dataset holds a file or a connection open, which forked workers would share"


def _next(here: Here, judged: Mapping[Any, Outcome]) -> str | None:
    return next((method for method in _safe(here) if method not in judged), None)


def _start_method(pipeline: Pipeline, value: str) -> Pipeline:
    return pipeline.replace(multiprocessing_context=value)


CHANGES = (
    Change(
        "start_method", _start_method, alters="nothing", line='DataLoader(..., multiprocessing_context="{value}")',
        advice=("spawn-pickling", "persistent-workers"), why_not=_why_not, next_value=_next, whole_epochs=True,
        source="https://docs.python.org/3/library/multiprocessing.html#contexts-and-start-methods",
    ),
)  # fmt: skip

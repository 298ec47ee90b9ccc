"""Gradients that are dropped instead of filled with zeros, in a train step of the user's."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

from bottleneck.job.pipeline import Pipeline
from bottleneck.job.step import with_step_options
from bottleneck.tuning.change import Change, Here


def _why_not(here: Here) -> str | None:
    step = here.pipeline.train_step
    if step is None:
        return "the gradients are set to None already"
    return None if _clearers(here.pipeline) else "the pipeline of this train step names no optimizer and no model"


def _clearers(pipeline: Pipeline) -> list[Any]:
    """What a train step of the user's may clear the gradients with."""
    return [owner for owner in (pipeline.optimizer, pipeline.model) if callable(getattr(owner, "zero_grad", None))]


def _set_to_none(pipeline: Pipeline) -> Pipeline:
    return with_step_options(pipeline, partial(_replaced, _clearers(pipeline)))


@contextmanager
def _replaced(owners: list[Any]) -> Iterator[None]:
    """Meanwhile each `zero_grad`, whatever it is called with, sets the gradients to None."""
    own = [owner for owner in owners if "zero_grad" not in vars(owner)]
    for owner in own:
        owner.zero_grad = _clearing(owner)
    try:
        yield
    finally:
        for owner in own:
            del owner.zero_grad


def _clearing(owner: Any) -> Callable[..., Any]:
    clear = type(owner).zero_grad
    return lambda *_, **__: clear(owner, set_to_none=True)


CHANGES = (
    Change(
        "set_to_none", _set_to_none, on="step", alters="nothing", line="optimizer.zero_grad(set_to_none=True)",
        why_not=_why_not,
        source="https://docs.pytorch.org/tutorials/recipes/recipes/tuning_guide.html",
    ),
)  # fmt: skip

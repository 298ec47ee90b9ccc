"""Floats that are cast before they travel: float64, and float32 where the step computes in 16 bits."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch

from bottleneck.job.pipeline import Pipeline
from bottleneck.results.tuning import Outcome
from bottleneck.tuning.change import Change, Here
from bottleneck.tuning.steps import low_precision
from bottleneck.tuning.travel import no_way_to_save, smaller_on_the_way

_LARGE_SHARE = 0.1
"""Share of a batch from which on a tensor is cast: targets of one number a sample stay as exact as they are."""


@dataclass(frozen=True)
class _Floats:
    """Large tensors of a batch, and the types to cast them from and to."""

    paths: tuple[str, ...]
    given: str
    to: str

    def __str__(self) -> str:
        return self.to


def _large(here: Here, dtype: str) -> tuple[str, ...]:
    least = _LARGE_SHARE * (here.payload.bytes or 0.0)
    return tuple(
        seen.path or "" for seen in here.payload.tensors if seen.dtype == dtype and (seen.bytes or 0.0) > least
    )


def _found(here: Here) -> list[_Floats]:
    """What can be cast here."""
    low = str(low_precision(here)).removeprefix("torch.")
    casts = [("float64", "float32"), *([("float32", low)] if low != "None" else [])]
    return [_Floats(paths, given, to) for given, to in casts if (paths := _large(here, given))]


def _why_not(here: Here) -> str | None:
    if (why := no_way_to_save(here)) is not None:
        return why
    if not here.payload.tensors:
        return "it is not known what a batch holds"
    if _found(here):
        return None
    return "no large tensor of a batch is float64, nor float32 for a step that computes in 16 bits"


def _next(here: Here, judged: Mapping[Any, Outcome]) -> _Floats | None:
    return next((floats for floats in _found(here) if floats not in judged), None)


@dataclass(frozen=True)
class _Cast:
    """Casts tensors at some paths from one type to another."""

    paths: tuple[str, ...]
    given: torch.dtype
    to: torch.dtype

    def __call__(self, path: str, tensor: torch.Tensor) -> torch.Tensor:
        return tensor.to(self.to) if path in self.paths and tensor.dtype is self.given else tensor


def _cast(pipeline: Pipeline, value: _Floats) -> Pipeline:
    given, to = getattr(torch, value.given), getattr(torch, value.to)
    # The step gets the type that it got: what it does next is not known.
    return smaller_on_the_way(pipeline, _Cast(value.paths, given, to), _Cast(value.paths, to, given))


CHANGES = (
    Change(
        "smaller_floats", _cast, on="payload",
        line="# in collate_fn, for the large tensors:\ntensor = tensor.to(torch.{value})",
        advice=("smaller-copy", "smaller-payload", "smaller-handoff"), why_not=_why_not, next_value=_next,
        source="https://docs.pytorch.org/docs/stable/amp.html",
    ),
)  # fmt: skip

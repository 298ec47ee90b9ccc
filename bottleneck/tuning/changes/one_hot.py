"""One-hot rows that travel as the index of their one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch

from bottleneck.job.pipeline import Pipeline
from bottleneck.results.tuning import Outcome
from bottleneck.tuning.change import Change, Here
from bottleneck.tuning.travel import no_way_to_save, own_transfer, smaller_on_the_way

_WORTH_SHARE = 0.1
"""Share of a batch that has to be saved."""


@dataclass(frozen=True)
class _Rows:
    """Where one-hot rows were seen in a batch: in all that was looked at, which need not be all that there are."""

    path: str
    dimensions: int
    classes: int
    dtype: str

    def __str__(self) -> str:
        return f"batch{self.path}"


def _found(here: Here) -> list[_Rows]:
    least = _WORTH_SHARE * (here.payload.bytes or 0.0)
    savings = [saving for saving in here.payload.savings if saving.id == "one-hot"]
    paths = {saving.path for saving in savings if (saving.bytes_saved or 0.0) > least}
    return [
        _Rows(seen.path or "", len(seen.shape), seen.shape[-1], seen.dtype or "")
        for seen in here.payload.tensors
        if seen.path in paths
    ]


def _why_not(here: Here) -> str | None:
    if (why := no_way_to_save(here) or own_transfer(here)) is not None:
        return why
    return None if _found(here) else "no large tensor of a batch is one-hot along its last dimension"


def _next(here: Here, judged: Mapping[Any, Outcome]) -> _Rows | None:
    return next((rows for rows in _found(here) if rows not in judged), None)


@dataclass(frozen=True)
class _Shrink:
    """Sends indices of what is one-hot to its last row, and all else as it is: the step gets the same numbers."""

    rows: _Rows

    def __call__(self, path: str, tensor: torch.Tensor) -> torch.Tensor:
        rows = self.rows
        if path != rows.path or tensor.dim() != rows.dimensions or tensor.shape[-1] != rows.classes:
            return tensor
        ones = tensor == 1
        is_one_hot = bool((ones.sum(-1) == 1).all()) and bool((ones | (tensor == 0)).all())
        return ones.int().argmax(-1).int() if is_one_hot else tensor


@dataclass(frozen=True)
class _Restore:
    rows: _Rows

    def __call__(self, path: str, tensor: torch.Tensor) -> torch.Tensor:
        rows = self.rows
        if path != rows.path or tensor.dim() != rows.dimensions - 1:
            return tensor
        zeros = torch.zeros((*tensor.shape, rows.classes), dtype=getattr(torch, rows.dtype), device=tensor.device)
        return zeros.scatter_(-1, tensor.long().unsqueeze(-1), 1)


def _as_indices(pipeline: Pipeline, value: _Rows) -> Pipeline:
    return smaller_on_the_way(pipeline, _Shrink(value), _Restore(value))


CHANGES = (
    Change(
        "one_hot", _as_indices, on="payload", alters="nothing",
        line="# let __getitem__ return indices for {value}; on the device:\n"
        "rows = torch.nn.functional.one_hot({value}.long(), classes)",
        advice=("smaller-copy", "smaller-payload", "smaller-handoff"), why_not=_why_not, next_value=_next,
        source="https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.one_hot.html",
    ),
)  # fmt: skip

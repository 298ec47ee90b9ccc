"""Tensors that the train step never reads, left out of the batch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch

from bottleneck.job.pipeline import Pipeline
from bottleneck.results.tuning import Outcome
from bottleneck.tuning.change import Change, Here
from bottleneck.tuning.travel import Shrinking, map_tensors, move_of, no_way_to_save, own_transfer

_WORTH_SHARE = 0.02
"""Share of a batch that has to be left out."""


@dataclass(frozen=True)
class _Unread:
    """What the train step did not read while it was watched, with the types of it."""

    dtypes: tuple[tuple[str, str], ...]

    def __str__(self) -> str:
        return ", ".join(f"batch{path}" for path, _ in self.dtypes)


def _unread(here: Here) -> _Unread:
    paths = here.payload.unread or ()
    return _Unread(tuple((str(seen.path), str(seen.dtype)) for seen in here.payload.tensors if seen.path in paths))


def _why_not(here: Here) -> str | None:
    if (why := no_way_to_save(here) or own_transfer(here)) is not None:
        return why
    total, unread = here.payload.bytes or 0.0, here.payload.unread_bytes or 0.0
    if here.payload.unread is None:
        return "it is not known what the train step reads"
    if unread >= total:
        return "the train step reads nothing of a batch: it stands for another one"
    if unread < _WORTH_SHARE * total:
        return "the train step reads all of a batch" if not unread else "what it does not read is little of a batch"
    return None


def _next(here: Here, judged: Mapping[Any, Outcome]) -> _Unread | None:
    unread = _unread(here)
    return None if unread in judged else unread


@dataclass(frozen=True)
class _Shapes:
    """Sends the shape of what is left out: the step may look at that."""

    unread: _Unread

    def __call__(self, path: str, tensor: torch.Tensor) -> torch.Tensor:
        return torch.tensor(tensor.shape) if path in dict(self.unread.dtypes) else tensor


def _left_out(pipeline: Pipeline, value: _Unread) -> Pipeline:
    dtypes, move = dict(value.dtypes), move_of(pipeline)

    def to_device(batch: Any, device: Any) -> Any:
        shapes: dict[str, list[int]] = {}

        def note(path: str, tensor: torch.Tensor) -> torch.Tensor:
            if path in dtypes:
                shapes[path] = tensor.tolist()  # in host memory: on the device it would have to be waited for
            return tensor

        def fill(path: str, tensor: torch.Tensor) -> torch.Tensor:
            if path not in shapes:
                return tensor
            return torch.zeros((), dtype=getattr(torch, dtypes[path]), device=device).expand(shapes[path])

        map_tensors(note, batch)
        return map_tensors(fill, move(batch, device))

    collate = Shrinking(pipeline.make_loader().collate_fn, _Shapes(value))
    return pipeline.replace(to_device=to_device, collate_fn=collate)


CHANGES = (
    Change(
        "leave_out", _left_out, on="payload", alters="nothing", line="# leave {value} out of what __getitem__ returns",
        advice=("unused-columns",), why_not=_why_not, next_value=_next,
        source="https://huggingface.co/docs/datasets/process#remove",
    ),
)  # fmt: skip

"""Changes to the hand-off: many small tensors of a batch that travel as one."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import torch
from torch.utils.data import get_worker_info

from bottleneck.job import containers
from bottleneck.job.pipeline import Pipeline
from bottleneck.loader import trees
from bottleneck.tuner.change import Change, Context

_SMALL_BYTES = 1 << 16
"""Maximum size of a tensor that is packed: a larger one takes longer to copy than to hand over."""


class _Slot:
    """The place of a packed tensor in a batch; no dataclass, since those are containers."""

    def __init__(self, dtype: torch.dtype, number: int) -> None:
        self.dtype = dtype
        self.number = number


class PackedBatch:
    """A batch on its way to another process, whose small tensors are parts of one per type; arrives as it was."""

    def __init__(self, batch: Any) -> None:
        groups: dict[torch.dtype, list[torch.Tensor]] = defaultdict(list)

        def pack(leaf: Any) -> Any:
            if type(leaf) is not torch.Tensor or not _is_packed(leaf):
                return leaf
            groups[leaf.dtype].append(leaf)
            return _Slot(leaf.dtype, len(groups[leaf.dtype]) - 1)

        self._template = trees.map_leaves(pack, batch, within=containers.takes_anything)
        self._packed = {
            dtype: (torch.cat([tensor.reshape(-1) for tensor in group]), [tuple(tensor.shape) for tensor in group])
            for dtype, group in groups.items()
        }

    def __reduce__(self) -> tuple[Any, ...]:
        return unpack, (self._template, self._packed)


def _is_packed(tensor: torch.Tensor) -> bool:
    plain = tensor.layout == torch.strided and tensor.device.type == "cpu" and not tensor.requires_grad
    return plain and not tensor.is_quantized and tensor.numel() * tensor.element_size() <= _SMALL_BYTES


def unpack(template: Any, packed: Mapping[torch.dtype, tuple[torch.Tensor, Sequence[tuple[int, ...]]]]) -> Any:
    """Return the batch that was packed; its small tensors share their memory."""
    tensors = {dtype: _divided(row, shapes) for dtype, (row, shapes) in packed.items()}
    restored = partial(_in_slot, tensors)
    return trees.map_leaves(restored, template, within=containers.takes_anything)


def _divided(row: torch.Tensor, shapes: Sequence[tuple[int, ...]]) -> list[torch.Tensor]:
    parts = torch.split(row, [math.prod(shape) for shape in shapes])
    return [part.view(shape) for part, shape in zip(parts, shapes, strict=True)]


def _in_slot(tensors: Mapping[torch.dtype, Sequence[torch.Tensor]], leaf: Any) -> Any:
    return tensors[leaf.dtype][leaf.number] if isinstance(leaf, _Slot) else leaf


class _PackingCollate:
    """Collates, then packs what a worker sends; can be pickled for workers of any start method."""

    def __init__(self, collate: Callable[[Any], Any]) -> None:
        self._collate = collate

    def __call__(self, samples: Any) -> Any:
        batch = self._collate(samples)
        return batch if get_worker_info() is None else PackedBatch(batch)


def _packed(pipeline: Pipeline) -> Pipeline:
    return pipeline.replace(collate_fn=_PackingCollate(pipeline.make_loader().collate_fn))


def _why_not_packed(here: Context) -> str | None:
    if not here.loader.num_workers:
        return "batches are not sent: there are no workers"
    if "many-tensors" not in here.advised:
        return "many small tensors were not seen to take much of the hand-off"
    return None


CHANGES = (
    Change(
        "packed_tensors",
        _packed,
        alters="nothing",
        input_only=True,
        line="rows = torch.cat(parts)  # in collate_fn, for each field: parts is the list of its tensors\n"
        "lengths = torch.tensor([len(part) for part in parts])\n"
        "parts = rows.split(lengths.tolist())  # in the loop, if it needs them one by one",
        advice=("many-tensors",),
        why_not=_why_not_packed,
        source="https://docs.pytorch.org/docs/stable/multiprocessing.html#sharing-strategies",
    ),
)

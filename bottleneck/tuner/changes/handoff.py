"""Changes to the hand-off: many small tensors of a batch that travel as one, and rarer snapshots of a loader."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any

import torch
from torch.utils.data import get_worker_info

from bottleneck.analysis.advice.transfer import is_worth_packing, rare_interval
from bottleneck.job import containers
from bottleneck.job.loader_classes import SNAPSHOT_INTERVAL, snapshot_interval
from bottleneck.job.pipeline import Pipeline
from bottleneck.loader import trees
from bottleneck.measure.evidence.packable import SMALL_BYTES, kind_of
from bottleneck.results.tuning import Outcome
from bottleneck.tuner.change import Change, Context

_Row = tuple[torch.Tensor, list[int] | None]
"""The tensors of a field as one, and their lengths; None for scalars."""


class PackedBatch:
    """A batch on its way to another process, with one tensor for the small ones of each field; arrives as it was."""

    def __init__(self, batch: Any) -> None:
        self._fields: dict[Hashable, list[torch.Tensor]] = {}
        self._numbers: dict[Hashable, int] = {}
        self._order: list[int] = []
        """For each leaf the number of its field; -1 if it is not packed."""
        self._others: list[Any] = []
        self._template = self._pack(batch, ())

    def _pack(self, value: Any, place: tuple[Any, ...]) -> Any:
        """Collect the leaves of a value, and return it with None for each of them."""
        parts = containers.children(value) if containers.takes_anything(value) else None
        if parts is not None:
            packed = [(key, self._pack(part, (*place, "*" if isinstance(key, int) else key))) for key, part in parts]
            return containers.rebuild(value, packed)
        if type(value) is torch.Tensor and _is_packed(value):
            field = (place, kind_of(value))
            self._fields.setdefault(field, []).append(value)
            self._order.append(self._numbers.setdefault(field, len(self._numbers)))
        else:
            self._order.append(-1)
            self._others.append(value)
        return None

    def __reduce__(self) -> tuple[Any, ...]:
        return unpack, (self._template, self._order, self._others, [_as_row(group) for group in self._fields.values()])


def _as_row(tensors: list[torch.Tensor]) -> _Row:
    return (torch.cat(tensors), list(map(len, tensors))) if tensors[0].dim() else (torch.stack(tensors), None)


def _is_packed(tensor: torch.Tensor) -> bool:
    plain = tensor.layout == torch.strided and tensor.device.type == "cpu" and not tensor.requires_grad
    return plain and not tensor.is_quantized and tensor.numel() * tensor.element_size() <= SMALL_BYTES


def unpack(template: Any, order: Sequence[int], others: Sequence[Any], rows: Sequence[_Row]) -> Any:
    """Return the batch that was packed; the small tensors of a field share their memory."""
    fields = [iter(row.unbind() if lengths is None else torch.split(row, lengths)) for row, lengths in rows]
    fields.append(iter(others))  # number -1
    leaves = (next(fields[number]) for number in order)
    return trees.map_leaves(lambda _: next(leaves), template, within=containers.takes_anything)


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
    return None if is_worth_packing(here.payload) else "a batch was not seen to hold many small tensors"


def _with_interval(pipeline: Pipeline, value: int) -> Pipeline:
    changed = pipeline.replace(num_workers=pipeline.make_loader().num_workers)  # with a loader of its own
    setattr(changed.make_loader(), SNAPSHOT_INTERVAL, value)
    return changed


def _why_not_rarer(here: Context) -> str | None:
    return "the loader takes no snapshots in workers" if snapshot_interval(here.loader) is None else None


def _next_interval(here: Context, judged: Mapping[Any, Outcome]) -> int | None:
    rare, present = rare_interval(here.loader.num_workers), snapshot_interval(here.loader) or 0
    return rare if present < rare and rare not in judged else None


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
    Change(
        SNAPSHOT_INTERVAL,
        _with_interval,
        alters="nothing",
        input_only=True,
        line="StatefulDataLoader(..., snapshot_every_n_steps={value})",
        advice=("frequent-snapshots",),
        why_not=_why_not_rarer,
        next_value=_next_interval,
        source="https://docs.pytorch.org/data/main/torchdata.stateful_dataloader.html",
    ),
)

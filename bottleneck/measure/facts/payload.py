"""What one batch holds, and what of it could travel in fewer bytes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import starmap
from typing import Any

import torch

from bottleneck.job import containers
from bottleneck.loader import trees
from bottleneck.results.evidence import Payload, Saving, TensorSeen

_MOST_TENSORS = 50
_MOST_ELEMENTS = 1 << 20
"""Elements of a tensor that are examined."""
_WORTH_SHARE = 0.02
"""Share of the payload from which on a saving is kept."""
_LEVELS = 256
_CHANNELS = (3, 4)
_SPARSE_SHARE = 0.9
_PADDED_SHARE = 0.3
_FEWEST_CLASSES = 3


@dataclass(frozen=True)
class Part:
    """A tensor of a batch.

    Attributes:
        path: Where in the batch, such as `[0]` or `["labels"]`; empty for the batch itself.
        tensor: The tensor.
    """

    path: str
    tensor: torch.Tensor

    @property
    def nbytes(self) -> int:
        """Bytes that it takes."""
        return self.tensor.numel() * self.tensor.element_size()


def describe_payload(batch: Any, model: Any = None) -> Payload:
    """Describe a batch: its tensors, and what could be saved of them, the largest saving first.

    Args:
        batch: A batch in host memory, as the loader gives it.
        model: The model that it is for, whose precision is looked at; None: unknown.
    """
    parts = list(parts_of(batch))
    total = sum(part.nbytes for part in parts)
    found = [saving for part in parts if (saving := _find_saving(part, model)) is not None]
    savings = sorted((s for s in found if _saved(s) > _WORTH_SHARE * total), key=_saved, reverse=True)
    return Payload(
        bytes=total,
        tensor_count=len(parts),
        tensors=tuple(
            TensorSeen(path=p.path, shape=tuple(p.tensor.shape), dtype=_name(p.tensor.dtype), bytes=p.nbytes)
            for p in parts[:_MOST_TENSORS]
        ),
        objects=sum(not isinstance(leaf, torch.Tensor) for leaf in trees.leaves(batch)),
        savings=tuple(savings[:_MOST_TENSORS]),
    )


def _find_saving(part: Part, model: Any) -> Saving | None:
    """Return the largest saving that a tensor allows; None if there is none."""
    tensor = part.tensor
    if tensor.layout != torch.strided or tensor.is_quantized or tensor.device.type != "cpu" or not tensor.numel():
        return None
    values = _first_rows(tensor.detach())
    found = [saving for rule in _RULES if (saving := rule(part, values, model)) is not None]
    return max(found, key=_saved, default=None)


def _saved(saving: Saving) -> float:
    return saving.bytes_saved or 0.0


def parts_of(value: Any) -> Iterator[Part]:
    """Yield the tensors of a batch, each with its path."""
    return starmap(Part, containers.tensors(value))


def _first_rows(tensor: torch.Tensor) -> torch.Tensor:
    """Return as many whole rows as may be examined."""
    if tensor.dim() < 2:
        return tensor.flatten()[:_MOST_ELEMENTS]
    return tensor[: max(1, _MOST_ELEMENTS // tensor[0].numel())]


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


# --- rules -------------------------------------------------------------------------------------------------


def _saving(part: Part, id_: str, what: str, how: str, bytes_saved: int) -> Saving:
    return Saving(id=id_, path=part.path, what=what, how=how, bytes_saved=bytes_saved)


def _as_float32(part: Part, _: torch.Tensor, __: Any) -> Saving | None:
    if part.tensor.dtype != torch.float64:
        return None
    what = "float64, which models hardly ever need"
    return _saving(part, "float64", what, "batch.float() in collate_fn", part.nbytes // 2)


def _as_levels(part: Part, values: torch.Tensor, _: Any) -> Saving | None:
    """Find floats that hold at most 256 different values, as pixels do that were decoded from bytes.

    Of images each channel is looked at by itself: they are normalised by different numbers.
    """
    if not values.is_floating_point() or values.element_size() < 2 or values.numel() < 4 * _LEVELS:
        return None
    levels, each = torch.unique(values).numel(), ""
    if levels > _LEVELS and values.dim() == 4 and values.shape[1] in _CHANNELS and values[:, 0].numel() >= 4 * _LEVELS:
        levels, each = max(torch.unique(values[:, number]).numel() for number in range(values.shape[1])), " a channel"
    if levels > _LEVELS or levels <= 2:
        return None
    convert = ".float().div_(255)" if not each else ".float(), and normalise there"
    return _saving(
        part,
        "few-levels",
        f"{_name(part.tensor.dtype)} with {levels} different values{each}",
        f"send uint8 and convert on the device: batch.to(device){convert}",
        part.nbytes - part.tensor.numel(),
    )


def _as_bits(part: Part, values: torch.Tensor, _: Any) -> Saving | None:
    """Find masks: zeros and ones in a type of more than a byte."""
    if part.tensor.element_size() == 1 or values.numel() < _LEVELS:
        return None
    if not bool(((values == 0) | (values == 1)).all()):
        return None
    if _is_one_hot(values):
        return _saving(
            part,
            "one-hot",
            f"one-hot rows of {values.shape[-1]}",
            "send the indices: batch.argmax(-1), and torch.nn.functional.one_hot on the device",
            part.nbytes - 8 * (part.tensor.numel() // part.tensor.shape[-1]),
        )
    saved = part.nbytes - part.tensor.numel()
    return _saving(part, "mask", "zeros and ones only", "send a bool mask: batch.bool()", saved)


def _is_one_hot(values: torch.Tensor) -> bool:
    if values.dim() < 2 or values.shape[-1] < _FEWEST_CLASSES:
        return False
    return bool((values.sum(-1) == 1).all())


def _as_sparse(part: Part, values: torch.Tensor, _: Any) -> Saving | None:
    zeros = 1 - int(torch.count_nonzero(values)) / values.numel()
    if zeros < _SPARSE_SHARE or values.numel() < _LEVELS or zeros == 1.0:
        return None
    kept = part.tensor.numel() * (1 - zeros) * (part.tensor.element_size() + 8)
    return _saving(
        part, "mostly-zero", f"{zeros:.0%} zeros", "send it sparse: batch.to_sparse()", max(0, part.nbytes - int(kept))
    )


def _as_packed(part: Part, values: torch.Tensor, _: Any) -> Saving | None:
    """Find rows that end in one and the same value: sequences padded to the longest of them."""
    if values.dim() != 2 or values.shape[1] < 8 or len(values) < 2 or values.is_floating_point():
        return None
    padding = values[:, -1].mode().values
    filled = (values != padding).flip(1).cumsum(1).clamp(max=1).sum(1)
    share = 1 - float(filled.sum()) / values.numel()
    if share < _PADDED_SHARE:
        return None
    return _saving(
        part,
        "padding",
        f"{share:.0%} of it is padding",
        "batches of like length: sort by length within a window, or pack several into one row",
        int(share * part.nbytes),
    )


def _as_half(part: Part, _: torch.Tensor, model: Any) -> Saving | None:
    if part.tensor.dtype != torch.float32 or not isinstance(model, torch.nn.Module):
        return None
    kinds = {parameter.dtype for parameter in model.parameters() if parameter.is_floating_point()}
    if len(kinds) != 1 or not kinds <= {torch.bfloat16, torch.float16}:
        return None
    half = _name(next(iter(kinds)))
    return _saving(
        part, "half-model", f"float32 for a model in {half}", f"batch.to(torch.{half}) in collate_fn", part.nbytes // 2
    )


_RULES: tuple[Callable[[Part, torch.Tensor, Any], Saving | None], ...] = (
    _as_float32, _as_levels, _as_bits, _as_sparse, _as_packed, _as_half,
)  # fmt: skip

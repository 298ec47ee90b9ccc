"""What one batch holds, and what of it could travel in fewer bytes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch

from bottleneck.job import containers
from bottleneck.loader import trees
from bottleneck.results import evidence
from bottleneck.results.evidence import Payload, TensorSeen

_MOST_TENSORS = 50
_LOOKED_AT = 1 << 20
"""Elements of a tensor that are looked at; enough to tell, and quick."""
_WORTH_SHARE = 0.02
"""Share of the payload that a saving must have to be told."""
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


@dataclass(frozen=True)
class Saving:
    """What a tensor could travel as.

    Attributes:
        id: Which kind of saving.
        what: What was seen, for people.
        how: A line of code.
        bytes_saved: Of one batch.
    """

    id: str
    what: str
    how: str
    bytes_saved: int


def describe_payload(batch: Any, model: Any = None) -> Payload:
    """Describe a batch: its tensors, and what could be saved of them, the largest saving first.

    Args:
        batch: A batch in host memory, as the loader gives it.
        model: The model that it is for, whose precision is looked at; None: unknown.
    """
    parts = list(parts_of(batch))
    total = sum(part.nbytes for part in parts)
    savings = [(part, saving) for part in parts if (saving := find_saving(part, model)) is not None]
    savings = [(part, saving) for part, saving in savings if saving.bytes_saved > _WORTH_SHARE * total]
    savings.sort(key=lambda found: found[1].bytes_saved, reverse=True)
    return Payload(
        bytes=total,
        tensor_count=len(parts),
        tensors=tuple(
            TensorSeen(path=p.path, shape=tuple(p.tensor.shape), dtype=_name(p.tensor.dtype), bytes=p.nbytes)
            for p in parts[:_MOST_TENSORS]
        ),
        objects=sum(not isinstance(leaf, torch.Tensor) for leaf in trees.leaves(batch)),
        savings=tuple(
            evidence.Saving(id=s.id, path=p.path, what=s.what, how=s.how, bytes_saved=s.bytes_saved)
            for p, s in savings[:_MOST_TENSORS]
        ),
    )


def find_saving(part: Part, model: Any = None) -> Saving | None:
    """Return the largest saving that a tensor allows; None if there is none."""
    tensor = part.tensor
    if tensor.layout != torch.strided or tensor.is_quantized or tensor.device.type != "cpu" or not tensor.numel():
        return None
    looked_at = _look_at(tensor)
    found = [saving for rule in _RULES if (saving := rule(part, looked_at, model)) is not None]
    return max(found, key=lambda saving: saving.bytes_saved, default=None)


def parts_of(value: Any, path: str = "") -> Iterator[Part]:
    """Yield the tensors of a batch, each with its path."""
    if isinstance(value, torch.Tensor):
        yield Part(path, value)
        return
    keyed = isinstance(value, dict)
    for key, child in containers.children(value) or ():
        step = f"[{key!r}]" if isinstance(key, int) or keyed else f".{key}"
        yield from parts_of(child, f"{path}{step}")


def _look_at(tensor: torch.Tensor) -> torch.Tensor:
    """Return a tensor of whole rows that has few enough elements to be looked at."""
    if tensor.dim() < 2 or tensor.numel() <= _LOOKED_AT:
        return tensor.detach().flatten()[:_LOOKED_AT] if tensor.dim() < 2 else tensor.detach()
    row = tensor[0].numel()
    return tensor.detach()[: max(1, _LOOKED_AT // max(1, row))]


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


# --- rules -------------------------------------------------------------------------------------------------


def _as_float32(part: Part, _: torch.Tensor, __: Any) -> Saving | None:
    if part.tensor.dtype != torch.float64:
        return None
    return Saving("float64", "float64, which models hardly ever need", "batch.float() in collate_fn", part.nbytes // 2)


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
    return Saving(
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
        return Saving(
            "one-hot",
            f"one-hot rows of {values.shape[-1]}",
            "send the indices: batch.argmax(-1), and torch.nn.functional.one_hot on the device",
            part.nbytes - 8 * (part.tensor.numel() // part.tensor.shape[-1]),
        )
    return Saving("mask", "zeros and ones only", "send a bool mask: batch.bool()", part.nbytes - part.tensor.numel())


def _is_one_hot(values: torch.Tensor) -> bool:
    if values.dim() < 2 or values.shape[-1] < _FEWEST_CLASSES:
        return False
    return bool((values.sum(-1) == 1).all())


def _as_sparse(part: Part, values: torch.Tensor, _: Any) -> Saving | None:
    zeros = 1 - int(torch.count_nonzero(values)) / values.numel()
    if zeros < _SPARSE_SHARE or values.numel() < _LEVELS or zeros == 1.0:
        return None
    kept = part.tensor.numel() * (1 - zeros) * (part.tensor.element_size() + 8)
    return Saving(
        "mostly-zero", f"{zeros:.0%} zeros", "send it sparse: batch.to_sparse()", max(0, part.nbytes - int(kept))
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
    return Saving(
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
    return Saving(
        "half-model", f"float32 for a model in {half}", f"batch.to(torch.{half}) in collate_fn", part.nbytes // 2
    )


_RULES: tuple[Callable[[Part, torch.Tensor, Any], Saving | None], ...] = (
    _as_float32, _as_levels, _as_bits, _as_sparse, _as_packed, _as_half,
)  # fmt: skip

"""Contents of one batch, possible savings in its bytes, and the parts that the train step never reads."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import starmap
from typing import Any

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from bottleneck.job import containers
from bottleneck.loader import trees
from bottleneck.measure.evidence.packable import find_packable
from bottleneck.measure.evidence.pickled import ObjectReads
from bottleneck.results.evidence import Payload, Saving, TensorSeen
from bottleneck.results.format import percent

_MAX_TENSORS = 50
_MAX_ELEMENTS = 1 << 20
"""Elements of a tensor that are examined."""
_WORTH_SHARE = 0.02
"""Share of the payload above which a saving is kept."""
_LEVELS = 256
_CHANNELS = (3, 4)
_PADDED_SHARE = 0.3
_MIN_PLACES = 8
_SPARSE = 0.5
"""Empty places over filled ones above which a row is sparse, not padded."""
_MIN_CLASSES = 3
_WATCHED_STEPS = 2
_LITTLE_S = 0.5
_MOVES = frozenset(
    {
        "_to_copy",
        "to",
        "cuda",
        "cpu",
        "clone",
        "detach",
        "alias",
        "pin_memory",
        "_pin_memory",
        "contiguous",
        "lift_fresh",
        "requires_grad_",
        "record_stream",
    }
)
"""Operations that only move a tensor."""
_LOOKS = frozenset(
    {
        "__get__",
        "size",
        "dim",
        "numel",
        "element_size",
        "is_pinned",
        "is_contiguous",
        "type",
        "stride",
        "data_ptr",
        "is_floating_point",
        "untyped_storage",
        "__len__",
        "get_device",
        "nelement",
    }
)
"""Operations that read a property of a tensor, not its content."""


@dataclass(frozen=True)
class Part:
    """A tensor of a batch.

    Attributes:
        path: Place in the batch, such as `[0]` or `["labels"]`; empty for the batch itself.
        tensor: The tensor.
    """

    path: str
    tensor: torch.Tensor

    @property
    def nbytes(self) -> int:
        """Bytes that it takes."""
        return self.tensor.numel() * self.tensor.element_size()


def describe_payload(batch: Any) -> Payload:
    """Describe a batch: its tensors, and possible savings, the largest first.

    Args:
        batch: A batch in host memory, as the loader returns it.
    """
    parts = list(parts_of(batch))
    total = sum(part.nbytes for part in parts)
    found = [saving for part in parts if (saving := _find_saving(part)) is not None]
    savings = sorted((s for s in found if _saved(s) > _WORTH_SHARE * total), key=_saved, reverse=True)
    packable, saved = find_packable((part.path, part.tensor) for part in parts)
    return Payload(
        bytes=total,
        tensor_count=len(parts),
        tensors=tuple(
            TensorSeen(path=p.path, shape=tuple(p.tensor.shape), dtype=_name(p.tensor.dtype), bytes=p.nbytes)
            for p in parts[:_MAX_TENSORS]
        ),
        objects=sum(not isinstance(leaf, torch.Tensor) for leaf in trees.leaves(batch)),
        savings=tuple(savings[:_MAX_TENSORS]),
        packable=packable,
        packed_tensor_count=len(parts) - saved if packable else None,
    )


def _find_saving(part: Part) -> Saving | None:
    """Return the largest saving that a tensor allows; None if there is none."""
    tensor = part.tensor
    if tensor.layout != torch.strided or tensor.is_quantized or tensor.device.type != "cpu" or not tensor.numel():
        return None
    values = tensor.detach()
    values = (
        values.flatten()[:_MAX_ELEMENTS] if values.dim() < 2 else values[: max(1, _MAX_ELEMENTS // values[0].numel())]
    )
    found = [saving for rule in _RULES if (saving := rule(part, values)) is not None]
    return max(found, key=_saved, default=None)


def _saved(saving: Saving) -> float:
    return saving.bytes_saved or 0.0


def parts_of(value: Any) -> Iterator[Part]:
    """Yield the tensors of a batch, each with its path."""
    return starmap(Part, containers.tensors(value))


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


# --- rules -------------------------------------------------------------------------------------------------


def _saving(part: Part, id_: str, what: str, how: str, bytes_saved: int) -> Saving:
    return Saving(id=id_, path=part.path, what=what, how=how, bytes_saved=bytes_saved)


def _as_float32(part: Part, _: torch.Tensor) -> Saving | None:
    if part.tensor.dtype != torch.float64:
        return None
    what = "float64, which models hardly ever need"
    return _saving(part, "float64", what, "batch.float() in collate_fn", part.nbytes // 2)


def _as_levels(part: Part, values: torch.Tensor) -> Saving | None:
    """Find floats with at most 256 different values, such as pixels decoded from bytes.

    Channels of images are examined separately: they are normalised by different numbers.
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


def _as_bits(part: Part, values: torch.Tensor) -> Saving | None:
    """Find masks: zeros and ones in a type of more than a byte."""
    if part.tensor.element_size() == 1 or values.numel() < _LEVELS:
        return None
    if not bool(((values == 0) | (values == 1)).all()):
        return None
    if values.dim() > 1 and values.shape[-1] >= _MIN_CLASSES and bool((values.sum(-1) == 1).all()):
        return _saving(
            part,
            "one-hot",
            f"one-hot rows of {values.shape[-1]}",
            "send the indices: batch.argmax(-1), and torch.nn.functional.one_hot on the device",
            part.nbytes - 8 * (part.tensor.numel() // part.tensor.shape[-1]),
        )
    saved = part.nbytes - part.tensor.numel()
    return _saving(part, "mask", "zeros and ones only", "send a bool mask: batch.bool()", saved)


def _as_packed(part: Part, values: torch.Tensor) -> Saving | None:
    """Find rows that end in the same value: sequences padded to the longest of them, or to a fixed length."""
    if values.dim() not in (2, 3) or values.shape[1] < _MIN_PLACES or len(values) < 2:
        return None
    padding = values[:, -1].flatten().mode().values
    empty = (values == padding).reshape(*values.shape[:2], -1).all(-1)
    lengths = (~empty).flip(1).cumsum(1).clamp(max=1).sum(1)
    filled = int(lengths.sum())
    share = 1 - filled / empty.numel()
    if not filled or share < _PADDED_SHARE or int(empty.sum()) - (empty.numel() - filled) > _SPARSE * filled:
        return None
    longest = int(lengths.max()) / values.shape[1]
    how = (
        "sort by length within windows of some batches (a batch_sampler; transformers: group_by_length=True), or pack "
        "several samples into one row"
    )
    if 1 - longest > _PADDED_SHARE:
        how = f"pad to the longest sample of the batch, which has {percent(longest)} of this length; then {how}"
    return _saving(part, "padding", f"{share:.0%} of it is padding", how, int(share * part.nbytes))


_RULES: tuple[Callable[[Part, torch.Tensor], Saving | None], ...] = (_as_float32, _as_levels, _as_bits, _as_packed)


# --- tensors that are never read ----------------------------------------------------------------------------


class WatchedStep:
    """A train step that notes, in a few of its calls, which tensors and which objects of the batch it reads.

    A tensor counts as read when any operation of PyTorch except a copy gets it, in Python or below. Code that accesses
    the memory of a tensor without PyTorch goes unnoticed. The first call is never watched: it shows if the step
    compiles itself, and compiled code is not watched, since it would have to be compiled again.

    Args:
        batches_ahead: Calls after which a batch may still be waiting to be read.
    """

    def __init__(
        self, step: Callable[[Any], Any], clock: Callable[[], float] = time.perf_counter, batches_ahead: int = 0
    ) -> None:
        self._step = step
        self._clock = clock
        self._fewest = 1 + batches_ahead
        self._most = _WATCHED_STEPS + batches_ahead
        self._last_s = 0.0
        self._calls = self._watched = 0
        self._refused = False
        self._seen: set[str] = set()
        self._reads = _Reads()
        self._objects = ObjectReads()

    def __call__(self, batch: Any) -> Any:
        started_s = self._clock()
        try:
            return self._call(batch)
        finally:
            self._last_s = self._clock() - started_s

    def _call(self, batch: Any) -> Any:
        self._calls += 1
        if self._refused or not 1 < self._calls <= 1 + self._most or has_compiled():
            return self._step(batch)
        parts = list(parts_of(batch))
        self._reads.add(parts)
        self._objects.add(batch)
        try:
            with _Functions(self._reads), _Operations(self._reads), self._objects:
                result = self._step(batch)
        except Exception:  # noqa: BLE001 - some operations refuse to be watched; the user's own errors recur
            self._refused = True
            self._seen = set()
            return self._step(batch)
        self._seen |= {part.path for part in parts}
        self._watched += 1
        return result

    def catch_up(self, serve: Callable[[], Any]) -> None:
        """Run more steps, with batches on the device, if too few were watched so far and they take little time."""
        for _ in range(max(0, 1 + self._fewest - self._calls)):
            if self._last_s < _LITTLE_S:
                with suppress(Exception):  # errors recur where they are explained to the user
                    self(serve())

    def add_unread(self, payload: Payload, batch: Any) -> Payload:
        """Return the payload with the tensors and the objects that were not read.

        Args:
            payload: Contents of a batch.
            batch: A batch of the loader. If the transfer to the device returns a different structure, nothing is known.
        """
        parts = list(parts_of(batch))
        # A loop that seems to read nothing at all reads it later, or in a way that goes unnoticed.
        known = self._reads.read and self._watched >= self._fewest
        if not known or {part.path for part in parts} != self._seen:
            return payload
        left = [part for part in parts if part.path not in self._reads.read]
        return replace(
            payload,
            unread=tuple(part.path for part in left),
            unread_bytes=sum(part.nbytes for part in left),
            pickled=tuple(replace(seen, unread=self._objects.is_unread(seen.path or "")) for seen in payload.pickled),
        )


def has_compiled() -> bool:
    """Return True if `torch.compile` has compiled anything in this process."""
    counters = getattr(sys.modules.get("torch._dynamo.utils"), "counters", None)
    return bool(counters and counters.get("frames"))


class _Reads:
    """Notes the tensors that operations get."""

    def __init__(self) -> None:
        self.read: set[str] = set()
        self._paths: dict[int, set[str]] = {}
        self._kept: list[Any] = []

    def add(self, parts: Sequence[Part]) -> None:
        """Watch the tensors of one more batch; a loop that looks ahead reads them in a later call."""
        for part in parts:
            self._belongs(part.tensor, {part.path})

    def call(self, name: str, func: Any, args: Any, kwargs: Any) -> Any:
        """Call an operation, and note the tensors that it reads."""
        output = func(*args, **(kwargs or {}))
        if name in _LOOKS:
            return output
        paths = {path for leaf in tree_leaves((args, kwargs)) for path in self._paths.get(_storage(leaf), ())}
        if name not in _MOVES:
            self.read |= paths
        elif paths:
            for leaf in tree_leaves(output):
                self._belongs(leaf, paths)
        return output

    def _belongs(self, value: Any, paths: set[str]) -> None:
        key = _storage(value)
        if key:
            self._kept.append(value)  # so that its memory is not reused
            self._paths.setdefault(key, set()).update(paths)


def _storage(value: Any) -> int:
    """Return a key for the memory of a tensor; 0 for anything else."""
    if not isinstance(value, torch.Tensor):
        return 0
    try:
        # Through the base class, to bypass subclasses and our own modes.
        with torch._C.DisableTorchFunction():
            return int(value.untyped_storage()._cdata)
    except (RuntimeError, NotImplementedError):  # sparse, or without a single storage
        return 0


class _Functions(TorchFunctionMode):
    """Notes calls in Python, including those without an operation, such as `numpy()`."""

    def __init__(self, reads: _Reads) -> None:
        super().__init__()
        self._reads = reads

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return self._reads.call(str(getattr(func, "__name__", "")), func, args, kwargs)


class _Operations(TorchDispatchMode):  # type: ignore[no-untyped-call]  # has no annotations
    """Notes operations below Python."""

    def __init__(self, reads: _Reads) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # has no annotations
        self._reads = reads

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = str(getattr(getattr(func, "overloadpacket", func), "__name__", ""))
        return self._reads.call(name, func, args, kwargs)

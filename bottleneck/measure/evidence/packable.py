"""Places of a batch that hold a tensor for each sample: how many tensors would do."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Hashable, Iterable, Sequence
from typing import TypeVar

import torch

from bottleneck.results.evidence import PackableSeen

_T = TypeVar("_T")
SMALL_BYTES = 1 << 16
"""Mean bytes of the tensors of a place, up to which a tensor takes longer to hand over than its bytes."""
_MAX_PLACES = 20
_INDEX = re.compile(r"\[\d+\]")


def by_place(found: Iterable[tuple[str, _T]]) -> dict[str, list[_T]]:
    """Group values by their paths in a batch, regardless of indices; those that vary are `*` in the keys."""
    groups: dict[str, list[tuple[str, _T]]] = defaultdict(list)
    for path, value in found:
        groups[_INDEX.sub("[*]", path)].append((path, value))
    return {_common([path for path, _ in group]): [value for _, value in group] for group in groups.values()}


def _common(paths: Sequence[str]) -> str:
    """Return what paths that differ in their indices have in common."""
    indices = zip(*(_INDEX.findall(path) for path in paths), strict=True)
    kept = iter([index[0] if len(set(index)) == 1 else "[*]" for index in indices])
    return _INDEX.sub(lambda _: next(kept), paths[0])


def find_packable(tensors: Iterable[tuple[str, torch.Tensor]]) -> tuple[tuple[PackableSeen, ...], int]:
    """Return the places of several small tensors that `torch.cat` takes, and the number of tensors that it saves."""
    found: list[PackableSeen] = []
    saved, divided = 0, set()
    for path, group in by_place(tensors).items():
        small = sum(map(_nbytes, group)) <= SMALL_BYTES * len(group)
        if len(group) < 2 or not small or len({kind_of(tensor) for tensor in group}) > 1:
            continue
        found.append(PackableSeen(path=path, tensors=len(group), bytes=sum(map(_nbytes, group))))
        lengths = tuple(len(tensor) for tensor in group if tensor.dim())
        saved += len(group) - 1
        divided |= {lengths} if len(set(lengths)) > 1 else set()
    found.sort(key=lambda place: place.tensors or 0, reverse=True)
    return tuple(found[:_MAX_PLACES]), saved - len(divided)


def _nbytes(tensor: torch.Tensor) -> int:
    return tensor.numel() * tensor.element_size()


def kind_of(tensor: torch.Tensor) -> Hashable:
    """Return what has to be equal for tensors to become one."""
    return tensor.dtype, tensor.layout, tensor.device, tensor.dim(), tensor.shape[1:]

"""Objects with `state_dict` and `load_state_dict`: what lies where the search does not reach."""

from __future__ import annotations

import copy
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch


@dataclass(frozen=True)
class _Saved:
    """A tensor's content in host memory, and where it belongs."""

    content: torch.Tensor
    device: torch.device


class StateSnapshot:
    """The state of an object as its `state_dict` gives it; tensors that are kept already are not copied again.

    The object's attributes are put back before. Its state is loaded only where that was not enough, as loading may do
    more than setting it.
    """

    def __init__(self, owner: Any, what: str, is_kept: Callable[[torch.Tensor], bool]) -> None:
        self.what = what
        self._owner = owner
        self._saved = _keep(owner.state_dict(), is_kept)

    def restore(self) -> None:
        if not _is_alike(self._owner.state_dict(), self._saved):
            self._owner.load_state_dict(_release(self._saved))


def _keep(value: Any, is_kept: Callable[[torch.Tensor], bool]) -> Any:
    if isinstance(value, torch.Tensor):
        return value if is_kept(value) else _Saved(value.detach().to("cpu", copy=True), value.device)
    return _map(value, lambda item: _keep(item, is_kept))


def _release(saved: Any) -> Any:
    """A copy to load: the object may hold on to what it is given, and the restoring may be repeated."""
    if isinstance(saved, torch.Tensor):
        return saved
    if isinstance(saved, _Saved):
        return saved.content.to(saved.device, copy=True)
    return _map(saved, _release)


def _map(value: Any, change: Callable[[Any], Any]) -> Any:
    """Rebuild nested containers, with deep copies of whatever else is in them."""
    if isinstance(value, Mapping):
        entries = {key: change(item) for key, item in value.items()}
        return OrderedDict(entries) if isinstance(value, OrderedDict) else entries
    if type(value) in (list, tuple, set):
        return type(value)(change(item) for item in value)
    return copy.deepcopy(value)


def _is_alike(value: Any, saved: Any) -> bool:
    """Whether a state is the saved one; in doubt it is not."""
    if isinstance(value, torch.Tensor):
        content = saved.content if isinstance(saved, _Saved) else saved
        same_kind = isinstance(content, torch.Tensor) and value.dtype == content.dtype
        return same_kind and torch.equal(value.detach().to(content.device), content)
    if isinstance(value, Mapping):
        same_keys = isinstance(saved, Mapping) and list(value) == list(saved)
        return same_keys and all(_is_alike(item, saved[key]) for key, item in value.items())
    if isinstance(value, (list, tuple)):
        same_length = isinstance(saved, (list, tuple)) and len(value) == len(saved)
        return same_length and all(_is_alike(*pair) for pair in zip(value, saved, strict=True))
    try:
        return bool(np.array_equal(value, saved) if isinstance(value, np.ndarray) else value == saved)
    except (RuntimeError, ValueError, TypeError):  # a comparison that is no truth value
        return False

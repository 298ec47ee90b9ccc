"""The order of a step: usually from the batch to the model, the backward pass, and the optimizer.

Some loops take their next batch between the forward and the backward pass, or step the optimizer first. The time
between batch and model, or after the optimizer step, is then most of the training. The order shows in the graphs: each
node has a sequence number of its thread, so that a graph which is older than the batch can be recognised.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from typing import Any

import torch

_MAX_STEPS = 16
"""Maximum steps that are observed: the order does not change."""
_MAX_NODES = 10_000


class StepOrder:
    """Record of the order of backward passes and optimizer steps in a few batches."""

    def __init__(self) -> None:
        self.is_usual = True
        """True unless another order was seen."""
        self._looked_at = 0
        self._thread: int | None = None
        self._began = 0
        self._has_stepped = self._ends_with_pass = False

    def begins(self) -> None:
        """Note that the loop gets a batch."""
        if self._looked_at < _MAX_STEPS and self.is_usual:
            self._looked_at += 1
            self._thread, self._began = threading.get_ident(), _next_number()
            self._has_stepped = self._ends_with_pass = False

    def ends(self) -> None:
        """Note that it asks for the next one."""
        if self._thread is not None:
            self._thread = None
            self.is_usual &= not (self._has_stepped and self._ends_with_pass)

    def passes_back(self, roots: Any) -> None:
        """Note a backward pass, which has begun at some tensors."""
        if threading.get_ident() == self._thread:
            self._ends_with_pass = True
            self.is_usual &= all(first >= self._began for first in _first_numbers(roots))

    def steps(self) -> None:
        """Note a step of an optimizer."""
        if threading.get_ident() == self._thread:
            self._has_stepped, self._ends_with_pass = True, False


def _next_number() -> int:
    number: int = torch.autograd._get_sequence_nr()  # type: ignore[attr-defined]  # torch's own
    return number


def _first_numbers(roots: Any) -> Iterable[int]:
    """Yield a sequence number from the beginning of each graph; the nodes of parameters do not have one of a call."""
    for root in roots if isinstance(roots, tuple | list) else (roots,):
        node, number = getattr(root, "grad_fn", None), None
        for _ in range(_MAX_NODES):
            if node is None:
                break
            number = node._sequence_nr()
            further = (one for one, _ in node.next_functions if one is not None and one.next_functions)
            node = next(further, None)
        if number is not None:
            yield number

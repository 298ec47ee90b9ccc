"""Leaves everything as it was: a diagnosis trains the user's model for a while, and nobody must notice.

Kept are the model (parameters, buffers, gradients, modes), the optimizer, what the train step holds on to,
the loader with its samplers, the dataset's attributes, all random numbers, and the process-wide settings.
Everything is put back in place, into the same objects, bit for bit, also when the body raises or is
interrupted.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import torch

from bottleneck.measure.preserve.process import (
    SignalHandlers,
    WaitForDevices,
    keep_flags,
    keep_random,
    keep_surroundings,
)
from bottleneck.measure.preserve.restoration import Notes, Restoration
from bottleneck.measure.preserve.search import Search
from bottleneck.measure.preserve.tensors import TensorVault

_NOTHING: Mapping[str, object] = MappingProxyType({})


@dataclass(frozen=True)
class Preserved:
    """What `preserved` hands to its body."""

    _notes: Notes
    saved_bytes: int
    """Host memory that the copies of tensors take."""

    @property
    def notes(self) -> list[str]:
        """Sentences on what could not be kept or put back; complete when the body has ended."""
        return self._notes.sentences


@contextmanager
def preserved(
    *,
    model: Any = None,
    optimizer: Any = None,
    train_step: Any = None,
    loader: Any = None,
    dataset: Any = None,
    device: torch.device | str | None = None,
    others: Mapping[str, object] = _NOTHING,
) -> Iterator[Preserved]:
    """Keep everything on entry and put it back on exit, whatever happens in between.

    Tensors are copied to host memory. From the dataset and the loader nothing large is copied: of their
    attributes the identity is kept, and the content of small containers, generators and small tensors.
    A Ctrl-C during the restoring takes effect when everything is back.

    Args:
        model: The user's `nn.Module`.
        optimizer: The user's.
        train_step: What it closes over is searched for state.
        loader: The user's DataLoader.
        dataset: The user's.
        device: Of the diagnosis; its random numbers are kept even if it has not been used yet.
        others: Further objects that the diagnosis calls, by a name for sentences: {'the loss': loss_fn}.

    Raises:
        MeasurementError: The copies would not fit into the free host memory, or new gradients not on the device next
            to the ones that there are; nothing has been touched.
    """
    notes = Notes()
    restoration, saved_bytes = _keep(
        notes,
        torch.device(device) if device is not None else torch.device("cpu"),
        {"the model": model, "the optimizer": optimizer},
        {"the loader": loader, "the dataset": dataset},
        {"the train step": train_step, **others},
    )
    try:
        yield Preserved(notes, saved_bytes)
    finally:
        try:
            restoration.run()
        finally:
            restoration.run()  # for an interrupt before the first call took control; else it returns at once


def _keep(
    notes: Notes,
    device: torch.device,
    trained: Mapping[str, object],
    data: Mapping[str, object],
    code: Mapping[str, object],
) -> tuple[Restoration, int]:
    """Keep all of it; returns how to put it back, and the host memory that it takes, in bytes."""
    signals = SignalHandlers()
    process = [keep_flags(device), *keep_surroundings(), *keep_random(device, notes)]
    vault = TensorVault(notes)
    search = Search(vault, notes)
    for what, value in trained.items():
        search.walk(value, what)
    for what, value in data.items():
        search.walk(value, what, data=True)
    for what, value in code.items():
        search.walk(value, what, own=True)
    vault.save()
    # Loading a state may draw random numbers or warn, so the process goes after it; Ctrl-C works again at the very end.
    snapshots = [WaitForDevices(device), *search.snapshots, *vault.snapshots, *search.states(), *process, signals]
    return Restoration(snapshots, notes), vault.needed_bytes()

"""Tensors as they were: the same objects, on their device, with the same bytes, gradient and flags."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

import torch
from torch.utils._python_dispatch import is_traceable_wrapper_subclass

from bottleneck.errors import MeasurementError
from bottleneck.measure.device import room_on_device
from bottleneck.measure.preserve.restoration import Notes, Snapshot
from bottleneck.measure.system.environment import rank_memory_bytes
from bottleneck.results.format import size

_SHARE_OF_FREE_MEMORY = 0.8
_NOT_KEPT = "could not be copied, and so was not put back after the diagnosis"


@dataclass
class _Bytes:
    """A range of a storage. Bytes rather than values: exact for every dtype, also for overlapping views."""

    what: str
    storage: torch.UntypedStorage
    start: int
    stop: int
    storage_bytes: int
    saved: torch.Tensor | None = None

    @property
    def key(self) -> tuple[object, ...]:
        return (self.storage.device, self.storage.data_ptr(), self.start, self.stop)

    def _view(self) -> torch.Tensor:
        # A tensor of its own, whose version counter is not that of the user's tensor.
        view = torch.empty(0, dtype=torch.uint8, device=self.storage.device)
        return view.set_(self.storage, self.start, (self.stop - self.start,), (1,))

    def save(self) -> None:
        """Copy the range to host memory, where it takes nothing from the device."""
        with torch.no_grad():
            self.saved = self._view().to("cpu", copy=True)

    def restore(self) -> None:
        if self.saved is None:
            return
        if self.storage.nbytes() < self.stop:
            self.storage.resize_(self.storage_bytes)
        with torch.no_grad():
            self._view().copy_(self.saved)


@dataclass
class _Copy:
    """The content of a tensor without one storage, such as a sparse one."""

    what: str
    tensor: torch.Tensor
    saved: torch.Tensor | None = None

    def save(self) -> None:
        with torch.no_grad(), torch._C.DisableTorchFunctionSubclass():
            self.saved = self.tensor.detach().to("cpu", copy=True)

    def restore(self) -> None:
        if self.saved is not None:
            with torch.no_grad(), torch._C.DisableTorchFunctionSubclass():
                self.tensor.copy_(self.saved)


class _Identity:
    """What a tensor is beside its content: class, memory, place in the graph."""

    def __init__(self, tensor: torch.Tensor, what: str) -> None:
        self.what = what
        self._tensor = tensor
        self._class = type(tensor)
        self._is_leaf = tensor.is_leaf
        # An alias of the memory: brings a tensor that was moved back to it, and ties ties again.
        self.alias = tensor.data

    def restore(self) -> None:
        tensor = self._tensor
        if type(tensor) is not self._class:
            tensor.__class__ = self._class  # a lazy parameter that has been materialised
        with torch.no_grad(), torch._C.DisableTorchFunctionSubclass():
            if self._is_leaf and not tensor.is_leaf:
                tensor.detach_()
            if _memory(tensor.data) != _memory(self.alias):
                tensor.data = self.alias


class _Gradient:
    """A leaf's gradient object and whether it wants one; restored after the memory is back."""

    def __init__(self, tensor: torch.Tensor, what: str) -> None:
        self.what = f"the gradient of {what}"
        self._tensor = tensor
        self._requires_grad = tensor.requires_grad
        self.grad = tensor.grad

    def restore(self) -> None:
        with torch._C.DisableTorchFunctionSubclass():
            if self._tensor.requires_grad != self._requires_grad:
                self._tensor.requires_grad_(self._requires_grad)
            if self._tensor.grad is not self.grad:
                self._tensor.grad = self.grad


def inner_tensors(tensor: torch.Tensor) -> list[torch.Tensor]:
    """Return the tensors that one stands for, such as the local one of a DTensor; none for an ordinary tensor."""
    if not is_traceable_wrapper_subclass(tensor):
        return []
    parts = [getattr(tensor, name) for name in tensor.__tensor_flatten__()[0]]
    return [part for part in parts if isinstance(part, torch.Tensor)]  # a device mesh counts as a part, too


def _memory(tensor: torch.Tensor) -> tuple[object, ...]:
    """What tells one piece of memory from another; without a storage only the device and dtype."""
    plain = (tensor.device, tensor.dtype, tensor.layout, type(tensor))
    if tensor.layout is not torch.strided or tensor.is_nested or is_traceable_wrapper_subclass(tensor):
        return plain
    return (*plain, tensor.shape, tensor.stride(), tensor.storage_offset(), tensor.data_ptr())


def _byte_range(tensor: torch.Tensor, storage: torch.UntypedStorage) -> tuple[int, int]:
    """First byte and end of what a strided tensor reaches of its storage."""
    first = int(tensor.storage_offset())
    reach = sum(int((size - 1) * stride) for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
    width = tensor.element_size()
    # Storages can be smaller than the view: two values in a byte, or freed for a while by a sharding wrapper.
    return first * width, min((first + reach + 1) * width, storage.nbytes())


@dataclass
class TensorVault:
    """Collects tensors, then copies them all, so that it can tell first whether there is room."""

    notes: Notes
    _identities: list[Snapshot] = field(default_factory=list)
    _contents: dict[object, _Bytes | _Copy] = field(default_factory=dict)
    _gradients: list[_Gradient] = field(default_factory=list)
    _seen: dict[int, torch.Tensor] = field(default_factory=dict)

    def add(self, tensor: torch.Tensor, what: str) -> None:
        """Keep a tensor, its gradient, and for a wrapper subclass the tensors inside.

        Meta tensors and empty ones have no content, but flags.
        """
        if id(tensor) in self._seen:
            return
        self._seen[id(tensor)] = tensor
        try:
            self._add(tensor, what)
        except Exception as error:  # noqa: BLE001 - tensor subclasses may refuse anything; the rest is kept
            self.notes.add_failure(_NOT_KEPT, what, error)

    def _add(self, tensor: torch.Tensor, what: str) -> None:
        for inner in inner_tensors(tensor):
            self.add(inner, what)
        with torch._C.DisableTorchFunctionSubclass():
            identity = _Identity(tensor, what)
            if tensor.is_leaf:
                gradient = _Gradient(tensor, what)
                self._gradients.append(gradient)
                if gradient.grad is not None:
                    self.add(gradient.grad, gradient.what)
            self._identities.append(identity)
            if not is_traceable_wrapper_subclass(tensor):
                self._add_content(identity.alias, tensor, what)

    def _add_content(self, alias: torch.Tensor, tensor: torch.Tensor, what: str) -> None:
        if alias.is_meta:
            return
        if alias.layout is not torch.strided or alias.is_nested:
            self._contents[id(tensor)] = _Copy(what, tensor)
            return
        if alias.numel() == 0:
            return
        storage = alias.untyped_storage()
        start, stop = _byte_range(alias, storage)
        if stop > start:
            content = _Bytes(what, storage, start, stop, storage.nbytes())
            self._contents.setdefault(content.key, content)

    def holds(self, tensor: torch.Tensor) -> bool:
        """Whether a tensor's memory is put back, perhaps under another tensor object."""
        if tensor.layout is not torch.strided or is_traceable_wrapper_subclass(tensor) or tensor.is_nested:
            return id(tensor) in self._seen
        storage = tensor.untyped_storage()
        return (storage.device, storage.data_ptr(), *_byte_range(tensor, storage)) in self._contents

    def needed_bytes(self) -> int:
        """Host memory that the copies will take; of tensors without one storage only sparse ones count."""
        return sum(
            content.stop - content.start
            if isinstance(content, _Bytes)
            else content.tensor._nnz() * content.tensor.element_size()
            if content.tensor.is_sparse
            else 0
            for content in self._contents.values()
        )

    def _check_gradients(self) -> None:
        """Raise where there is no room on a device for new gradients, next to the ones that are kept there."""
        taken: Counter[torch.device] = Counter()
        for gradient in self._gradients:
            for part in inner_tensors(gradient.grad) or [gradient.grad] if gradient.grad is not None else ():
                taken[part.device] += part.numel() * part.element_size()
        for device, nbytes in taken.items():
            room = room_on_device(device)
            if room is not None and nbytes > room:
                raise MeasurementError(
                    f"The gradients that the model has take {size(nbytes)} of {device}, and stay there as they are; "
                    f"the diagnosis makes new ones, for which {size(room)} are free.",
                    "Call optimizer.zero_grad() before the diagnosis. Or diagnose on the command line: `bottleneck "
                    "diagnose` leaves nothing as it was, as its process ends.",
                )

    def save(self) -> None:
        """Copy the content of everything collected.

        Raises:
            MeasurementError: The copies would not fit into the free host memory, or new gradients not on the device.
        """
        self._check_gradients()
        needed, free = self.needed_bytes(), rank_memory_bytes()
        if needed > _SHARE_OF_FREE_MEMORY * free:
            raise MeasurementError(
                f"Keeping the model and the optimizer as they are takes {size(needed)} of memory; "
                f"{size(free)} are free for it.",
                "Diagnose on the command line: `bottleneck diagnose` keeps no copy, as its process ends. Or diagnose "
                "before the first training step, when there are no gradients and no state of the optimizer yet, or "
                "give this process more memory.",
            )
        for key, content in list(self._contents.items()):
            try:
                content.save()
            except Exception as error:  # noqa: BLE001 - what cannot be copied is said; the rest is kept
                self.notes.add_failure(_NOT_KEPT, content.what, error)
                del self._contents[key]

    @property
    def snapshots(self) -> list[Snapshot]:
        """What to restore, in order: memory, then bytes, then gradients, which have to match the memory."""
        return [*self._identities, *self._contents.values(), *self._gradients]

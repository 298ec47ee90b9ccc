"""Restoring of all state: a diagnosis trains the user's model for a while, which must leave no trace.

Saved are the model (parameters, buffers, gradients, modes, attributes), the optimizer, schedules and gradient scalers,
the loader with its samplers, the dataset's attributes, all random numbers, and the process-wide settings. The train
step is searched for more of the same; its other state is not restored: a logger that has sent its step 100 must not
go back to step 3. Everything is restored in place, in the same objects, bit for bit, also after an error or Ctrl-C.
"""

from __future__ import annotations

import sys
import types
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch.utils._python_dispatch import is_traceable_wrapper_subclass

from bottleneck.errors import MeasurementError
from bottleneck.measure.keep.interrupts import interrupts_deferred
from bottleneck.measure.keep.process import GENERATORS, Kept, Restore, accelerators, keep_generator, keep_process
from bottleneck.measure.keep.search import COUPLED, MAX_ENTRIES, Found, Search, attributes, is_a, namespace_of, slots_of
from bottleneck.measure.machine.environment import rank_memory_bytes
from bottleneck.results.format import size
from bottleneck.results.records import Warning
from bottleneck.results.warnings.unseen import not_copied, not_restored

if TYPE_CHECKING:
    from torch.utils.data import DataLoader

    from bottleneck.job.pipeline import Pipeline

_SHARE_OF_FREE_MEMORY = 0.8
_MAX_DATA_BYTES = 16 * 2**20
"""Bytes of tensors and arrays of the dataset and the loader that are copied, and of all other arrays."""
_MAX_WARNINGS = 20
_REASON_CHARACTERS = 200

Failed = Callable[[str, int, str], Warning]
"""The words for a kind of failure. Args: the first thing that failed, the number of the others, the error."""


class Preserved:
    """Warnings of state that could not be saved or restored, for the body of `preserved`."""

    def __init__(self) -> None:
        self._warnings: dict[Warning, None] = {}
        self._failures: dict[tuple[Failed, str], list[str]] = {}

    def add(self, warning: Warning) -> None:
        """Keep a warning, once."""
        self._warnings[warning] = None

    def add_failure(self, what: str, failed: Failed, error: BaseException) -> None:
        """Add the failure of something; failures of one kind share a warning."""
        reason = str(error).strip().split("\n", maxsplit=1)[0][:_REASON_CHARACTERS]
        cause = f"{type(error).__name__}: {reason}".removesuffix(": ")
        self._failures.setdefault((failed, cause), []).append(what)

    @property
    def notes(self) -> list[Warning]:
        """The warnings, at most twenty; complete when the body has ended."""
        failures = (failed(things[0], len(things) - 1, why) for (failed, why), things in self._failures.items())
        return [*self._warnings, *failures][:_MAX_WARNINGS]


def left_as_it_was(
    pipeline: Pipeline, loader: DataLoader[Any], device: torch.device
) -> AbstractContextManager[Preserved]:
    """Return a context that saves all state of a job on entry, and restores it on exit; see `preserved`."""
    return preserved(
        model=pipeline.model,
        optimizer=pipeline.optimizer,
        train_step=pipeline.train_step,
        loader=loader,
        dataset=loader.dataset,
        device=device,
        others={"the loss": pipeline.loss_fn, "the transfer": pipeline.to_device},
    )


@contextmanager
def preserved(
    *,
    model: Any = None,
    optimizer: Any = None,
    train_step: Any = None,
    loader: Any = None,
    dataset: Any = None,
    device: torch.device | str | None = None,
    others: Mapping[str, object] = types.MappingProxyType({}),
) -> Iterator[Preserved]:
    """Save all state on entry and restore it on exit, even after errors.

    Tensors are copied to host memory. No large content of the dataset and the loader is copied: of their attributes
    the identity is kept, and the content of small containers, generators and small tensors. A Ctrl-C during the
    restoring takes effect when everything is restored.

    Args:
        model: The user's `nn.Module`.
        optimizer: The user's optimizer.
        train_step: Searched for models, optimizers, schedules, gradient scalers, data and generators.
        loader: The user's DataLoader.
        dataset: The user's dataset.
        device: Device of the diagnosis; its random numbers are saved even if it has not been used yet.
        others: Further objects that the diagnosis calls, by a name for sentences: {'the loss': loss_fn}.

    Raises:
        MeasurementError: The copies would not fit into the free host memory; nothing has been changed.
    """
    notes, device = Preserved(), torch.device(device or "cpu")
    process = keep_process(device)
    search = Search(notes.add)
    search.walk({"the model": model, "the optimizer": optimizer}, kept=True)
    search.walk({"the loader": loader, "the dataset": dataset}, kept=True, data=True)
    search.walk({"the train step": train_step, **others})
    objects, tensors = _keep_all(search.found, notes)
    tensors.save()
    try:
        yield notes
    finally:
        with interrupts_deferred():
            # Pending work may still write to the restored state; signals come last, so that Ctrl-C waits.
            waiting: list[Kept] = [("pending work on the device", partial(_wait_for, device))]
            for what, restore in (*waiting, *objects, *tensors.restores(), *process):
                try:
                    restore()
                except Exception as error:  # noqa: BLE001 - one failure must not prevent the rest
                    notes.add_failure(what, not_restored, error)


def _wait_for(device: torch.device) -> None:
    for _, module in accelerators(device):
        if hasattr(module, "synchronize"):
            module.synchronize()


# --- objects, one level deep: objects below are found separately -------------------------------------------


def _keep_all(found: list[Found], notes: Preserved) -> tuple[list[Kept], Tensors]:
    """Prepare the restoring; the tensors are collected, but not copied yet."""
    objects: list[Kept] = []
    tensors, room, counted = Tensors(notes), {True: _MAX_DATA_BYTES, False: _MAX_DATA_BYTES}, set[object]()
    for each in found:
        value, nbytes, whole = each.value, 0, True
        if not each.kept:
            continue
        if is_a(value, np.ndarray) or (each.data and is_a(value, torch.Tensor)):
            # Arrays outside of the data as well: one is rarely a step's state, and a memory map can be of any size.
            nbytes, whole = _bytes_to_copy(value, room[each.data], counted)
            if nbytes > room[each.data]:
                if is_a(value, torch.Tensor):
                    objects.append((each.what, partial(_check_unwritten, value, _version(value))))
                continue
        if is_a(value, torch.Tensor):
            room[each.data] -= nbytes
            tensors.add(value, each.what, whole)
        elif (restore := _keep_object(each)) is not None:
            room[each.data] -= nbytes
            objects.append((each.what, restore))
    return objects, tensors


def _keep_object(found: Found) -> Restore | None:
    value = found.value
    large = found.data and is_a(value, (dict, list, set, deque, bytearray)) and len(value) > MAX_ENTRIES
    if large or is_a(value, (tuple, frozenset)):
        return None
    if is_a(value, GENERATORS):
        return keep_generator(value)
    if is_a(value, np.ndarray):
        return _keep_array(value)
    if is_a(value, dict):
        return _keep_mapping(value)
    if is_a(value, (list, set, deque, bytearray)):
        return _keep_items(value)
    if is_a(value, torch.nn.Module) and (
        isinstance(value, torch.jit.ScriptModule) or type(value).__module__.startswith(COUPLED)
    ):
        mode = value.training
        return lambda: None if value.training == mode else setattr(value, "training", mode)
    return None if type(value).__module__.startswith("bottleneck.") else _keep_attributes(value)


def _keep_array(array: np.ndarray[Any, Any]) -> Restore | None:
    if type(array) is not np.ndarray or array.dtype == object or not array.flags.writeable:
        return None
    saved = array.copy()
    return lambda: np.copyto(array, saved)


def _same(left: Any, right: Any) -> bool:
    """Return True if two sequences have identical objects; equality of tensors would not be a truth value."""
    return [id(item) for item in left] == [id(item) for item in right]


def _keep_mapping(mapping: dict[Any, Any]) -> Restore:
    # Through the base classes: subclasses may do more in their own methods.
    base: Any = OrderedDict if isinstance(mapping, OrderedDict) else dict
    saved: dict[Any, Any] = dict(base.items(mapping))

    def restore() -> None:
        if _same(base.keys(mapping), saved) and _same(base.values(mapping), saved.values()):
            return
        base.clear(mapping)
        for key, value in saved.items():
            base.__setitem__(mapping, key, value)

    return restore


def _keep_items(items: Any) -> Restore:
    saved = list(items)

    def restore() -> None:
        if items == set(saved) if isinstance(items, set) else _same(items, saved):
            return
        items.clear()
        (items.update if isinstance(items, set) else items.extend)(saved)

    return restore


def _keep_attributes(owner: Any) -> Restore:
    """Save an object's attributes, and its class if that can change: lazy modules change theirs."""
    cls, own, held = type(owner), namespace_of(owner), attributes(owner)
    restore_namespace = _keep_mapping(own) if own is not None else lambda: None
    slots = [(member, held[name]) for name, member in slots_of(owner) if name in held]

    def restore() -> None:
        if type(owner) is not cls:
            owner.__class__ = cls
        restore_namespace()
        for member, value in slots:
            member.__set__(owner, value)

    return restore


# --- tensors: the same objects, on their device, with the same bytes, gradient and flags -------------------


def inner_tensors(tensor: torch.Tensor) -> list[torch.Tensor]:
    """Return the tensors inside one, such as the local one of a DTensor; none for an ordinary tensor."""
    if not is_traceable_wrapper_subclass(tensor):
        return []
    parts = [getattr(tensor, name) for name in tensor.__tensor_flatten__()[0]]
    return [part for part in parts if isinstance(part, torch.Tensor)]  # a device mesh is a part as well


def _has_storage(tensor: torch.Tensor) -> bool:
    return tensor.layout is torch.strided and not (tensor.is_nested or is_traceable_wrapper_subclass(tensor))


def _bytes_to_copy(content: Any, room: int, counted: set[object]) -> tuple[int, bool]:
    """Return the bytes of a copy, and True if it covers the whole storage, as views share it, given room for that.

    Args:
        content: A tensor or an array.
        room: Bytes for copies.
        counted: Storages that are copied; gets the one of this tensor.
    """
    if not is_a(content, torch.Tensor):
        return int(content.nbytes), True
    if not _has_storage(content):
        return sys.maxsize, True
    storage = content.untyped_storage()
    key = storage.device, storage.data_ptr()
    if key in counted:
        return 0, True
    if storage.nbytes() > room:
        return content.numel() * content.element_size(), False
    counted.add(key)
    return storage.nbytes(), True


def _version(tensor: torch.Tensor) -> int:
    """Return the number of writes to a tensor; inference tensors do not count them."""
    with torch._C.DisableTorchFunctionSubclass():
        return 0 if tensor.is_inference() else tensor._version


def _check_unwritten(tensor: torch.Tensor, version: int) -> None:
    if _version(tensor) != version:
        raise MeasurementError("it was written to, but was too large to be copied")


class Tensors:
    """Collects tensors, then copies them all, so that it can report a lack of memory first."""

    def __init__(self, notes: Preserved) -> None:
        self._notes = notes
        self._seen: dict[int, torch.Tensor] = {}
        self._identities: list[Kept] = []
        self._contents: dict[object, tuple[str, torch.UntypedStorage | torch.Tensor]] = {}
        """Storages, which tensors share, and tensors without one, such as sparse ones."""
        self._saved: list[Kept] = []

    def add(self, tensor: torch.Tensor, what: str, whole: bool = True) -> None:
        """Save a tensor, or all of its storage, its gradient, and for a wrapper subclass the tensors inside."""
        if id(tensor) in self._seen:
            return
        self._seen[id(tensor)] = tensor
        try:
            for inner in inner_tensors(tensor):
                self.add(inner, what)
            with torch._C.DisableTorchFunctionSubclass():
                alias = tensor.data  # alias of the memory, to which a moved tensor can return
                if tensor.is_leaf and tensor.grad is not None:
                    self.add(tensor.grad, f"the gradient of {what}")  # before its tensor, which it must match
                self._identities.append((what, _keep_identity(tensor, alias)))
                if _has_storage(alias) and whole:
                    storage = alias.untyped_storage()
                    if not alias.is_meta and storage.nbytes() > 0:
                        self._contents.setdefault((storage.device, storage.data_ptr()), (what, storage))
                elif not (alias.is_meta or is_traceable_wrapper_subclass(tensor)):
                    self._contents[id(tensor)] = what, tensor
        except Exception as error:  # noqa: BLE001 - tensor subclasses may refuse anything; the rest is kept
            self._notes.add_failure(what, not_copied, error)

    def save(self) -> None:
        """Copy the content of everything collected to host memory.

        Raises:
            MeasurementError: The copies would not fit into the free host memory.
        """
        storages = (content for _, content in self._contents.values() if isinstance(content, torch.UntypedStorage))
        needed, free = sum(storage.nbytes() for storage in storages), rank_memory_bytes()
        if needed > _SHARE_OF_FREE_MEMORY * free:
            raise MeasurementError(
                f"A copy of the model and the optimizer takes {size(needed)} of memory; {size(free)} are free for it.",
                "Diagnose on the command line: `bottleneck diagnose` keeps no copy, as its process ends. Or diagnose "
                "before the first training step, when there are no gradients and no state of the optimizer yet, or "
                "give this process more memory.",
            )
        for what, content in self._contents.values():
            try:
                self._saved.append((what, _keep_content(content)))
            except Exception as error:  # noqa: BLE001 - failures are reported; the rest is kept
                self._notes.add_failure(what, not_copied, error)

    def restores(self) -> list[Kept]:
        """Return the restoring functions, in order: memory and gradients, then bytes."""
        return [*self._identities, *self._saved]


def _keep_identity(tensor: torch.Tensor, alias: torch.Tensor) -> Restore:
    """Save the properties of a tensor apart from its content: class, memory, place in the graph, gradient."""
    cls, is_leaf, requires_grad = type(tensor), tensor.is_leaf, tensor.requires_grad
    grad = tensor.grad if is_leaf else None

    def restore() -> None:
        if type(tensor) is not cls:
            tensor.__class__ = cls  # a lazy parameter that has been materialised
        with torch.no_grad(), torch._C.DisableTorchFunctionSubclass():
            if is_leaf and not tensor.is_leaf:
                tensor.detach_()
            if _memory(tensor.data) != _memory(alias):
                tensor.data = alias
            if is_leaf and tensor.requires_grad != requires_grad:
                tensor.requires_grad_(requires_grad)
            if is_leaf and tensor.grad is not grad:
                tensor.grad = grad

    return restore


def _memory(tensor: torch.Tensor) -> tuple[object, ...]:
    """Return a key for a piece of memory; without a storage only device and dtype."""
    plain = (tensor.device, tensor.dtype, tensor.layout, type(tensor))
    if not _has_storage(tensor):
        return plain
    return (*plain, tensor.shape, tensor.stride(), tensor.storage_offset(), tensor.data_ptr())


def _keep_content(content: torch.UntypedStorage | torch.Tensor) -> Restore:
    """Copy to host memory, which leaves the device's free. Bytes rather than values: exact for every dtype."""
    with torch.no_grad(), torch._C.DisableTorchFunctionSubclass():
        if isinstance(content, torch.UntypedStorage):
            saved: Any = torch.UntypedStorage(content.nbytes())  # type: ignore[no-untyped-call]  # of torch
            saved.copy_(content)
        else:
            saved = content.detach().to("cpu", copy=True)

    def restore() -> None:
        with torch.no_grad(), torch._C.DisableTorchFunctionSubclass():
            if isinstance(content, torch.UntypedStorage) and content.nbytes() != saved.nbytes():
                content.resize_(saved.nbytes())
            content.copy_(saved)

    return restore

"""The state of training is restored at the beginning of each round.

A diagnosis does hundreds of steps on few batches at a fixed learning rate: without this a loss gets not-a-number, a
scaler skips steps, and a guard of the user's ends the job. It is the state after warming up that is restored: with
the state that an optimizer makes in its first step, which is thus not made again in a timed block.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch.nn.parameter import is_lazy

from bottleneck.measure.device import free_device_bytes
from bottleneck.measure.preserve.restoration import Notes
from bottleneck.measure.preserve.search import Search
from bottleneck.measure.preserve.tensors import TensorVault, inner_tensors
from bottleneck.measure.system.environment import rank_memory_bytes
from bottleneck.results.format import size

_SHARE_OF_TIME = 0.03
"""What restoring may take of the time since it was done last; where it takes more, it is done less often."""
_SHARE_OF_FREE_MEMORY = 0.25


class TrainingState:
    """Parameters that are trained, buffers, and the state of optimizers and gradient scalers.

    All of these are written, not only those whose version has changed: fused optimizers, replayed graphs of a device
    and writes through `.data` change none. The memory stays where it is, so that compiled code and graphs still find
    it, and versions are left alone.

    Args:
        roots: The model, the optimizer and the train step, by what they are called; they are searched for the rest.
        synchronize: Waits for the device.
        clock: Seconds from any beginning.
        free_bytes: The host memory that is free.
        free_on_device: The memory that is free on a device; None where it has none of its own.
    """

    def __init__(
        self,
        roots: Mapping[str, object],
        synchronize: Callable[[], None],
        clock: Callable[[], float],
        free_bytes: Callable[[], int] = rank_memory_bytes,
        free_on_device: Callable[[torch.device], int | None] = free_device_bytes,
    ) -> None:
        self._roots, self._synchronize, self._clock = roots, synchronize, clock
        self._free_bytes, self._free_on_device = free_bytes, free_on_device
        self._tensors: list[torch.Tensor] = []
        self._targets: list[torch.Tensor] = []
        self._saved: list[torch.Tensor] = []
        self._left: Counter[str] = Counter()
        """Tensors that cannot be copied, by their kind."""
        self.device_bytes: dict[torch.device, int] = {}
        """What copies on devices take, or took until they were released."""
        self._searched = False
        self._took_s = self._last_s = 0.0
        self.scalers: tuple[Any, ...] = ()
        """The gradient scalers of the train step."""
        self.failure: str | None = None
        """Why nothing is restored, as a part of a sentence."""
        self.times, self.skipped = 0, 0

    def begin_round(self) -> None:
        """Keep the state, the first time; then restore it, where that takes little of the time since."""
        if not self._searched:
            self._searched = True
            self._keep()
        elif self._saved and self._took_s > _SHARE_OF_TIME * (self._clock() - self._last_s):
            self.skipped += 1
        elif self._saved:
            self._put_back()
            self.times += 1

    def release(self) -> None:
        """Release the copies, which are as large as the model and the optimizer."""
        self._tensors, self._targets, self._saved = [], [], []

    @property
    def nbytes(self) -> int:
        """Memory that the copies take, on the host and on devices."""
        return sum(map(_nbytes, self._saved))

    def _keep(self) -> None:
        try:
            self.failure = self._copy()
            if self.failure is None:
                self._put_back()  # changes nothing, and shows that it works and how long it takes
        except Exception as error:  # noqa: BLE001 - tensors that refuse it cost this, not the diagnosis
            self.failure = f"it cannot be written ({type(error).__name__})"
        if self.failure is not None:
            self.release()

    def _copy(self) -> str | None:
        """Find what training changes and copy it; return why not, if there is no room.

        A copy stays on its device where there is ample room: from pageable host memory, a GB takes a third of a
        second to put back, which a round has no time for.
        """
        notes = Notes()
        search = Search(TensorVault(notes), notes)
        for what, root in self._roots.items():
            search.walk(root, what, own=what == "the train step")
        self.scalers = tuple(search.found(torch.amp.GradScaler))
        trained = _trained(search, self.scalers)
        self._tensors = [tensor for tensor in trained if _is_plain(tensor)]
        self._left = Counter(_kind(tensor) for tensor in trained if not _is_plain(tensor) and _has_content(tensor))
        needed: Counter[torch.device] = Counter()
        for tensor in self._tensors:
            needed[tensor.device] += _nbytes(tensor)
        self.device_bytes = {device: taken for device, taken in needed.items() if self._fits(taken, device)}
        on_host = needed.total() - sum(self.device_bytes.values())
        if on_host > _SHARE_OF_FREE_MEMORY * self._free_bytes():
            self.device_bytes = {}
            return f"a copy of it takes {size(on_host)} of memory, more than a quarter of what is free"
        with torch.no_grad():
            self._targets = [tensor.data for tensor in self._tensors]
            self._saved = [
                target.clone() if target.device in self.device_bytes else target.to("cpu", copy=True)
                for target in self._targets
            ]
        return None

    def _fits(self, nbytes: int, device: torch.device) -> bool:
        free = self._free_on_device(device)
        return free is not None and nbytes <= _SHARE_OF_FREE_MEMORY * free

    def _put_back(self) -> None:
        began_s = self._clock()
        with torch.no_grad():
            for tensor, target, saved in zip(self._tensors, self._targets, self._saved, strict=True):
                if tensor.data_ptr() == target.data_ptr():  # the memory that a tensor once had may be another's
                    target.copy_(saved)
        self._synchronize()
        self._last_s = self._clock()
        self._took_s = self._last_s - began_s

    def warning(self) -> tuple[str, str] | None:
        """Return id and message where training simply went on."""
        reason, what = self.failure, "The weights and the state of the optimizer"
        if reason is None and self.skipped and not self.times:
            reason = f"that takes {self._took_s:.2g} s, which is much of a round"
        remedy = "Diagnose on a machine with more memory, or with a smaller learning rate."
        if reason is None and self._left:
            reason = "they have no memory that could simply be copied"
            what = f"Of {what.lower()}, tensors of some kinds ({', '.join(sorted(self._left))})"
            remedy = "Diagnose with a smaller learning rate."
        if reason is None:
            return None
        return (
            "weights-not-put-back",
            f"{what} did not go back at the beginning of each round: {reason}. So the job trained on few batches for "
            f"all of the diagnosis, and a step whose time goes with the weights was not always the same. {remedy}",
        )


def _trained(search: Search, scalers: tuple[Any, ...]) -> list[torch.Tensor]:
    """Return what training changes, each tensor once; of one that stands for others, such as a DTensor, those."""
    inner = (part for tensor in _with_repetitions(search, scalers) for part in _parts(tensor))
    return list({id(tensor): tensor for tensor in inner}.values())


def _parts(tensor: torch.Tensor) -> Iterator[torch.Tensor]:
    inner = inner_tensors(tensor)
    for part in inner:
        yield from _parts(part)
    if not inner:
        yield tensor


def _with_repetitions(search: Search, scalers: tuple[Any, ...]) -> Iterator[torch.Tensor]:
    for module in search.found(torch.nn.Module):
        yield from (parameter for parameter in module.parameters() if parameter.requires_grad)
        yield from module.buffers()
    for optimizer in search.found(torch.optim.Optimizer):
        yield from (p for group in optimizer.param_groups for p in group["params"] if p.requires_grad)
        yield from _tensors_in(optimizer.state)
    for scaler in scalers:
        yield from _tensors_in(vars(scaler))


def _tensors_in(value: Any) -> Iterator[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from _tensors_in(item)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _tensors_in(item)


def _nbytes(tensor: torch.Tensor) -> int:
    return tensor.numel() * tensor.element_size()


def _has_content(tensor: torch.Tensor) -> bool:
    return not (is_lazy(tensor) or tensor.is_meta or tensor.numel() == 0)


def _kind(tensor: torch.Tensor) -> str:
    return str(tensor.layout) if type(tensor) in (torch.Tensor, torch.nn.Parameter) else type(tensor).__name__


def _is_plain(tensor: torch.Tensor) -> bool:
    """Whether a tensor has memory that can simply be written."""
    return (
        _has_content(tensor)
        and tensor.layout is torch.strided
        and not tensor.is_nested
        and tensor.untyped_storage().nbytes() > 0
    )

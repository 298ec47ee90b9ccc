"""Training during a diagnosis: checks of its losses, and restoring of its state at the beginning of each round.

A diagnosis does hundreds of steps on few batches at a fixed learning rate: without restoring, a loss becomes
not-a-number, a scaler skips steps, and checks in the user's code end the job. The state after warming up is restored,
including the state that an optimizer creates in its first step, so that it is not created again in a timed block.
Losses are read between blocks, when the device is idle; a step only keeps its loss.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch.nn.parameter import is_lazy

from bottleneck.job.pipeline import Pipeline
from bottleneck.measure.device import free_device_bytes
from bottleneck.measure.keep.preserved import inner_tensors
from bottleneck.measure.keep.search import Search
from bottleneck.measure.ladder import Arm, Ladder
from bottleneck.measure.ledger import describe_arm
from bottleneck.measure.machine.environment import rank_memory_bytes
from bottleneck.measure.rounds.new_shapes import NewShapes, make_counts
from bottleneck.results.evidence import TrainingSeen
from bottleneck.results.records import Warning
from bottleneck.results.warnings.job import loss_not_finite, steps_skipped
from bottleneck.results.warnings.unseen import (
    some_weights_not_put_back,
    weights_not_writable,
    weights_too_large,
    weights_too_slow,
)

_SHARE_OF_TIME = 0.03
"""Share of the time since the last restoring that restoring may take; if it takes more, it is done less often."""
_SHARE_OF_FREE_MEMORY = 0.25
_MIN_WITH_SKIPS = 2
"""Blocks with a skipped step above which it is more than a scaler that tries a larger scale now and then."""
_SHARE_WITH_SKIPS = 0.05
"""The same as a share of the blocks."""


# --- the state ---------------------------------------------------------------------------------------------


class TrainingState:
    """Trained parameters, buffers, and the state of optimizers and gradient scalers.

    All of these are written, not only those whose version has changed: fused optimizers, replayed graphs of a device
    and writes through `.data` change no version. The memory stays in place, so that compiled code and graphs still find
    it, and versions are not touched.

    Args:
        roots: The model, the optimizer and the train step by name; they are searched for the rest.
        synchronize: Waits for the device.
        clock: Monotonic seconds.
        free_bytes: Returns the free host memory.
        free_on_device: Returns the free memory of a device; None if it has no separate memory.
    """

    def __init__(
        self,
        roots: Mapping[str, object],
        synchronize: Callable[[], None],
        clock: Callable[[], float],
        free_bytes: Callable[[], int] = rank_memory_bytes,
        free_on_device: Callable[[torch.device], int | None] = free_device_bytes,
    ) -> None:
        self._roots = roots
        self._synchronize = synchronize
        self._clock = clock
        self._free_bytes = free_bytes
        self._free_on_device = free_on_device
        self._tensors: list[torch.Tensor] = []
        self._targets: list[torch.Tensor] = []
        self._saved: list[torch.Tensor] = []
        self._left: Counter[str] = Counter()
        """Tensors that cannot be copied, by kind."""
        self._searched = False
        self._took_s = self._last_s = 0.0
        self.scalers: tuple[Any, ...] = ()
        """The gradient scalers of the train step."""
        self.failure: Warning | None = None
        """Reason why nothing is restored."""
        self.times = 0
        self.skipped = 0

    def begin_round(self) -> None:
        """Save the state the first time; then restore it, if that takes little of the time since."""
        if not self._searched:
            self._searched = True
            self._keep()
        elif self._saved and self._took_s > _SHARE_OF_TIME * (self._clock() - self._last_s):
            self.skipped += 1
        elif self._saved:
            self._restore()
            self.times += 1

    def release(self) -> None:
        """Release the copies, which are as large as the model and the optimizer."""
        self._tensors = []
        self._targets = []
        self._saved = []

    @property
    def nbytes(self) -> int:
        """Memory of the copies, on the host and on devices."""
        return sum(copy.nbytes for copy in self._saved)

    def _keep(self) -> None:
        try:
            self.failure = self._copy()
            if self.failure is None:
                self._restore()  # changes nothing, but shows that it works and how long it takes
        except Exception as error:  # noqa: BLE001 - tensors that refuse it cost restoring, not the diagnosis
            self.failure = weights_not_writable(error)
        if self.failure is not None:
            self.release()

    def _copy(self) -> Warning | None:
        """Find and copy the state that training changes; return a warning if there is no room.

        A copy stays on its device if there is ample room: restoring a GB from pageable host memory takes a third of a
        second, for which a round has no time.
        """
        search = Search()
        search.walk(self._roots)
        self.scalers = tuple(search.all(torch.amp.GradScaler))
        trained = _trained(search)
        self._tensors = [tensor for tensor in trained if _is_plain(tensor)]
        self._left = Counter(_kind(tensor) for tensor in trained if not _is_plain(tensor) and _has_content(tensor))
        needed: Counter[torch.device] = Counter()
        for tensor in self._tensors:
            needed[tensor.device] += tensor.nbytes
        with_room = {device for device, taken in needed.items() if self._fits(taken, device)}
        on_host = sum(taken for device, taken in needed.items() if device not in with_room)
        if on_host > _SHARE_OF_FREE_MEMORY * self._free_bytes():
            return weights_too_large(on_host)
        with torch.no_grad():
            self._targets = [tensor.data for tensor in self._tensors]
            self._saved = [
                target.clone() if target.device in with_room else target.to("cpu", copy=True)
                for target in self._targets
            ]
        return None

    def _fits(self, nbytes: int, device: torch.device) -> bool:
        free = self._free_on_device(device)
        return free is not None and nbytes <= _SHARE_OF_FREE_MEMORY * free

    def _restore(self) -> None:
        began_s = self._clock()
        with torch.no_grad():
            for tensor, target, saved in zip(self._tensors, self._targets, self._saved, strict=True):
                if tensor.data_ptr() == target.data_ptr():  # otherwise another tensor may have that memory now
                    target.copy_(saved)
        self._synchronize()
        self._last_s = self._clock()
        self._took_s = self._last_s - began_s

    def warning(self) -> Warning | None:
        """Return a warning if training simply continued."""
        if self.failure is not None:
            return self.failure
        if self.skipped and not self.times:
            return weights_too_slow(self._took_s)
        return some_weights_not_put_back(sorted(self._left)) if self._left else None


def _trained(search: Search) -> list[torch.Tensor]:
    """Return each tensor that training changes once, or its parts if it consists of others, such as a DTensor."""
    found: list[Any] = []
    for module in search.all(torch.nn.Module):
        found += [parameter for parameter in module.parameters() if parameter.requires_grad]
        found += module.buffers()
    for optimizer in search.all(torch.optim.Optimizer):
        found += [p for group in optimizer.param_groups for p in group["params"] if p.requires_grad]
        found += _leaves(optimizer.state)
    found += [leaf for scaler in search.all(torch.amp.GradScaler) for leaf in _leaves(vars(scaler))]
    inner = (part for tensor in found if isinstance(tensor, torch.Tensor) for part in _parts(tensor))
    return list({id(tensor): tensor for tensor in inner}.values())


def _leaves(tree: Any) -> list[Any]:
    """Return the contents of mappings, lists and tuples of any class; torch's pytree does not know all mappings."""
    if isinstance(tree, Mapping):
        return [leaf for value in tree.values() for leaf in _leaves(value)]
    return [leaf for value in tree for leaf in _leaves(value)] if isinstance(tree, list | tuple) else [tree]


def _parts(tensor: torch.Tensor) -> Iterator[torch.Tensor]:
    inner = inner_tensors(tensor)
    for part in inner:
        yield from _parts(part)
    if not inner:
        yield tensor


def _has_content(tensor: torch.Tensor) -> bool:
    return not (is_lazy(tensor) or tensor.is_meta or tensor.numel() == 0)


def _kind(tensor: torch.Tensor) -> str:
    return str(tensor.layout) if type(tensor) in (torch.Tensor, torch.nn.Parameter) else type(tensor).__name__


def _is_plain(tensor: torch.Tensor) -> bool:
    """Return True if a tensor has memory that can simply be written."""
    return (
        _has_content(tensor)
        and tensor.layout is torch.strided
        and not tensor.is_nested
        and tensor.untyped_storage().nbytes() > 0
    )


# --- losses ------------------------------------------------------------------------------------------------


class Losses:
    """Checks the last loss of each block with the train step."""

    def __init__(self) -> None:
        self._last: Any = None
        self._scales: list[float] = []
        self._blocks = 0
        self._not_finite: list[tuple[Arm, int]] = []
        self._skipping: list[tuple[Arm, int]] = []

    def keep(self, returned: Any) -> None:
        """Keep the loss in what a step returned, if there is one; does not wait for the device."""
        self._last = loss_in(returned)

    def begin_block(self, scalers: tuple[Any, ...]) -> None:
        """Note the scales, and forget the loss of the last block."""
        self._last = None
        self._scales = [scaler.get_scale() for scaler in scalers]

    def end_block(self, scalers: tuple[Any, ...], arm: Arm, round_: int) -> None:
        """Check the last loss and the scales; the device must be idle."""
        last = self._last
        self._last = None
        if not arm.coupled:
            return
        self._blocks += 1
        if last is not None and not is_finite(last):
            self._not_finite.append((arm, round_))
        now = [scaler.get_scale() for scaler in scalers]
        if any(scale < before for before, scale in zip(self._scales, now, strict=False)):
            self._skipping.append((arm, round_))

    def warnings(self, ladder: Ladder) -> Iterator[Warning]:
        """Yield each reason not to trust the training."""
        if self._not_finite:
            arm, round_ = self._not_finite[0]
            yield loss_not_finite(len(self._not_finite), self._blocks, round_, describe_arm(arm, ladder))
        if len(self._skipping) >= max(_MIN_WITH_SKIPS, _SHARE_WITH_SKIPS * self._blocks):
            arm, round_ = self._skipping[0]
            yield steps_skipped(len(self._skipping), self._blocks, round_, describe_arm(arm, ladder))


def is_finite(loss: torch.Tensor | float) -> bool:
    """Return True if a loss is a finite number; waits for the device."""
    if isinstance(loss, torch.Tensor):
        return loss.is_meta or bool(torch.isfinite(loss).all())
    return math.isfinite(loss)


def loss_in(returned: Any) -> torch.Tensor | float | None:
    """Return the loss in a step's return value, if there is one; does not wait for the device."""
    if returned is None or type(returned) is float:
        return returned
    try:
        loss = returned if isinstance(returned, torch.Tensor) else _called_loss(returned)
    except Exception:  # noqa: BLE001 - a step may return anything, and reading it must not fail
        return None
    if isinstance(loss, torch.Tensor):
        # Detached: its graph may keep the activations of a step until the next one has computed the same.
        return loss.detach() if loss.numel() == 1 else None
    return loss if isinstance(loss, float) else None


def _called_loss(returned: Any) -> Any:
    """Return the loss from one of the usual containers, or else from an attribute."""
    if isinstance(returned, Mapping):
        return returned.get("loss")
    if isinstance(returned, tuple | list):
        return returned[0] if returned else None
    return getattr(returned, "loss", None)


# --- the whole ---------------------------------------------------------------------------------------------


@dataclass
class Training:
    """Checks the training between blocks."""

    state: TrainingState | None = None
    """Restored at the beginning of each round; None if training just continues."""
    losses: Losses = field(default_factory=Losses)
    shapes: NewShapes = field(default_factory=NewShapes)

    def watch(self, step: Callable[[Any], Any]) -> Callable[[Any], Any]:
        """Return a train step whose losses and shapes are recorded."""
        looks, meet, keep = self.shapes.looks, self.shapes.meet, self.losses.keep

        def watched(batch: Any) -> Any:
            if looks:
                meet(batch)
            returned = step(batch)
            keep(returned)
            return returned

        return watched

    def release(self) -> None:
        """Release the copies of the state, once nothing trains any more."""
        if self.state is not None:
            self.state.release()

    @property
    def _scalers(self) -> tuple[Any, ...]:
        return self.state.scalers if self.state is not None else ()

    def begin_round(self) -> None:
        """Restore the state of training."""
        if self.state is not None:
            self.state.begin_round()

    def begin_block(self) -> None:
        """Read the values that are compared at the end of a block."""
        self.losses.begin_block(self._scalers)
        self.shapes.begin_block()

    def end_block(self, arm: Arm, round_: int) -> None:
        """Compare them; the block is over, and the device idle."""
        self.losses.end_block(self._scalers, arm, round_)
        self.shapes.end_block(arm)

    # --- results -------------------------------------------------------------------------------------------

    def evidence(self) -> TrainingSeen:
        """Return the evidence on the training."""
        found, state = self.shapes.evidence(), self.state
        return found if state is None else replace(found, put_back=state.times, put_back_skipped=state.skipped)

    def warnings(self, ladder: Ladder) -> Iterator[Warning]:
        """Yield each reason not to trust a number."""
        yield from self.losses.warnings(ladder)
        for warning in (self.shapes.warning(), self.state.warning() if self.state is not None else None):
            if warning is not None:
                yield warning


def make_training(
    pipeline: Pipeline,
    step: Callable[[Any], Any],
    device: torch.device,
    synchronize: Callable[[], None],
    clock: Callable[[], float],
) -> Training:
    """Return the checks and the restoring of a job's training with some train step, whose batches are on a device."""
    roots = {"the model": pipeline.model, "the optimizer": pipeline.optimizer, "the train step": step}
    shapes = NewShapes(
        make_counts(device),
        looks=device.type != "cpu",
        tries_algorithms=device.type == "cuda" and bool(torch.backends.cudnn.benchmark),
    )
    return Training(TrainingState(roots, synchronize, clock), shapes=shapes)

"""Lightning's training step outside of `Trainer.fit`: the hooks, the optimizer and the precision of one batch."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from typing import Any

import torch

from bottleneck.job.integrations.frameworks import LIGHTNING, call_users_code, is_a, is_from
from bottleneck.job.train_step import FrameworkStep

_BASES = ("LightningModule", "LightningDataModule")
_LOGGING = ("log", "log_dict")
_WITH_OPTIMIZER = "Pipeline.from_lightning(module, datamodule, optimizer=torch.optim.AdamW(module.parameters()))"


def overrides(owner: Any, name: str) -> bool:
    """Whether a module or datamodule has a method of its own in the place of Lightning's."""
    base = next(cls for cls in type(owner).__mro__ if cls.__name__ in _BASES and is_from(cls, LIGHTNING))
    return name in vars(owner) or getattr(type(owner), name, None) is not getattr(base, name, None)


class LightningStep(FrameworkStep):
    """One batch of automatic optimization, with the hooks around it, but without loggers and callbacks.

    Args:
        module: The LightningModule.
        after_transfer: The user's `on_after_batch_transfer`, which works on the device.
        trainer: Decides precision, clipping and gradient accumulation; None: Lightning's defaults.
        set_up: The module's `setup` has run, because its loader was asked for.
    """

    def __init__(self, module: Any, after_transfer: Callable[..., Any] | None, trainer: Any, *, set_up: bool) -> None:
        super().__init__(module)
        self._after_transfer = after_transfer
        self._trainer = trainer
        self._set_up = set_up

    def prepare(self, optimizer: Any, device: torch.device) -> Callable[[Any], Any]:
        """Set the module up, move it and let it make its optimizer, as `Trainer.fit` does."""
        module, trainer = self.model, self._trainer
        with _without_logging(module, trainer):
            for name, arguments in (("prepare_data", ()), ("setup", ("fit",)), ("configure_model", ())):
                if overrides(module, name) and not (self._set_up and name != "configure_model"):
                    getattr(module, name)(*arguments)
        if trainer is not None:
            trainer.precision_plugin.convert_module(module)
        module.to(device)
        if optimizer is None:
            with _without_logging(module, trainer):
                optimizer = _make_optimizer(module)
        return _StepLoop(module, trainer, optimizer, self._after_transfer).run


def _make_optimizer(module: Any) -> Any:
    name = type(module).__name__
    made = call_users_code(
        module.configure_optimizers, f"{name}.configure_optimizers()", f"Write {_WITH_OPTIMIZER}, or give a trainer=."
    )
    found = list(_optimizers_in(made))
    if len(found) > 1:
        warnings.warn(
            f"{name}.configure_optimizers() gives {len(found)} optimizers; the first, {type(found[0]).__name__}, is "
            "used in the diagnosis.",
            stacklevel=2,
        )
    return found[0] if found else None


def _optimizers_in(made: Any) -> Iterator[Any]:
    """The optimizers in any of the shapes that `configure_optimizers` may return, in order."""
    if callable(getattr(made, "step", None)) and callable(getattr(made, "zero_grad", None)):
        yield made
    elif isinstance(made, Mapping):
        yield from _optimizers_in(made.get("optimizer"))
    elif isinstance(made, list | tuple):
        # ([optimizers], [schedulers]), or optimizers or mappings in a row.
        for item in made[:1] if made and isinstance(made[0], list | tuple) else made:
            yield from _optimizers_in(item)


@contextmanager
def _without_logging(module: Any, trainer: Any, parts: list[Any] | None = None) -> Iterator[None]:
    """Let `self.log` do nothing, which needs a Trainer that is running, and `self.trainer` be the one that was given.

    Args:
        module: The LightningModule.
        trainer: What `self.trainer` is; None: what it is anyway.
        parts: The module and the LightningModules in it; None: they are looked up.
    """
    parts = _modules_in(module) if parts is None else parts
    changes: dict[str, Any] = dict.fromkeys(_LOGGING, _log_nothing)
    if trainer is not None:
        changes["_trainer"] = trainer
    kept = [{name: vars(part)[name] for name in changes if name in vars(part)} for part in parts]
    for part in parts:
        vars(part).update(changes)
    try:
        yield
    finally:
        for part, own in zip(parts, kept, strict=True):
            for name in changes:
                vars(part).pop(name, None)
            vars(part).update(own)


def _modules_in(module: Any) -> list[Any]:
    return [part for part in module.modules() if is_a(part, LIGHTNING, "LightningModule")]


def _log_nothing(*args: Any, **kwargs: Any) -> None:
    del args, kwargs


class _StepLoop:
    """What Lightning does with each batch; without an optimizer it goes forward and backward only."""

    def __init__(self, module: Any, trainer: Any, optimizer: Any, after_transfer: Callable[..., Any] | None) -> None:
        self._module, self._trainer = module, trainer
        self._parts = _modules_in(module)
        self._optimizer = optimizer
        self._after_transfer = after_transfer
        self._precision = None if trainer is None else trainer.precision_plugin
        self._scaler = getattr(self._precision, "scaler", None)
        self._batches_per_step = 1 if trainer is None else trainer.accumulate_grad_batches
        self._number = 0
        parameters = inspect.signature(module.training_step).parameters.values()
        several = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD, p.VAR_POSITIONAL)]
        self._takes_number = len(several) > 1 or any(p.kind is p.VAR_POSITIONAL for p in several)

    def run(self, batch: Any) -> Any:
        """Train on one batch."""
        with _without_logging(self._module, self._trainer, self._parts):
            return self._run(batch)

    def _run(self, batch: Any) -> Any:
        module, number = self._module, self._number
        self._number += 1
        if self._precision is not None:
            batch = self._precision.convert_input(batch)
        if self._after_transfer is not None:
            batch = self._after_transfer(batch, 0)
        if module.on_train_batch_start(batch, number) == -1:
            return None
        outputs: list[Any] = []

        def closure() -> Any:
            outputs.append(self._forward(batch, number))
            return self._backward(outputs[-1], number)

        if self._optimizer is None or self._number % self._batches_per_step:
            closure()
        elif self._scaler is None:
            module.optimizer_step(0, number, self._optimizer, closure)
        else:
            closure()
            self._scaler.step(self._optimizer)
            self._scaler.update()
        module.on_train_batch_end(outputs[-1], batch, number)
        return outputs[-1]

    def _forward(self, batch: Any, number: int) -> Any:
        with nullcontext() if self._precision is None else self._precision.train_step_context():
            step = self._module.training_step
            return step(batch, number) if self._takes_number else step(batch)

    def _backward(self, output: Any, number: int) -> Any:
        module, optimizer = self._module, self._optimizer
        loss = output.get("loss") if isinstance(output, Mapping) else output
        if number % self._batches_per_step == 0:
            self._clear_gradients(number)
        if loss is not None:
            scaled = loss / self._batches_per_step
            scaled = scaled if self._scaler is None else self._scaler.scale(scaled)
            module.on_before_backward(scaled)
            module.backward(scaled)
            module.on_after_backward()
        if optimizer is not None and self._number % self._batches_per_step == 0:
            if self._scaler is not None:
                self._scaler.unscale_(optimizer)
            module.on_before_optimizer_step(optimizer)
            if self._trainer is not None:
                module.configure_gradient_clipping(
                    optimizer,
                    gradient_clip_val=self._trainer.gradient_clip_val,
                    gradient_clip_algorithm=self._trainer.gradient_clip_algorithm,
                )
        return loss

    def _clear_gradients(self, number: int) -> None:
        if self._optimizer is None:
            self._module.zero_grad(set_to_none=True)
            return
        self._module.on_before_zero_grad(self._optimizer)
        self._module.optimizer_zero_grad(0, number, self._optimizer)

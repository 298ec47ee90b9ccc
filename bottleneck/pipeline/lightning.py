"""Lightning: a LightningModule and its data as a pipeline, without `Trainer.fit`.

Both `lightning` and `pytorch_lightning` are understood, and neither is imported.
"""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch.utils.data import DataLoader

from bottleneck.errors import PipelineError
from bottleneck.pipeline.frameworks import (
    LIGHTNING,
    call_users_code,
    describe_value,
    is_a,
    random_numbers_kept,
    the_only_loader,
)
from bottleneck.pipeline.train_step import FrameworkStep
from bottleneck.pipeline.transfer import move_to_device

_CALL = "Pipeline.from_lightning(module, datamodule)"
_WITH_LOADER = "Pipeline.from_lightning(module, train_loader)"
_WITH_STEP = "Pipeline.from_lightning(module, datamodule, train_step=step), where step is a function of one batch"
_WITH_OPTIMIZER = "Pipeline.from_lightning(module, datamodule, optimizer=torch.optim.AdamW(module.parameters()))"
_LOGGING = ("log", "log_dict")


def lightning_fields(module: Any, data: Any, *, own_step: bool) -> tuple[DataLoader[Any], dict[str, Any]]:
    """The loader of a Lightning job, and the fields of its pipeline.

    Args:
        module: A LightningModule.
        data: A LightningDataModule or a DataLoader; None: the module's own `train_dataloader`.
        own_step: The user gives a train step of their own.

    Raises:
        PipelineError: Objects of another kind, several loaders, or a module that needs its Trainer in each step.
    """
    if not is_a(module, LIGHTNING, "LightningModule"):
        raise PipelineError(
            f"Pipeline.from_lightning needs a LightningModule, not {describe_value(module)}.", f"Write {_CALL}."
        )
    hooks = data if is_a(data, LIGHTNING, "LightningDataModule") else None
    if not own_step:
        _refuse_special_steps(module)
    with random_numbers_kept():
        loader = _find_loader(module, data, hooks)
    fields: dict[str, Any] = {"model": module}
    before, move, after = (_hook(name, module, hooks) for name in _TRANSFER_HOOKS)
    if before is not None or move is not None:
        fields["to_device"] = _transfer(before, move)
    if not own_step:
        fields["train_step"] = LightningStep(module, after, set_up=data is None)
    return loader, fields


def _refuse_special_steps(module: Any) -> None:
    name = type(module).__name__
    if not module.automatic_optimization:
        raise PipelineError(
            f"{name} optimizes by hand (automatic_optimization is False), for which it needs a Trainer that is running.",
            f"Write {_WITH_STEP}.",
        )
    if "dataloader_iter" in inspect.signature(module.training_step).parameters:
        raise PipelineError(
            f"{name}.training_step takes its batches by itself, from dataloader_iter.", f"Write {_WITH_STEP}."
        )


def _find_loader(module: Any, data: Any, hooks: Any) -> DataLoader[Any]:
    if data is not None and hooks is None:
        if not isinstance(data, DataLoader | list | tuple | dict) and not is_a(data, LIGHTNING, "CombinedLoader"):
            raise PipelineError(
                f"datamodule is {describe_value(data)}, neither a LightningDataModule nor a DataLoader.",
                f"Write {_CALL} or {_WITH_LOADER}.",
            )
        return the_only_loader(data, "datamodule", _WITH_LOADER)
    owner = module if hooks is None else hooks
    name = type(owner).__name__
    if not _overrides(owner, "train_dataloader"):
        raise PipelineError(f"{name} has no train_dataloader().", f"Write {_CALL} or {_WITH_LOADER}.")
    remedy = f"It must work by itself; or give its loader: {_WITH_LOADER}."
    call_users_code(owner.prepare_data, f"{name}.prepare_data()", remedy)
    call_users_code(lambda: owner.setup("fit"), f"{name}.setup('fit')", remedy)
    found = call_users_code(owner.train_dataloader, f"{name}.train_dataloader()", remedy)
    return the_only_loader(found, f"{name}.train_dataloader()", _WITH_LOADER)


# --- hooks -------------------------------------------------------------------------------------------------

_TRANSFER_HOOKS = ("on_before_batch_transfer", "transfer_batch_to_device", "on_after_batch_transfer")


def _overrides(owner: Any, name: str) -> bool:
    """Whether the user wrote this method: Lightning's own do nothing, or what is done here anyway."""
    method = getattr(owner, name, None)
    module_name = getattr(getattr(method, "__func__", method), "__module__", None) or ""
    return method is not None and module_name.partition(".")[0] not in LIGHTNING


def _hook(name: str, module: Any, hooks: Any) -> Callable[..., Any] | None:
    """The user's hook, of the datamodule or else of the module, as Lightning chooses."""
    for owner in (hooks, module):
        if owner is not None and _overrides(owner, name):
            method: Callable[..., Any] = getattr(owner, name)
            return method
    return None


def _transfer(before: Callable[..., Any] | None, move: Callable[..., Any] | None) -> Callable[[Any, torch.device], Any]:
    def transfer(batch: Any, device: torch.device) -> Any:
        if before is not None:
            batch = before(batch, 0)
        return move(batch, device, 0) if move is not None else move_to_device(batch, device, non_blocking=True)

    return transfer


@contextmanager
def _silent(modules: list[Any]) -> Iterator[None]:
    """Let `self.log` do nothing: it needs a Trainer that is running."""
    kept = [{name: vars(module)[name] for name in _LOGGING if name in vars(module)} for module in modules]
    for module in modules:
        vars(module).update(dict.fromkeys(_LOGGING, _log_nothing))
    try:
        yield
    finally:
        for module, own in zip(modules, kept, strict=True):
            for name in _LOGGING:
                vars(module).pop(name, None)
            vars(module).update(own)


def _log_nothing(*args: Any, **kwargs: Any) -> None:
    del args, kwargs


# --- the step ----------------------------------------------------------------------------------------------


class LightningStep(FrameworkStep):
    """One batch of automatic optimization, with the hooks around it, but without loggers and callbacks.

    Args:
        module: The LightningModule.
        after_transfer: The user's `on_after_batch_transfer`, which works on the device.
        set_up: The module's `setup` has run, because its loader was asked for.
    """

    def __init__(self, module: Any, after_transfer: Callable[..., Any] | None, *, set_up: bool) -> None:
        super().__init__(module)
        self._after_transfer = after_transfer
        self._set_up = set_up

    def prepare(self, optimizer: Any, device: torch.device) -> Callable[[Any], Any]:
        """Set the module up, move it and let it make its optimizer, as `Trainer.fit` does."""
        module = self.model
        parts = [part for part in module.modules() if is_a(part, LIGHTNING, "LightningModule")]
        with _silent(parts):
            for name, arguments in (("prepare_data", ()), ("setup", ("fit",)), ("configure_model", ())):
                if _overrides(module, name) and not (self._set_up and name != "configure_model"):
                    getattr(module, name)(*arguments)
        module.to(device)
        parts = [part for part in module.modules() if is_a(part, LIGHTNING, "LightningModule")]
        if optimizer is None:
            with _silent(parts):
                optimizer = _make_optimizer(module)
        return _StepLoop(module, parts, optimizer, self._after_transfer).run


def _make_optimizer(module: Any) -> Any:
    name = type(module).__name__
    made = call_users_code(
        module.configure_optimizers, f"{name}.configure_optimizers()", f"Without a Trainer, write {_WITH_OPTIMIZER}."
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


class _StepLoop:
    """What Lightning does with each batch.

    Args:
        module: The LightningModule.
        parts: It, and the LightningModules within it.
        optimizer: None: forward and backward only.
        after_transfer: See LightningStep.
    """

    def __init__(
        self, module: Any, parts: list[Any], optimizer: Any, after_transfer: Callable[..., Any] | None
    ) -> None:
        self._module = module
        self._parts = parts
        self._optimizer = optimizer
        self._after_transfer = after_transfer
        self._number = 0
        parameters = inspect.signature(module.training_step).parameters.values()
        several = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD, p.VAR_POSITIONAL)]
        self._takes_number = len(several) > 1 or any(p.kind is p.VAR_POSITIONAL for p in several)

    def run(self, batch: Any) -> Any:
        """Train on one batch."""
        with _silent(self._parts):
            return self._run(batch)

    def _run(self, batch: Any) -> Any:
        module, number = self._module, self._number
        self._number += 1
        if self._after_transfer is not None:
            batch = self._after_transfer(batch, 0)
        if module.on_train_batch_start(batch, number) == -1:
            return None
        output: Any = None

        def closure() -> Any:
            nonlocal output
            output = module.training_step(batch, number) if self._takes_number else module.training_step(batch)
            loss = output.get("loss") if isinstance(output, Mapping) else output
            self._clear_gradients(number)
            if loss is not None:
                module.on_before_backward(loss)
                module.backward(loss)
                module.on_after_backward()
            if self._optimizer is not None:
                module.on_before_optimizer_step(self._optimizer)
            return loss

        if self._optimizer is None:
            closure()
        else:
            module.optimizer_step(0, number, self._optimizer, closure)
        module.on_train_batch_end(output, batch, number)
        return output

    def _clear_gradients(self, number: int) -> None:
        if self._optimizer is None:
            self._module.zero_grad(set_to_none=True)
            return
        self._module.on_before_zero_grad(self._optimizer)
        self._module.optimizer_zero_grad(0, number, self._optimizer)

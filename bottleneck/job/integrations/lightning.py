"""Lightning: a LightningModule and its data as a pipeline, without `Trainer.fit`.

Both `lightning` and `pytorch_lightning` are understood, and neither is imported.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import torch
from torch.utils.data import DataLoader

from bottleneck.errors import PipelineError
from bottleneck.job.integrations.frameworks import (
    LIGHTNING,
    call_users_code,
    describe_value,
    is_a,
    random_numbers_kept,
    the_only_loader,
)
from bottleneck.job.integrations.lightning_step import LightningStep, overrides
from bottleneck.job.transfer import move_to_device
from bottleneck.job.world import world_size

_CALL = "Pipeline.from_lightning(module, datamodule)"
_WITH_LOADER = "Pipeline.from_lightning(module, train_loader)"
_WITH_TRAINER = "Pipeline.from_lightning(module, datamodule, trainer=trainer)"
_WITH_STEP = "Pipeline.from_lightning(module, datamodule, train_step=step), where step is a function of one batch"


def lightning_fields(module: Any, data: Any, trainer: Any, *, own_step: bool) -> tuple[DataLoader[Any], dict[str, Any]]:
    """The loader of a Lightning job, and the fields of its pipeline.

    Args:
        module: A LightningModule.
        data: A LightningDataModule or a DataLoader; None: the module's own `train_dataloader`.
        trainer: A Trainer, for its precision and the like, or None.
        own_step: The user gives a train step.

    Raises:
        PipelineError: Objects of another kind, several loaders, a module that needs its Trainer in each step, or
            several ranks.
    """
    if not is_a(module, LIGHTNING, "LightningModule"):
        raise PipelineError(
            f"Pipeline.from_lightning needs a LightningModule, not {describe_value(module)}.", f"Write {_CALL}."
        )
    if trainer is not None and not is_a(trainer, LIGHTNING, "Trainer"):
        raise PipelineError(
            f"trainer is {describe_value(trainer)}, not Lightning's Trainer.", f"Write {_WITH_TRAINER}."
        )
    hooks = data if is_a(data, LIGHTNING, "LightningDataModule") else None
    if not own_step:
        _refuse_special_steps(module)
        _refuse_ranks()
    with random_numbers_kept():
        loader = _find_loader(module, data, hooks)
    fields: dict[str, Any] = {"model": module}
    if trainer is not None:
        fields["device"] = trainer.strategy.root_device
    before, move, after = (_hook(name, module, hooks) for name in _TRANSFER_HOOKS)
    if before is not None or move is not None:
        fields["to_device"] = _transfer(before, move)
    if not own_step:
        fields["train_step"] = LightningStep(module, after, trainer, set_up=data is None)
    return loader, fields


def _refuse_special_steps(module: Any) -> None:
    name = type(module).__name__
    if not module.automatic_optimization:
        raise PipelineError(
            f"{name} optimizes by hand (automatic_optimization is False), which takes a Trainer that is running.",
            f"Write {_WITH_STEP}.",
        )
    if "dataloader_iter" in inspect.signature(module.training_step).parameters:
        raise PipelineError(
            f"{name}.training_step takes its batches by itself, from dataloader_iter.", f"Write {_WITH_STEP}."
        )


def _refuse_ranks() -> None:
    if (ranks := world_size()) > 1:
        raise PipelineError(
            f"The job has {ranks} ranks, whose gradients only Trainer.fit shares.",
            "Diagnose the script as it is: torchrun --nproc-per-node N -m bottleneck run train.py.",
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
    if not overrides(owner, "train_dataloader"):
        raise PipelineError(f"{name} has no train_dataloader().", f"Write {_CALL} or {_WITH_LOADER}.")
    remedy = f"It must work by itself; or give its loader: {_WITH_LOADER}."
    call_users_code(owner.prepare_data, f"{name}.prepare_data()", remedy)
    call_users_code(lambda: owner.setup("fit"), f"{name}.setup('fit')", remedy)
    found = call_users_code(owner.train_dataloader, f"{name}.train_dataloader()", remedy)
    return the_only_loader(found, f"{name}.train_dataloader()", _WITH_LOADER)


# --- hooks -------------------------------------------------------------------------------------------------

_TRANSFER_HOOKS = ("on_before_batch_transfer", "transfer_batch_to_device", "on_after_batch_transfer")


def _hook(name: str, module: Any, hooks: Any) -> Callable[..., Any] | None:
    """The user's hook, of the datamodule or else of the module, as Lightning chooses."""
    for owner in (hooks, module):
        if owner is not None and overrides(owner, name):
            method: Callable[..., Any] = getattr(owner, name)
            return method
    return None


def _transfer(before: Callable[..., Any] | None, move: Callable[..., Any] | None) -> Callable[[Any, torch.device], Any]:
    def transfer(batch: Any, device: torch.device) -> Any:
        if before is not None:
            batch = before(batch, 0)
        return move(batch, device, 0) if move is not None else move_to_device(batch, device, non_blocking=True)

    return transfer

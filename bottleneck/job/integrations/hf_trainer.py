"""Hugging Face's Trainer as a pipeline, without `trainer.train()`. transformers is not imported."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
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
    refuse_dispatched,
    the_only_loader,
)
from bottleneck.job.train_step import FrameworkStep

_CALL = "Pipeline.from_trainer(trainer)"


def trainer_fields(trainer: Any, *, own_step: bool) -> tuple[DataLoader[Any], dict[str, Any]]:
    """The loader of a Trainer, and the fields of its pipeline.

    Raises:
        PipelineError: Something else, a Trainer without a training set, or one that shards its model.
    """
    if not is_a(trainer, ("transformers",), "Trainer"):
        hint = " (is it Lightning's?)" if is_a(trainer, LIGHTNING, "Trainer") else ""
        raise PipelineError(
            f"Pipeline.from_trainer needs a transformers.Trainer, not {describe_value(trainer)}{hint}.",
            f"Write {_CALL}." if not hint else "Write Pipeline.from_lightning(module, datamodule).",
        )
    for flag, name in (("is_deepspeed_enabled", "DeepSpeed"), ("is_fsdp_enabled", "FSDP")):
        if getattr(trainer, flag, False) and not own_step:
            raise PipelineError(
                f"The Trainer shards its model with {name}, whose engine only trainer.train() makes.",
                "Write Pipeline.from_trainer(trainer, train_step=step), where step is a function of one batch.",
            )
    with random_numbers_kept(), _registrations_kept(trainer.accelerator):
        found = call_users_code(
            trainer.get_train_dataloader, "trainer.get_train_dataloader()", "Give the Trainer a train_dataset."
        )
    refuse_dispatched(found)
    fields: dict[str, Any] = {
        "model": trainer.model,
        "optimizer": trainer.optimizer,
        "device": trainer.args.device,
    }
    if not own_step:
        fields["train_step"] = TrainerStep(trainer)
    return the_only_loader(found, "trainer.get_train_dataloader()", _CALL), fields


@contextmanager
def _registrations_kept(accelerator: Any) -> Iterator[None]:
    """Let accelerate forget what is prepared here: it keeps a list of everything for its checkpoints."""
    lists = [getattr(accelerator, name, None) for name in ("_dataloaders", "_models", "_optimizers", "_schedulers")]
    kept = [(each, list(each)) for each in lists if isinstance(each, list)]
    try:
        yield
    finally:
        for each, items in kept:
            each[:] = items


class TrainerStep(FrameworkStep):
    """`trainer.training_step`, clipping and the optimizer's step; without callbacks, logging and saving."""

    def __init__(self, trainer: Any) -> None:
        super().__init__(trainer.model)
        self._trainer = trainer

    def prepare(self, optimizer: Any, device: torch.device) -> Callable[[Any], Any]:
        """Prepare model and optimizer as `trainer.train()` does.

        Raises:
            PipelineError: Another device than the Trainer's.
        """
        trainer, accelerator = self._trainer, self._trainer.accelerator
        wanted = torch.device(trainer.args.device)
        if wanted.type != device.type:
            raise PipelineError(
                f"The Trainer trains on {wanted}, not on {device}.",
                "Choose with TrainingArguments(use_cpu=True), or CUDA_VISIBLE_DEVICES.",
            )
        batches_per_step = max(1, int(trainer.args.gradient_accumulation_steps))
        trainer.current_gradient_accumulation_steps = batches_per_step
        if optimizer is not None:
            trainer.optimizer = optimizer
        elif trainer.optimizer is None:
            trainer.create_optimizer()
        with _registrations_kept(accelerator):
            several = trainer.args.n_gpu > 1  # the Trainer spreads its batches over all devices that it sees
            model = torch.nn.DataParallel(trainer.model) if several else accelerator.prepare_model(trainer.model)
            trainer.optimizer = accelerator.prepare_optimizer(trainer.optimizer)
        return _loop(trainer, model, trainer.optimizer, batches_per_step)


def _loop(trainer: Any, model: Any, optimizer: Any, batches_per_step: int) -> Callable[[Any], Any]:
    accelerator, limit = trainer.accelerator, trainer.args.max_grad_norm
    number = 0

    def train_on(batch: Any) -> Any:
        nonlocal number
        with accelerator.no_sync(model) if (number + 1) % batches_per_step else nullcontext():
            loss = trainer.training_step(model, batch)
        number += 1
        if number % batches_per_step == 0:
            if limit:
                accelerator.unscale_gradients(optimizer)
                torch.nn.utils.clip_grad_norm_(model.parameters(), limit)
            optimizer.step()
            model.zero_grad()
        return loss

    return train_on

"""accelerate: what `accelerator.prepare` gave back, as a pipeline. accelerate is not imported."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch.utils.data import DataLoader

from bottleneck.errors import PipelineError
from bottleneck.job.integrations.frameworks import describe_value, is_a, refuse_dispatched, the_only_loader
from bottleneck.job.train_step import FrameworkStep, make_default_step

_CALL = "Pipeline.from_accelerate(accelerator, model, optimizer, loader, loss_fn=loss_fn)"


def accelerate_fields(
    accelerator: Any, model: Any, optimizer: Any, loader: Any, loss_fn: Any, train_step: Any
) -> tuple[DataLoader[Any], dict[str, Any]]:
    """The loader of the user's own, and the fields of the pipeline.

    Raises:
        PipelineError: Objects of another kind, or a loader that loads for other processes too.
    """
    if not is_a(accelerator, ("accelerate",), "Accelerator"):
        raise PipelineError(
            f"Pipeline.from_accelerate needs an accelerate.Accelerator first, not {describe_value(accelerator)}.",
            f"Write {_CALL}.",
        )
    for name, value, wanted in (("model", model, torch.nn.Module), ("optimizer", optimizer, torch.optim.Optimizer)):
        if not isinstance(value, wanted) and not (name == "optimizer" and value is None):
            raise PipelineError(
                f"{name} is {describe_value(value)}, not a torch {wanted.__name__}.",
                f"In this order: {_CALL}.",
            )
    refuse_dispatched(loader)
    step = AccelerateStep(accelerator, model, loss_fn) if train_step is None else train_step
    return the_only_loader(loader, "loader", _CALL), {
        "model": model,
        "loss_fn": loss_fn,
        "optimizer": optimizer,
        "train_step": step,
        "device": accelerator.device,
    }


class AccelerateStep(FrameworkStep):
    """Forward, loss, `accelerator.backward` and the optimizer's step, with gradients gathered as the job does."""

    def __init__(self, accelerator: Any, model: Any, loss_fn: Callable[[Any, Any], Any] | None) -> None:
        super().__init__(model)
        self._accelerator = accelerator
        self._loss_fn = loss_fn

    def prepare(self, optimizer: Any, device: torch.device) -> Callable[[Any], Any]:
        """Take everything as it was prepared.

        Raises:
            PipelineError: Another device than the Accelerator's.
        """
        wanted = self._accelerator.device
        if wanted.type != device.type:
            raise PipelineError(
                f"The Accelerator trains on {wanted}, not on {device}.", "Choose with Accelerator(cpu=True)."
            )
        return make_default_step(
            self.model,
            self._loss_fn,
            optimizer,
            backward=self._accelerator.backward,
            batches_per_step=self._accelerator.gradient_accumulation_steps,
            gathering=functools.partial(self._accelerator.no_sync, self.model),
        )

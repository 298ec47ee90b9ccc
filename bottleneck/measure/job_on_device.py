"""The user's job on its device: how a batch gets there, and what trains on it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils.data import DataLoader

from bottleneck.job.description import Pipeline
from bottleneck.job.train_step import make_train_step, model_device
from bottleneck.job.transfer import copies_nothing, make_transfer
from bottleneck.measure.device import device_can_pin
from bottleneck.measure.explain_errors import NOT_THE_USERS, explain_step_failure
from bottleneck.measure.system.cores import usable_cores


@dataclass(frozen=True)
class JobOnDevice:
    """What a diagnosis runs."""

    pipeline: Pipeline
    loader: DataLoader[Any]
    """The user's own; it is never iterated."""
    device: torch.device
    copies: bool
    """There is a copy to the device."""
    pinned: bool
    """The loader's batches lie in pinned memory."""
    transfer: Callable[[Any], Any]
    step: Callable[[Any], Any]

    @staticmethod
    def of(pipeline: Pipeline, loader: DataLoader[Any], device: torch.device) -> JobOnDevice:
        copies, pinned = not copies_nothing(pipeline, device), bool(loader.pin_memory) and device_can_pin()
        # Walking through a batch of many Python objects, only to leave all of them where they are, takes its time.
        transfer = make_transfer(pipeline, device, pinned) if copies else lambda batch: batch
        return JobOnDevice(pipeline, loader, device, copies, pinned, transfer, make_train_step(pipeline, device))

    @property
    def on_cpu(self) -> bool:
        return self.device.type == "cpu"

    def move_model(self) -> None:
        """Move the model to the device, where the train step is the default one."""
        model = self.pipeline.model
        # A model that is spread over several devices has no device of its own, and stays where it is.
        if isinstance(model, torch.nn.Module) and self.pipeline.train_step is None and model_device(model) is not None:
            try:
                model.to(self.device)
            except NOT_THE_USERS:
                raise
            except BaseException as error:
                raise explain_step_failure(error, "device", "model, when moved to the device,") from error

    def warnings(self, workers: int) -> Iterator[tuple[str, str]]:
        """Yield (id, message) where the threads of a train step on the CPU and the workers are more than the cores."""
        cores, threads = usable_cores(), torch.get_num_threads()
        # Whether a step of the user's own computes on the CPU cannot be known.
        computes = self.on_cpu and self.pipeline.train_step is None
        if computes and threads > 1 and workers > 0 and threads + workers > cores:
            yield (
                "threads-share-cores",
                f"The train step runs on the CPU with {threads} threads, beside {workers} worker(s) on {cores:g} "
                "cores: its threads wait for each other. Call torch.set_num_threads("
                f"{max(1, int(cores) - workers)}) before the diagnosis and in the job.",
            )

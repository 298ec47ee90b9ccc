"""The user's job on its device: how a batch gets there, and what trains on it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils.data import DataLoader

from bottleneck.job.pipeline import Pipeline
from bottleneck.job.step import copies_nothing, make_train_step, make_transfer, model_device
from bottleneck.measure.device import device_can_pin, make_synchronize
from bottleneck.measure.explain_errors import NOT_THE_USERS, explain_step_failure
from bottleneck.measure.limits import usable_cores
from bottleneck.measure.loop import Loop

_ON_CPU = "the device is the CPU, so that nothing is copied"


@dataclass(frozen=True)
class JobOnDevice:
    """What a diagnosis runs."""

    pipeline: Pipeline
    loader: DataLoader[Any]
    """The user's own; it is never iterated."""
    device: torch.device
    not_copied: str
    """Why there is no copy to the device that can be left out; empty where there is one."""
    pinned: bool
    """The loader's batches lie in pinned memory."""
    transfer: Callable[[Any], Any]
    """Brings a batch of the loader to the device, before each step; a loop that does it by itself gets it as it is."""
    onto_device: Callable[[Any], Any]
    """Makes a batch of the `device` experiment from one of the loader; outside of timed blocks."""
    step: Callable[[Any], Any]
    loop_copies: bool = False
    """The step copies by itself."""

    @staticmethod
    def of(pipeline: Pipeline, loader: DataLoader[Any], device: torch.device, loop: Loop | None = None) -> JobOnDevice:
        loop = loop or Loop()
        pinned = bool(loader.pin_memory) and device_can_pin()
        not_copied = _ON_CPU if copies_nothing(pipeline, device) else loop.not_copied
        # Walking through a batch of many Python objects, only to leave all of them where they are, takes its time.
        transfer = onto_device = _as_it_is if not_copied else make_transfer(pipeline, device, pinned)
        if loop.copies:
            transfer, onto_device = _as_it_is, _waited_for(onto_device, make_synchronize(device))
        step = make_train_step(pipeline)
        return JobOnDevice(pipeline, loader, device, not_copied, pinned, transfer, onto_device, step, loop.copies)

    @property
    def copies(self) -> bool:
        """Whether there is a copy to the device that can be left out."""
        return not self.not_copied

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


def _as_it_is(batch: Any) -> Any:
    return batch


def _waited_for(onto_device: Callable[[Any], Any], synchronize: Callable[[], None]) -> Callable[[Any], Any]:
    """Let a copy be done before a loop gets the batch: it may read it in a stream of its own, without waiting."""

    def copy(batch: Any) -> Any:
        moved = onto_device(batch)
        synchronize()
        return moved

    return copy

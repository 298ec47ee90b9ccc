"""What stands at the beginning of a diagnosis: seeds, the model's place, and a warning."""

from __future__ import annotations

import random

import numpy as np
import torch

from bottleneck.job.description import Pipeline
from bottleneck.job.train_step import model_device
from bottleneck.measure.explain_errors import NOT_THE_USERS, explain_step_failure
from bottleneck.measure.system.cores import usable_cores


def seed_everything(seed: int) -> None:
    """Seed the generators that the user's code draws from."""
    random.seed(seed)
    np.random.seed(seed % 2**32)
    torch.manual_seed(seed)


def move_model(pipeline: Pipeline, device: torch.device) -> None:
    """Move the model to the device, where the train step is the default one.

    Raises:
        MeasurementError: It cannot be moved.
    """
    model = pipeline.model
    # A model that is spread over several devices has no device of its own, and stays where it is.
    if isinstance(model, torch.nn.Module) and pipeline.train_step is None and model_device(model) is not None:
        try:
            model.to(device)
        except NOT_THE_USERS:
            raise
        except BaseException as error:
            raise explain_step_failure(error, "device", "model, when moved to the device,") from error


def shared_cores_warning(pipeline: Pipeline, device: torch.device, workers: int) -> str | None:
    """Return a warning where the threads of a train step on the CPU and the workers are more than the cores."""
    if pipeline.train_step is not None:
        return None  # whether a step of the user's own computes on the CPU cannot be known
    cores, threads = usable_cores(), torch.get_num_threads()
    if device.type != "cpu" or threads <= 1 or workers <= 0 or threads + workers <= cores:
        return None
    return (
        f"The train step runs on the CPU with {threads} threads, beside {workers} worker(s) on {cores:g} "
        "cores: its threads wait for each other. Call torch.set_num_threads("
        f"{max(1, int(cores) - workers)}) before the diagnosis and in the job."
    )

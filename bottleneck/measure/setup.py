"""What stands at the beginning and the end of a diagnosis: the model's place, a warning, and Ctrl-C."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from bottleneck.job.description import Pipeline
from bottleneck.job.train_step import model_device
from bottleneck.measure.explain_errors import NOT_THE_USERS, explain_step_failure
from bottleneck.measure.system.cores import usable_cores


def move_model(pipeline: Pipeline, device: torch.device) -> None:
    """Move the model to the device, where the train step is the default one."""
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


@contextmanager
def no_interrupt() -> Iterator[None]:
    """Hold Ctrl-C back while things are put in order, which is bounded in time."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    previous = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, previous if previous is not None else signal.SIG_DFL)

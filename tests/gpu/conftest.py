"""Opens everything that a process on a GPU opens once and keeps, before the first test."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import pytest
import torch
from torch import nn

from bottleneck.measure.machine.nvml import Gpu, NoGpuError


@pytest.fixture(scope="session", autouse=True)
def drivers() -> Iterator[None]:
    """The libraries are initialised, whose pipes and threads are no leaks; Inductor starts no processes."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TORCHINDUCTOR_COMPILE_THREADS", "1")
        start_drivers(torch.device("cuda" if torch.cuda.is_available() else "cpu"))
        yield


def start_drivers(device: torch.device) -> None:
    """Use once what tests use: CUDA, pinned memory, cuBLAS, cuDNN, CUPTI and NVML."""
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.Flatten(), nn.Linear(8 * 6 * 6, 4)).to(device)
    images = torch.rand(2, 3, 8, 8)
    if device.type == "cuda":
        images = images.pin_memory()
    with torch.profiler.profile():  # of all that there is: CUPTI too
        model(images.to(device, non_blocking=True)).sum().backward()
    with contextlib.suppress(NoGpuError):
        usage = Gpu(device)
        usage.busy_shares(0.0)
        usage.close()

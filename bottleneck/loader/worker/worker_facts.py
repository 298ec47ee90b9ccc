"""What only a worker knows of itself: the threads of its libraries, and what it has inherited."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from typing import Any

import torch

from bottleneck.job.handles import Handle, is_inherited


@dataclass(frozen=True)
class WorkerFacts:
    """What one worker reports after it has made a batch.

    Attributes:
        torch_threads: Threads of an operation of PyTorch's.
        opencv_threads: The same of OpenCV's; None where it is not imported.
        omp_num_threads: The environment variable; None where it is not set.
        tokenizers_parallelism: The environment variable; None where it is not set.
        inherited: Names of what the dataset held open before this process was forked, and still uses.
    """

    torch_threads: int
    opencv_threads: int | None = None
    omp_num_threads: str | None = None
    tokenizers_parallelism: str | None = None
    inherited: tuple[str, ...] = ()


def look_at_worker(dataset: Any, handles: tuple[Handle, ...]) -> WorkerFacts:
    """Return the facts of the present process, in which the dataset held some handles open before it was started."""
    return WorkerFacts(
        torch_threads=torch.get_num_threads(),
        opencv_threads=_opencv_threads(),
        omp_num_threads=os.environ.get("OMP_NUM_THREADS"),
        tokenizers_parallelism=os.environ.get("TOKENIZERS_PARALLELISM"),
        inherited=tuple(handle.name for handle in handles if is_inherited(handle, dataset)),
    )


def _opencv_threads() -> int | None:
    # Only looked up: importing it here would change the process that is described.
    count = getattr(sys.modules.get("cv2"), "getNumThreads", None)
    try:
        return None if count is None else int(count())
    except Exception:  # noqa: BLE001 - a stand-in for the package that does not work like it
        return None

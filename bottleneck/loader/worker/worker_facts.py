"""What only a worker knows of itself: the threads of its libraries, and what it has inherited."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import torch

from bottleneck.job.inspect import Handle, is_inherited, walk
from bottleneck.loader.record.tape import Tape

_GREW_BY = 4
"""Entries that a container got since the first batch, from which on it grows with the samples."""


@dataclass(frozen=True)
class WorkerFacts:
    """What one worker reports after it has made a batch.

    Attributes:
        torch_threads: Threads of an operation of PyTorch's.
        opencv_threads: The same of OpenCV's; None where it is not imported.
        tokenizers_parallelism: The environment variable; None where it is not set.
        inherited: Names of what the dataset held open before this process was forked, and still uses.
        growing: Names of dicts in the dataset that grew from batch to batch, such as a cache of samples.
    """

    torch_threads: int
    opencv_threads: int | None = None
    tokenizers_parallelism: str | None = None
    inherited: tuple[str, ...] = ()
    growing: tuple[str, ...] = ()


def look_at_worker(
    dataset: Any, handles: tuple[Handle, ...], sizes: Mapping[str, int] = MappingProxyType({})
) -> WorkerFacts:
    """Return the facts of the present process.

    Args:
        dataset: As it is now.
        handles: What it held open before the process was started.
        sizes: `sizes_in` the dataset after its first batch.
    """
    return WorkerFacts(
        torch_threads=torch.get_num_threads(),
        opencv_threads=_opencv_threads(),
        tokenizers_parallelism=os.environ.get("TOKENIZERS_PARALLELISM"),
        inherited=tuple(handle.name for handle in handles if is_inherited(handle, dataset)),
        growing=tuple(name for name, size in sizes_in(dataset).items() if size >= sizes.get(name, size) + _GREW_BY),
    )


def sizes_in(dataset: Any) -> dict[str, int]:
    """Return the lengths of the dicts that a dataset holds, by their names, without what was cut into it.

    A list that grows is mostly a log.
    """
    held = walk(dataset, "self", stop_at=lambda value: isinstance(value, Tape))
    return {each.name: len(each.value) for each in held if isinstance(each.value, dict)}


def _opencv_threads() -> int | None:
    # Only looked up: importing it here would change the process that is described.
    count = getattr(sys.modules.get("cv2"), "getNumThreads", None)
    try:
        return None if count is None else int(count())
    except Exception:  # noqa: BLE001 - a stand-in for the package that does not work like it
        return None

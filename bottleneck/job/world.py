"""Number of processes of a job, by `torch.distributed` and by the launcher. Neither imports torch."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from typing import Any, NamedTuple


def world_size() -> int:
    """Return the number of ranks that share the work of this process; 1 if it is alone."""
    distributed: Any = sys.modules.get("torch.distributed")
    joined = distributed is not None and distributed.is_available() and distributed.is_initialized()
    return int(distributed.get_world_size()) if joined else 1


class Place(NamedTuple):
    """Position of this process among those that a launcher started."""

    size_name: str
    """Variable with the number of processes."""
    world: int
    rank: int | None
    local_rank: int | None
    """Rank on this host. Either rank is None if the launcher does not set it."""


_NAMES = (
    ("WORLD_SIZE", "RANK", "LOCAL_RANK"),
    ("OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_LOCAL_RANK"),
    ("PMI_SIZE", "PMI_RANK", "MPI_LOCALRANKID"),
    ("SLURM_STEP_NUM_TASKS", "SLURM_PROCID", "SLURM_LOCALID"),
)
"""Variables that launchers set in the processes that they start: torchrun, and so accelerate and Ray; Open MPI;
MPICH; srun. `SLURM_NTASKS` is not used, because the batch script that starts the tasks has it too."""


def find_place(environment: Mapping[str, str] | None = None) -> Place | None:
    """Return the position of this process; None if it is alone, or the launcher's values cannot be read.

    Args:
        environment: Variables of the process; None: of this one.
    """
    given = os.environ if environment is None else environment
    for size_name, *names in _NAMES:
        world = as_number(given.get(size_name))
        ranks = [as_number(given.get(name)) for name in names]
        readable = all(rank is not None or name not in given for name, rank in zip(names, ranks, strict=True))
        if world is not None and world > 1 and readable:
            return Place(size_name, world, *ranks)
    return None


_SIZES_OF_HOST = (
    "LOCAL_WORLD_SIZE",
    "OMPI_COMM_WORLD_LOCAL_SIZE",
    "MPI_LOCALNRANKS",
    "SLURM_STEP_TASKS_PER_NODE",
)
"""Numbers of processes per host, as the same launchers call them; srun writes it for all hosts: `4(x2),3`."""


def ranks_of_host(environment: Mapping[str, str] | None = None) -> int:
    """Return the number of ranks of the job that share this host and its memory; 1 if this process is alone.

    Args:
        environment: Variables of the process; None: of this one.
    """
    given = os.environ if environment is None else environment
    for name in _SIZES_OF_HOST:
        sizes = [as_number(part.partition("(")[0]) for part in given.get(name, "").split(",")]
        known = [size for size in sizes if size]
        if known:
            return max(known)
    # Ranks without a launcher were spawned by a process of this host.
    return world_size() if find_place(given) is None else 1


def as_number(text: str | None) -> int | None:
    """Return a non-negative whole number as launchers write it; None for other text."""
    return int(text) if text is not None and text.strip().isdecimal() else None

"""How many processes a job has: as `torch.distributed` knows it, and as the launcher said. Neither imports torch."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from typing import Any, NamedTuple


def world_size() -> int:
    """How many ranks share the work of this process; 1 where it is alone."""
    distributed: Any = sys.modules.get("torch.distributed")
    joined = distributed is not None and distributed.is_available() and distributed.is_initialized()
    return int(distributed.get_world_size()) if joined else 1


class Place(NamedTuple):
    """This process among those that a launcher started."""

    size_name: str
    """The variable that says how many there are."""
    world: int
    rank: int | None
    local_rank: int | None
    """Among those of this host. Either is None where the launcher does not say."""


_NAMES = (
    ("WORLD_SIZE", "RANK", "LOCAL_RANK"),
    ("OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_LOCAL_RANK"),
    ("PMI_SIZE", "PMI_RANK", "MPI_LOCALRANKID"),
    ("SLURM_STEP_NUM_TASKS", "SLURM_PROCID", "SLURM_LOCALID"),
)
"""What launchers put into the environment of the processes that they start: torchrun, and so accelerate and Ray; Open
MPI; MPICH; srun. `SLURM_NTASKS` is not among them: the batch script that starts the tasks has it too."""


def find_place(environment: Mapping[str, str] | None = None) -> Place | None:
    """This process among those of a launcher; None where it is alone, or what the launcher says cannot be read.

    Args:
        environment: Of the process; None: of this one.
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
"""What the same launchers call the number of processes of a host; srun writes it for all hosts: `4(x2),3`."""


def ranks_of_host(environment: Mapping[str, str] | None = None) -> int:
    """How many ranks of the job share this host and its memory; 1 where this process is alone.

    Args:
        environment: Of the process; None: of this one.
    """
    given = os.environ if environment is None else environment
    for name in _SIZES_OF_HOST:
        sizes = [as_number(part.partition("(")[0]) for part in given.get(name, "").split(",")]
        known = [size for size in sizes if size]
        if known:
            return max(known)
    # Ranks that no launcher has started were spawned by a process of this host.
    return world_size() if find_place(given) is None else 1


def as_number(text: str | None) -> int | None:
    """A whole number that is not negative, as a launcher writes it; None where it is none."""
    return int(text) if text is not None and text.strip().isdecimal() else None

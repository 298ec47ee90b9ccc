"""Whether the job looks like one rank of many: what the others take, and wait for, does not show in one process."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Mapping

import torch

from bottleneck.job.world import as_number, find_place

_SIZES = {"LOCAL_WORLD_SIZE": "processes on this machine", "SLURM_NTASKS": "tasks of the batch job"}
"""What else says of other processes."""


def rank_warnings(
    used: Collection[torch.device],
    environment: Mapping[str, str] | None = None,
    *,
    visible: int | None = None,
) -> Iterator[tuple[str, str]]:
    """Yield id and message where one process is diagnosed and there may be more of them.

    Args:
        used: The devices that the job computes on.
        environment: Of the process; None: of this one.
        visible: Number of CUDA devices; None: as torch counts them.
    """
    signs = _signs(used, os.environ if environment is None else environment, visible)
    if signs:
        yield (
            "one-rank-of-many",
            f"This process was diagnosed alone, and {' and '.join(signs)}. What other processes take of the same "
            "cores, disk and network, and what sharing gradients with them costs, is not in any number; a loader that "
            "is quick enough alone need not be beside the others. Give it its share of the cores (taskset -c), and "
            "measure while the others run.",
        )


def _signs(used: Collection[torch.device], environment: Mapping[str, str], visible: int | None) -> list[str]:
    place = find_place(environment)
    signs = [f"{place.size_name} says {place.world} processes"] if place is not None else []
    signs += [
        f"{name} says {size} {what}"
        for name, what in _SIZES.items()
        if (size := as_number(environment.get(name))) is not None and size > 1
    ]
    on_cuda = {device for device in used if device.type == "cuda"}
    if on_cuda:
        there = torch.cuda.device_count() if visible is None else visible
        if there > len(on_cuda):
            signs.append(f"{there} devices are visible, of which it uses {len(on_cuda)}")
    return signs

"""A script is diagnosed in one process: ranks wait for each other, and each would be at another experiment."""

from __future__ import annotations

from collections.abc import Mapping

from bottleneck.errors import UsageError

_SIZES = ("WORLD_SIZE", "OMPI_COMM_WORLD_SIZE")
"""What torchrun, accelerate and mpirun set in the processes that they start, and nobody else does."""


def refuse_ranks(environment: Mapping[str, str]) -> None:
    """Refuse a process that a launcher has started beside others.

    Raises:
        UsageError: It did, as far as the environment says.
    """
    for name in _SIZES:
        size = environment.get(name, "").strip()
        if size.isdigit() and int(size) > 1:
            raise _one_of_many(f"{name} is {size}", f"without a launcher and with {name} unset")


def refuse_group(size: int) -> None:
    """Refuse a script that has made a process group of so many ranks.

    Raises:
        UsageError: They are more than one.
    """
    if size > 1:
        raise _one_of_many(f"the script has joined a process group of {size}", "as one process, on one device")


def _one_of_many(sign: str, how: str) -> UsageError:
    return UsageError(
        f"Only a script that trains in one process can be diagnosed, and {sign}.",
        f"Start it {how}: bottleneck run train.py.",
    )

"""A script is diagnosed in one process: ranks wait for each other, and each would be at another experiment."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Mapping
from multiprocessing.process import BaseProcess
from typing import Any

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


class OneProcess:
    """While it is entered, training in processes that the script starts by itself is refused, or noticed.

    Args:
        refuse: Gets why a script cannot be diagnosed, before it starts its ranks.
    """

    _MODULES = ("torch.multiprocessing", "torch.multiprocessing.spawn")

    def __init__(self, refuse: Callable[[UsageError], None]) -> None:
        self._refuse = refuse
        self._start = BaseProcess.start
        self._start_ranks = sys.modules[self._MODULES[0]].start_processes
        self.has_started_any = False

    def __enter__(self) -> OneProcess:
        @functools.wraps(self._start)
        def start(process: BaseProcess) -> None:
            self.has_started_any = True
            self._start(process)

        BaseProcess.start = start  # type: ignore[method-assign, assignment]  # until the end
        self._put(self._ranks)
        return self

    def __exit__(self, *_: object) -> None:
        BaseProcess.start = self._start  # type: ignore[method-assign]  # as it was
        self._put(self._start_ranks)

    def _put(self, start_ranks: Callable[..., Any]) -> None:
        for name in self._MODULES:
            sys.modules[name].start_processes = start_ranks  # type: ignore[attr-defined]  # torch's

    def _ranks(self, fn: Any, args: Any = (), nprocs: int = 1, join: bool = True, *more: Any, **options: Any) -> Any:
        """What `torch.multiprocessing.spawn` does; a single rank that is waited for runs here, where it is seen."""
        if join and nprocs == 1:
            return fn(0, *args)
        if join:
            self._refuse(
                UsageError(
                    "Only a script that trains in one process can be diagnosed, and this one trains in "
                    f"{nprocs} processes of its own, by torch.multiprocessing.spawn.",
                    "Let it start a single one, by its own option or with CUDA_VISIBLE_DEVICES=0.",
                )
            )
        return self._start_ranks(fn, args, nprocs, join, *more, **options)


def _one_of_many(sign: str, how: str) -> UsageError:
    return UsageError(
        f"Only a script that trains in one process can be diagnosed, and {sign}.",
        f"Start it {how}: bottleneck run train.py.",
    )

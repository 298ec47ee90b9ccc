"""Ranks of a script: those of a launcher are diagnosed together, those that it starts by itself are not seen."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Mapping
from multiprocessing.process import BaseProcess
from typing import Any

from bottleneck.errors import UsageError
from bottleneck.job.world import find_place


def check_group(world: int, environment: Mapping[str, str] | None = None) -> None:
    """Refuse a script that was started in several processes which do not know of each other.

    Args:
        world: How many ranks the script's process group has; 1 without any.
        environment: Of the process; None: of this one.

    Raises:
        UsageError: Each would be diagnosed by itself.
    """
    place = find_place(environment)
    if world == 1 and place is not None:
        raise UsageError(
            f"{place.size_name} is {place.world}, and the script has joined no process group: each process would be "
            "diagnosed by itself, while the others take the same cores.",
            f"Start it without a launcher and with {place.size_name} unset: bottleneck run train.py.",
        )


class OwnRanks:
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

    def __enter__(self) -> OwnRanks:
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
                    f"This script trains in {nprocs} processes that it starts by torch.multiprocessing.spawn, and "
                    "those are not watched.",
                    "Let it start a single one, by its own option or with CUDA_VISIBLE_DEVICES=0; or let a launcher "
                    f"start them: torchrun --nproc-per-node {nprocs} -m bottleneck run train.py.",
                )
            )
        return self._start_ranks(fn, args, nprocs, join, *more, **options)

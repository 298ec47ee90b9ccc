"""Ranks of one job in invented time: a greenlet each, of which the one runs whose clock is furthest behind.

A rank has its own clock, workers and random numbers. Where ranks look into their store, and where they share
gradients, those that are behind catch up first: so a run is the same each time.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import greenlet
import torch
from torch import distributed
from torch.distributed import distributed_c10d
from torch.nn.parallel import DistributedDataParallel

from tests.locks.doors import Watch
from tests.locks.jobs import Step
from tests.locks.world import MAIN_THREAD, WORLD, Worker, draw_on, drawn_so_far


@dataclass
class Rank:
    """A rank that does not run."""

    number: int
    greenlet: greenlet.greenlet
    main_s: float
    drawn: Any
    workers: list[Worker] = field(default_factory=list)
    groups: int = 0
    """Number of groups that it has founded, each with separate keys."""
    is_met: bool = False
    """It waits for the others to share gradients."""
    outcome: Any = None

    @property
    def order(self) -> tuple[float, int]:
        return self.main_s, self.number

    @property
    def can_run(self) -> bool:
        return not self.greenlet.dead and not self.is_met


class Ranks:
    """All ranks of a job; `run` lets them run."""

    def __init__(self) -> None:
        self.all: list[Rank] = []
        self.running: Rank | None = None
        self.texts: dict[str, bytes] = {}

    def run(self, size: int, work: Callable[[int], Any]) -> list[Any]:
        """Return what a function of the rank's number returns on each rank."""

        def run_rank(number: int) -> None:
            self.all[number].outcome = work(number)

        self.all = [Rank(n, greenlet.greenlet(run_rank), WORLD.main_s, drawn_so_far()) for n in range(size)]
        self.texts.clear()
        while waiting := [rank for rank in self.all if not rank.greenlet.dead]:
            able = [rank for rank in waiting if rank.can_run]
            assert able, "all ranks that still run wait for one that has ended"
            self._resume(min(able, key=lambda rank: rank.order))
        WORLD.main_s = max(rank.main_s for rank in self.all)
        return [rank.outcome for rank in self.all]

    def _resume(self, rank: Rank) -> None:
        self.running, WORLD.main_s, WORLD.workers = rank, rank.main_s, rank.workers
        draw_on(rank.drawn)
        rank.greenlet.switch(rank.number)
        rank.main_s, rank.workers, rank.drawn = WORLD.main_s, WORLD.workers, drawn_so_far()
        self.running = None

    @property
    def present(self) -> Rank:
        """The rank that runs."""
        assert self.running is not None
        return self.running

    def catch_up(self) -> None:
        """Let the ranks run that are behind this one."""
        if self.running is None or threading.get_ident() != MAIN_THREAD:
            return
        order = WORLD.main_s, self.running.number
        if any(rank.order < order for rank in self.all if rank is not self.running and rank.can_run):
            _hub().switch()

    def meet(self, seconds: float) -> None:
        """Wait until all ranks are here, and let time pass on each."""
        self.catch_up()
        self.present.is_met = True
        if all(rank.is_met for rank in self.all):
            for rank in self.all:
                rank.is_met, rank.main_s = False, WORLD.main_s
        else:
            _hub().switch()
        WORLD.spend(seconds)

    def take_over(self) -> None:
        """Be the process group of torch. No rank is looked after: heartbeats come in real time."""
        Watch.look = lambda watch: None
        distributed.is_initialized = lambda: self.running is not None
        distributed.get_world_size = lambda group=None: len(self.all)
        distributed.get_rank = lambda group=None: self.present.number
        distributed.get_backend = lambda group=None: "gloo"
        distributed_c10d._get_default_store = lambda: None
        distributed_c10d.PrefixStore = lambda prefix, store: Store()


def _hub() -> greenlet.greenlet:
    return greenlet.getcurrent().parent


RANKS = Ranks()


class Store:
    """As of `torch.distributed`: that of the same number that each rank makes is the same one."""

    def __init__(self) -> None:
        RANKS.present.groups += 1
        self._prefix = f"{RANKS.present.groups}/"

    def _texts(self) -> dict[str, bytes]:
        RANKS.catch_up()
        return RANKS.texts

    def set(self, key: str, value: str) -> None:
        self._texts()[self._prefix + key] = value.encode()

    def get(self, key: str) -> bytes:
        return self._texts()[self._prefix + key]

    def multi_get(self, keys: list[str]) -> list[bytes]:
        return [self.get(key) for key in keys]

    def check(self, keys: list[str]) -> bool:
        return all(self._prefix + key in self._texts() for key in keys)

    def add(self, key: str, amount: int) -> int:
        found = int(self._texts().get(self._prefix + key, b"0")) + amount
        self.set(key, str(found))
        return found

    def compare_set(self, key: str, expected: str, desired: str) -> bytes:
        if not self.check([key]) and not expected:
            self.set(key, desired)
        return self.get(key)


class Wrapper(DistributedDataParallel):
    """A wrapper of a model that needs no process group."""

    static_graph = find_unused_parameters = False

    def __init__(self) -> None:
        torch.nn.Module.__init__(self)
        self.shares = True

    @contextmanager
    def no_sync(self) -> Iterator[None]:
        self.shares = False
        try:
            yield
        finally:
            self.shares = True


class SharingStep(Step):
    """A train step that shares gradients."""

    def __init__(self, seconds: float, sharing_s: float = 0.002) -> None:
        super().__init__(seconds)
        self.sharing_s, self.wrapper = sharing_s, Wrapper()

    def __call__(self, batch: Any) -> None:
        super().__call__(batch)
        if self.wrapper.shares:
            RANKS.meet(self.sharing_s)

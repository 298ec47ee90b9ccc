"""Invented time, and workers of a DataLoader that live in it: PyTorch's own worker loop, one greenlet for each.

A worker runs when the main process lets time pass or waits for a batch, and then for as long as its next batch takes by
its own clock. What goes through a queue is pickled, as between processes. So a whole diagnosis is the same each time.
"""

from __future__ import annotations

import io
import math
import os
import queue
import random
import threading
import time
from collections.abc import Callable
from multiprocessing.context import BaseContext
from multiprocessing.reduction import ForkingPickler
from pickle import Unpickler
from typing import Any

import greenlet
import psutil
import torch
import torch.multiprocessing
from torch.utils.data._utils import worker as torch_worker

START_S, RECEIVE_S = 0.05, 0.001
"""Time to start a worker, and to receive a batch."""
CORES = 8
MAIN_THREAD = threading.get_ident()
really_sleep = time.sleep


class World:
    """The clocks of the main process and of its workers, and what was noted of the batches that they made."""

    def __init__(self) -> None:
        self.main_s = 100.0
        self.workers: list[Worker] = []
        self.running: Worker | None = None
        """None: the main process."""
        self.computing_share = 1.0
        """The share of what functions take that they compute."""
        self.main_cpu_s = self.worker_cpu_s = 0.0
        self.preempts = False
        """Workers run side by side, so that a switch reaches one in the middle of a batch; else batch by batch."""
        self.noted: list[str] = []
        """The functions of the user's that ran for the present batch."""
        self.begin_step: Callable[[], None] = lambda: None
        """Called by each train step."""
        self.begin_batch: Callable[[], None] = lambda: None
        self.end_batch: Callable[[], None] = lambda: None
        """Called around each batch of a worker."""

    def now(self) -> float:
        return self.main_s if self.running is None else self.running.at_s

    def spend(self, seconds: float) -> None:
        """Let time pass for the running greenlet."""
        if threading.get_ident() != MAIN_THREAD:
            really_sleep(seconds)
        elif self.running is not None:
            self.running.at_s += seconds
            self.worker_cpu_s += self.computing_share * seconds
            if self.preempts:
                self.running.pause()
        else:
            self.main_s += seconds
            self.main_cpu_s += self.computing_share * seconds
            self.catch_up()

    def catch_up(self) -> None:
        """Run the workers that have begun by now."""
        while self.workers and (first := self.next_worker()).starts_s <= self.main_s:
            first.run()

    def next_worker(self) -> Worker:
        return min(self.workers, key=lambda worker: worker.starts_s)

    def receive(self, given: Queue, timeout: float | None) -> Any:
        """In the main process: wait for what comes first."""
        until_s = self.main_s + (math.inf if timeout is None else timeout)
        while True:
            came_s = given.first_s
            next_s = self.next_worker().starts_s
            if came_s <= max(self.main_s, min(next_s, until_s)) and came_s < math.inf:
                self.main_s = max(self.main_s, came_s)
                taken = given.take()
                self.spend(RECEIVE_S)
                return taken
            if next_s > until_s or next_s == math.inf:
                assert until_s < math.inf, "all workers are idle, and the main process waits for them"
                self.main_s = until_s
                raise queue.Empty
            self.next_worker().run()

    def take_over(self) -> None:
        """Be the time of this process; before bottleneck is imported, which keeps functions of `time`."""
        time.perf_counter = time.monotonic = self.now  # type: ignore[assignment]
        time.sleep = self.spend  # type: ignore[assignment]
        whole = psutil.cpu_times()
        still = type(whole)(*(0.0 for _ in whole))  # other virtual machines steal real time, not invented
        psutil.cpu_times = lambda percpu=False: [still] * (os.cpu_count() or 1) if percpu else still

    def be_the_machine(self) -> None:
        """Have eight cores, use them as functions do, and run the workers of all loaders; for what decides by that."""
        os.cpu_count = lambda: CORES
        os.sched_getaffinity = lambda pid: set(range(CORES))  # type: ignore[attr-defined]
        time.process_time = lambda: self.main_cpu_s if self.running is None else self.worker_cpu_s
        # The clock of another process; all workers have the process in common.
        time.clock_gettime = lambda clock: self.worker_cpu_s / max(1, len(self.workers))  # type: ignore[assignment]
        for name in ("Queue", "Event", "Process"):
            setattr(torch.multiprocessing, name, getattr(Context(), name))


WORLD = World()


class _Pickler(ForkingPickler):
    """Copies tensors, and leaves objects of this module unchanged."""

    def __init__(self, file: io.BytesIO) -> None:
        super().__init__(file)
        self.kept: list[Any] = []

    def persistent_id(self, obj: Any) -> int | None:
        if not isinstance(obj, torch.Tensor | Queue | Event):
            return None
        self.kept.append(obj.detach().clone() if isinstance(obj, torch.Tensor) else obj)
        return len(self.kept) - 1


class _Unpickler(Unpickler):
    def __init__(self, file: io.BytesIO, kept: list[Any]) -> None:
        super().__init__(file)
        self.persistent_load = kept.__getitem__  # type: ignore[method-assign]


def sent(obj: Any) -> Callable[[], Any]:
    """Pickle an object, and return a function that unpickles it."""
    file = io.BytesIO()
    pickler = _Pickler(file)
    pickler.dump(obj)
    return lambda: _Unpickler(io.BytesIO(file.getvalue()), pickler.kept).load()


class Queue:
    """As of `multiprocessing`, between greenlets."""

    def __init__(self) -> None:
        self._items: list[tuple[float, int, Callable[[], Any]]] = []
        self._put = 0

    @property
    def first_s(self) -> float:
        """Return the time at which the first thing in it was put there."""
        return min(self._items)[0] if self._items else math.inf

    def put(self, obj: Any) -> None:
        self._put += 1
        self._items.append((WORLD.now(), self._put, sent(obj)))
        if WORLD.running is not None:
            WORLD.end_batch()

    def take(self) -> Any:
        first = min(self._items)
        self._items.remove(first)
        return first[2]()

    def get(self, block: bool = True, timeout: float | None = None) -> Any:
        if WORLD.running is None:
            return WORLD.receive(self, timeout)
        WORLD.running.main.switch()
        WORLD.begin_batch()
        return self.take()

    def qsize(self) -> int:
        return sum(at_s <= WORLD.now() for at_s, *_ in self._items)

    def close(self) -> None:
        """Nothing to close."""

    cancel_join_thread = join_thread = close


class Event(threading.Event):
    """As of `multiprocessing`, between greenlets."""


def drawn_so_far() -> tuple[Any, torch.Tensor]:
    return random.getstate(), torch.get_rng_state()


def draw_on(state: tuple[Any, torch.Tensor]) -> None:
    random.setstate(state[0])
    torch.set_rng_state(state[1])


class Worker:
    """A worker process that is none."""

    daemon = True
    exitcode = None

    def __init__(self, target: Callable[..., None], args: tuple[Any, ...]) -> None:
        self._target, self._args = target, sent(args)
        self.pid = os.getpid()
        self.at_s = math.inf
        self._info, self._drawn = None, None
        self._asked, self._paused = next(arg for arg in args if isinstance(arg, Queue)), False
        self.main: greenlet.greenlet | None = None
        """The greenlet that lets it run."""
        self._greenlet = greenlet.greenlet(lambda: self._target(*self._args()))

    def start(self) -> None:
        self.at_s = WORLD.now() + START_S
        WORLD.workers.append(self)
        self.run()

    @property
    def starts_s(self) -> float:
        """Return the time at which it begins what it is asked for next, or continues with it."""
        if not self.is_alive():
            return math.inf
        return self.at_s if self._paused else max(self.at_s, self._asked.first_s)

    def pause(self) -> None:
        """Let the others run until its time has come."""
        self._paused = True
        self.main.switch()
        self._paused = False

    def run(self) -> None:
        """Let it make one batch, or go on with it."""
        if self._greenlet:
            self.at_s = self.starts_s
        self.main = self._greenlet.parent = greenlet.getcurrent()
        of_main = drawn_so_far()
        draw_on(self._drawn or of_main)
        WORLD.running, torch_worker._worker_info = self, self._info
        try:
            self._greenlet.switch()
        finally:
            WORLD.running, self._info, torch_worker._worker_info = None, torch_worker._worker_info, None
            self._drawn = drawn_so_far()
            draw_on(of_main)

    def is_alive(self) -> bool:
        return not self._greenlet.dead

    def join(self, timeout: float | None = None) -> None:
        while self.is_alive() and self.starts_s < math.inf:
            self.run()
        if not self.is_alive() and self in WORLD.workers:
            WORLD.workers.remove(self)

    def close(self) -> None:
        """Nothing to close."""


class Context(BaseContext):
    """The `multiprocessing_context` of a loader."""

    _name = "fork"

    def get_start_method(self, allow_none: bool = False) -> str:
        return self._name

    def Queue(self, maxsize: int = 0) -> Any:
        return Queue()

    def Event(self) -> Any:
        return Event()

    def Process(self, target: Callable[..., None], args: tuple[Any, ...]) -> Any:
        return Worker(target, args)

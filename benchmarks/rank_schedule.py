"""What the schedule for many ranks costs: requests to the job's store, and time lost to the slowest. A simulation.

`python -m benchmarks.rank_schedule` writes `benchmarks/RANK_SCHEDULE.md`.

The ranks run the code that talks to the store, each in a thread of its own; time and the store are simulated. The
store is one server that answers one request after the other.
"""

from __future__ import annotations

import heapq
import threading
from collections.abc import Callable
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np

from bottleneck.measure.ranks.group import Group

PAGE = Path(__file__).with_name("RANK_SCHEDULE.md")
WORLDS = (2, 8, 64, 256, 1024)
_STACK_BYTES = 256 * 1024
"""Of the thread of a rank."""


@dataclass(frozen=True)
class Schedule:
    """What is simulated; times in seconds."""

    world: int
    visits: int = 2
    """A round has as many as the ladder has arms, about 14, which are alike."""
    block_s: float = 0.5
    spread: float = 0.02
    """Standard deviation between ranks of what a block takes, as a part of it."""
    round_trip_s: float = 100e-6
    service_s: float = 20e-6
    """What the store takes for a request; torch's takes about 60 µs where its clients share its two cores."""


@dataclass
class Traffic:
    """What came of it."""

    requests: np.ndarray
    """Of each rank."""
    bytes_moved: np.ndarray
    round_s: float = 0.0
    store_busy_s: float = 0.0
    slowest_s: float = 0.0
    """What ranks wait for the slowest block, on average."""
    agreeing_s: float = 0.0
    """What the visits take beside the slowest blocks."""


class _Simulation:
    """Simulated time. Of all threads one runs at a time, until it waits for something."""

    def __init__(self, schedule: Schedule) -> None:
        self._schedule = schedule
        self.now = self._free = self.busy_s = 0.0
        self.values: dict[str, bytes] = {}
        self._events: list[tuple[float, int, threading.Semaphore, Callable[[], Any] | None]] = []
        self._order = count()
        self._handed_back = threading.Semaphore(0)
        self._own = threading.local()

    def run(self, ranks: list[Callable[[], None]]) -> None:
        """Let all ranks go on until each has ended."""
        before = threading.stack_size(_STACK_BYTES)
        for rank in ranks:
            turn = threading.Semaphore(0)
            threading.Thread(target=self._live, args=(rank, turn), daemon=True).start()
            self._at(0.0, turn)
        threading.stack_size(before)
        while self._events:
            self.now, _, turn, serve = heapq.heappop(self._events)
            if serve is None:
                turn.release()
                self._handed_back.acquire()
                continue
            serve()
            self._free = max(self._free, self.now) + self._schedule.service_s
            self.busy_s += self._schedule.service_s
            self._at(self._free + self._schedule.round_trip_s / 2, turn)

    def _live(self, rank: Callable[[], None], turn: threading.Semaphore) -> None:
        self._own.turn = turn
        turn.acquire()
        rank()
        self._handed_back.release()

    def _at(self, when: float, turn: threading.Semaphore, serve: Callable[[], Any] | None = None) -> None:
        heapq.heappush(self._events, (when, next(self._order), turn, serve))

    def _wait(self) -> None:
        self._handed_back.release()
        self._own.turn.acquire()

    def clock(self) -> float:
        """Seconds from the beginning."""
        return self.now

    def sleep(self, seconds: float) -> None:
        """Let a rank wait."""
        self._at(self.now + seconds, self._own.turn)
        self._wait()

    def ask(self, serve: Callable[[dict[str, bytes]], Any]) -> Any:
        """What the store answers to a request of a rank."""
        found: list[Any] = []
        half_s = self._schedule.round_trip_s / 2
        self._at(self.now + half_s, self._own.turn, lambda: found.append(serve(self.values)))
        self._wait()
        return found[0]


class _Store:
    """The store, as a rank asks it."""

    def __init__(self, ask: Callable[[Callable[[dict[str, bytes]], Any]], Any]) -> None:
        self._ask = ask

    def set(self, key: str, value: str) -> None:
        self._ask(lambda values: values.update({key: value.encode()}))

    def get(self, key: str) -> bytes:
        return bytes(self._ask(lambda values: values[key]))

    def multi_get(self, keys: list[str]) -> list[bytes]:
        return list(self._ask(lambda values: [values[key] for key in keys]))

    def check(self, keys: list[str]) -> bool:
        return bool(self._ask(lambda values: all(key in values for key in keys)))

    def add(self, key: str, amount: int) -> int:
        def counted(values: dict[str, bytes]) -> int:
            values[key] = str(int(values.get(key, b"0")) + amount).encode()
            return int(values[key])

        return int(self._ask(counted))

    def compare_set(self, key: str, expected: str, desired: str) -> bytes:
        return bytes(
            self._ask(lambda values: values.setdefault(key, desired.encode()) if not expected else values[key])
        )


def simulate(schedule: Schedule, seed: int = 0) -> Traffic:
    """The visits of a schedule."""
    world = schedule.world
    drawn = np.random.default_rng(seed).normal(1.0, schedule.spread, (schedule.visits, world))
    blocks = schedule.block_s * np.maximum(drawn, 0.1)
    simulation = _Simulation(schedule)
    groups = [Group(_Store(simulation.ask), rank, world, simulation.clock, simulation.sleep) for rank in range(world)]

    def run(group: Group) -> None:
        for block_s in blocks[:, group.rank]:
            if group.leads:
                group.announce("a visit")
            else:
                group.hear()
            group.meet()
            simulation.sleep(float(block_s))

    simulation.run([lambda group=group: run(group) for group in groups])  # type: ignore[misc]  # the group of each
    slowest = blocks.max(axis=1)
    stores = [group.store for group in groups]
    return Traffic(
        np.array([store.requests for store in stores]) / schedule.visits,
        np.array([store.bytes_moved for store in stores]) / schedule.visits,
        simulation.now / schedule.visits,
        simulation.busy_s / schedule.visits,
        float((slowest - blocks.mean(axis=1)).mean()),
        float(simulation.now - slowest.sum()) / schedule.visits,
    )


# --- the page ---------------------------------------------------------------------------------------------


def table() -> str:
    """The figures of all sizes."""
    rows = [[f"{world:,}", *_figures(simulate(Schedule(world)))] for world in WORLDS]
    head = ["ranks", "requests of rank 0", "of another", "KiB of another", "at the store", "store busy", "agreeing",
            "waiting for the slowest"]  # fmt: skip
    return "\n".join(f"| {' | '.join(cells)} |" for cells in [head, ["--:"] * len(head), *rows])


def _figures(traffic: Traffic) -> list[str]:
    others = traffic.requests[1:]
    return [
        f"{traffic.requests[0]:,.0f}",
        f"{others.mean():,.0f}",
        f"{traffic.bytes_moved[1:].mean() / 1024:.1f}",
        f"{traffic.requests.sum():,.0f}",
        f"{traffic.store_busy_s / traffic.round_s:.0%}",
        f"{traffic.agreeing_s * 1e3:,.0f} ms",
        f"{traffic.slowest_s * 1e3:.0f} ms",
    ]


def page() -> str:
    """The page that is kept."""
    one = Schedule(1024)
    return f"""# A schedule for many ranks: a simulation

Written by `python -m benchmarks.rank_schedule`, not edited by hand.

Figures of one visit; a round has about 14. Its block of {one.block_s * 1e3:.0f} ms takes each rank another time, with a
standard deviation of {one.spread:.0%}. The ranks run the code of the package that talks to the store; time and the
store are simulated. A request travels {one.round_trip_s * 1e6:.0f} µs, and the store takes
{one.service_s * 1e6:.0f} µs for it, one after the other. Signs of life are not in it: three requests a second of each
rank, less often with many ranks. Nothing here was measured on so many machines.

{table()}

What ranks ask is nearly all waiting: for what comes next, until the slowest has ended its block. Their pauses grow with
the number of ranks, so that the store keeps up; what they lose by it is the column 'agreeing'.
"""


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
    print(PAGE.read_text(encoding="utf-8"))

"""What a schedule for many ranks costs: requests to the job's store, and time lost to the slowest. A simulation.

`python -m benchmarks.rank_schedule` writes `benchmarks/RANK_SCHEDULE.md`.

In a visit, rank 0 announces what comes next; ranks agree on a few numbers, each by handing its own to rank 0, which
answers all; then all run the block. Who waits looks into the store now and then, with ever longer pauses up
to a longest one. The store is one server that answers one request after the other.
"""

from __future__ import annotations

import heapq
from collections.abc import Generator, Iterator
from dataclasses import dataclass, field, replace
from itertools import count
from pathlib import Path

import numpy as np

PAGE = Path(__file__).with_name("RANK_SCHEDULE.md")
_BYTES = {"set": 40, "get": 40, "check": 32}
"""Of a request with its key and answer, about."""


@dataclass(frozen=True)
class Schedule:
    """What is simulated; times in seconds."""

    world: int
    visits: int = 1
    """A round has as many as the ladder has arms, about 14, which are alike."""
    agreements: int = 2
    """Of a visit: how long to warm up, and whether to repeat."""
    block_s: float = 0.5
    spread: float = 0.02
    """Standard deviation between ranks of what a block takes, as a part of it."""
    round_trip_s: float = 100e-6
    service_s: float = 20e-6
    """What the store takes for a request; torch's takes about 60 µs where its clients share its two cores."""
    shortest_pause_s: float = 1e-4
    longest_pause_s: float = 5e-3


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


Request = tuple[str, str]
Process = Generator[Request | float, bool | None, None]


@dataclass
class _Simulation:
    schedule: Schedule
    now: float = 0.0
    free: float = 0.0
    keys: set[str] = field(default_factory=set)
    queue: list[tuple[float, int, int, Request | None, bool | None]] = field(default_factory=list)

    def run(self, processes: list[Process], traffic: Traffic) -> None:
        """Let all ranks go on until each has ended; a request arrives, is answered in its turn, and comes back."""
        order = count()
        half_s = self.schedule.round_trip_s / 2
        for rank in range(len(processes)):
            heapq.heappush(self.queue, (0.0, next(order), rank, None, None))
        while self.queue:
            self.now, _, rank, request, answer = heapq.heappop(self.queue)
            if request is not None:
                at = self._serve(request, rank, traffic)
                heapq.heappush(self.queue, (at + half_s, next(order), rank, None, self._answer(request)))
                continue
            try:
                wanted = processes[rank].send(answer)
            except StopIteration:
                traffic.round_s = max(traffic.round_s, self.now)
                continue
            if isinstance(wanted, float):
                heapq.heappush(self.queue, (self.now + wanted, next(order), rank, None, None))
            else:
                heapq.heappush(self.queue, (self.now + half_s, next(order), rank, wanted, False))

    def _serve(self, request: Request, rank: int, traffic: Traffic) -> float:
        kind, _ = request
        self.free = max(self.free, self.now) + self.schedule.service_s
        traffic.store_busy_s += self.schedule.service_s
        traffic.requests[rank] += 1
        traffic.bytes_moved[rank] += _BYTES[kind]
        return self.free

    def _answer(self, request: Request) -> bool:
        kind, key = request
        if kind == "set":
            self.keys.add(key)
        return key in self.keys


def simulate(schedule: Schedule, seed: int = 0) -> Traffic:
    """The visits of a schedule."""
    world = schedule.world
    drawn = np.random.default_rng(seed).normal(1.0, schedule.spread, (schedule.visits, world))
    blocks = schedule.block_s * np.maximum(drawn, 0.1)
    traffic = Traffic(np.zeros(world, int), np.zeros(world, int))
    simulation = _Simulation(schedule)
    simulation.run([_rank(schedule, rank, blocks[:, rank]) for rank in range(world)], traffic)
    slowest = blocks.max(axis=1)
    traffic.slowest_s = float((slowest - blocks.mean(axis=1)).sum())
    traffic.agreeing_s = traffic.round_s - float(slowest.sum())
    return traffic


def _rank(schedule: Schedule, rank: int, blocks: np.ndarray) -> Process:
    """What one rank does."""
    for visit, block_s in enumerate(blocks):
        if rank == 0:
            yield "set", f"next/{visit}"
        else:
            yield from _get(schedule, f"next/{visit}")
        for number in range(schedule.agreements):
            yield from _agree(schedule, rank, f"agree/{visit}/{number}")
        yield float(block_s)
        yield from _agree(schedule, rank, f"end/{visit}")


def _agree(schedule: Schedule, rank: int, key: str) -> Process:
    yield "set", f"{key}/{rank}"
    if rank:
        yield from _get(schedule, key)
        return
    for other in range(schedule.world):
        yield from _get(schedule, f"{key}/{other}")
    yield "set", key


def _get(schedule: Schedule, key: str) -> Process:
    pause_s = schedule.shortest_pause_s
    while not (yield "check", key):
        yield pause_s
        pause_s = min(2 * pause_s, schedule.longest_pause_s)
    yield "get", key


# --- the page ---------------------------------------------------------------------------------------------

WORLDS = (8, 64, 256, 1024)


def variants(world: int) -> Iterator[tuple[str, Schedule]]:
    """The schedule as it is, and with pauses that grow with the ranks."""
    plain = Schedule(world)
    yield "5 ms", plain
    if world > 64:
        patient = replace(plain, shortest_pause_s=2e-3, longest_pause_s=world * plain.service_s * 4)
        yield f"{patient.longest_pause_s * 1e3:.0f} ms", patient


def table() -> str:
    """The figures of all sizes."""
    rows = []
    for world in WORLDS:
        for pauses, schedule in variants(world):
            rows.append([f"{world:,}", pauses, *_figures(simulate(schedule), schedule)])
    head = ["ranks", "longest pause", "requests of rank 0", "of another", "KiB of another", "at the store",
            "store busy", "agreeing", "waiting for the slowest"]  # fmt: skip
    return "\n".join(f"| {' | '.join(cells)} |" for cells in [head, ["--:"] * len(head), *rows])


def _figures(traffic: Traffic, schedule: Schedule) -> list[str]:
    others = traffic.requests[1:]
    return [
        f"{traffic.requests[0]:,}",
        f"{others.mean():,.0f}",
        f"{traffic.bytes_moved[1:].mean() / 1024:.1f}",
        f"{traffic.requests.sum():,}",
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
standard deviation of {one.spread:.0%}. There is one announcement, {one.agreements} agreements before its block and one
behind it. A request travels {one.round_trip_s * 1e6:.0f} µs, and the store takes {one.service_s * 1e6:.0f} µs for it,
one after the other. Signs of life are not in it: one request a second of each rank, and two for each rank of the first.
Pauses and messages are set by hand, and that there are two agreements is assumed: nothing measures ranks by such a
schedule yet, and nothing here was measured on so many machines.

{table()}

Rank 0 asks the store for the word of each rank by itself, so that its requests grow with the ranks: that is the cost of
an agreement. What the others ask is nearly all waiting: with pauses of 5 ms at most, a thousand ranks ask for more than
one store can answer, and each request of rank 0 stands in that queue. Pauses that grow with the ranks avoid it.
"""


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
    print(PAGE.read_text(encoding="utf-8"))

"""`bottleneck doctor` under a launcher: each rank says what it sees, and the first one tells how they differ.

What ranks say travels by the launcher's own store, under keys of ours; no process group is made.
"""

from __future__ import annotations

import os
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Protocol

from bottleneck.doctor.finding import Finding, first_line
from bottleneck.doctor.rank_view import RankView, differences, look_around, spans
from bottleneck.job.world import as_number, find_place
from bottleneck.results.format import plural

PATIENCE_S = 60.0
"""For the ranks to say what they see: some begin later than others."""
MOST_LINES = 16
"""Ranks that are told one by one."""
_POLL_S = 0.05


class Store(Protocol):
    """What is used of a store of torch's."""

    def set(self, key: str, value: str) -> None:
        """Keep a value."""

    def get(self, key: str) -> bytes:
        """A value that is there."""

    def check(self, keys: list[str]) -> bool:
        """Whether all of these are there."""


@dataclass(frozen=True)
class Launch:
    """This process among those that a launcher started."""

    rank: int
    world: int
    local_rank: int
    address: str
    port: int
    store_is_there: bool
    """The launcher has a store at the address; else the first rank opens one."""
    attempt: str

    def key(self, rank: int) -> str:
        """Where a rank says what it sees; another attempt finds other keys."""
        return f"bottleneck/doctor/{self.attempt}/{rank}"


def find_launch(environment: Mapping[str, str] | None = None) -> Launch | None:
    """This process among many, by what launchers put into the environment; None where it is alone, or cannot tell."""
    given = os.environ if environment is None else environment
    place, address, port = find_place(given), given.get("MASTER_ADDR"), as_number(given.get("MASTER_PORT"))
    if place is None or place.rank is None or place.rank >= place.world or not address or port is None:
        return None
    is_there = given.get("TORCHELASTIC_USE_AGENT_STORE") == "True"
    attempt = given.get("TORCHELASTIC_RESTART_COUNT", "0")
    return Launch(place.rank, place.world, place.local_rank or 0, address, port, is_there, attempt)


def examine_place(environment: Mapping[str, str] | None = None) -> Iterator[Finding]:
    """What hinders a process of a launcher that cannot find the others; nothing where it is alone."""
    given = os.environ if environment is None else environment
    place = find_place(given)
    if place is not None and not {"MASTER_ADDR", "MASTER_PORT"} <= given.keys():
        message = f"{place.size_name} is {place.world}, but nothing says where the other ranks are"
        yield Finding("warning", "ranks", message, _ADDRESS)


def ask_ranks(launch: Launch, findings: Sequence[Finding], patience_s: float = PATIENCE_S) -> list[Finding]:
    """What all ranks see, and how they differ; of any but the first rank nothing, once it has said what it sees."""
    own = look_around(launch.rank, launch.local_rank, findings)
    try:
        store = _store(launch, patience_s)
        store.set(launch.key(launch.rank), own.to_text())
        if launch.rank:
            store.check([launch.key(launch.rank)])  # an answer: what was said has arrived
            return []
        views = _collect(store, launch, patience_s)
    except (ImportError, RuntimeError, ValueError) as error:  # no torch, no store, or a rank of another version
        return [Finding("warning", "ranks", f"the other ranks could not be asked: {first_line(error)}", _UNREACHABLE)]
    return list(examine_ranks(views, launch.world))


_ADDRESS = "Export MASTER_ADDR and MASTER_PORT: the host of rank 0, and a port that is free there."
_UNREACHABLE = "Look whether MASTER_ADDR and MASTER_PORT can be reached from every host."


def _store(launch: Launch, patience_s: float) -> Store:
    from torch.distributed import TCPStore  # type: ignore[attr-defined]  # torch's own, documented

    opens = launch.rank == 0 and not launch.store_is_there
    patience = timedelta(seconds=patience_s)
    return TCPStore(launch.address, launch.port, None, opens, patience, wait_for_workers=False)


def _collect(
    store: Store,
    launch: Launch,
    patience_s: float,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> list[RankView]:
    """What the ranks see that say so in time."""
    until, missing, views = clock() + patience_s, list(range(launch.world)), []
    while missing:
        key = launch.key(missing[0])
        if store.check([key]):
            views.append(RankView.of_text(store.get(key)))
            missing.pop(0)
        elif clock() < until:
            sleep(_POLL_S)
        else:
            missing.pop(0)  # those behind it may have answered: each is looked for once more
    return views


def examine_ranks(views: Sequence[RankView], world: int) -> Iterator[Finding]:
    """What each rank sees, what hinders one of them, and how they differ."""
    yield _answered(views, world)
    for view in views[:MOST_LINES]:
        yield Finding("ok", f"rank {view.rank}", view.line)
    if len(views) > MOST_LINES:
        yield Finding("ok", "ranks", f"{plural(len(views) - MOST_LINES, 'more rank')}; what differs is below")
    for view in views:
        yield from _hindered(view)
    yield from _shared_cores(views)
    for subject, values in differences(views).items():
        told = "; ".join(f"{value} on {_ranks(ranks)}" for value, ranks in values.items())
        yield Finding("warning", subject, f"differs: {told}", "Every step waits for the slowest rank.")


def _answered(views: Sequence[RankView], world: int) -> Finding:
    hosts = plural(len({view.host for view in views}), "host")
    missing = sorted(set(range(world)) - {view.rank for view in views})
    if missing:
        message = f"{len(views)} of {world} answered, on {hosts}: nothing was heard of {_ranks(missing)}"
        return Finding("warning", "ranks", message, "Look at their output: they ended, or cannot reach the store.")
    return Finding("ok", "ranks", f"{world} on {hosts}")


def _hindered(view: RankView) -> Iterator[Finding]:
    """What one rank cannot do; the problems of the first are told among its own findings."""
    if view.rank:
        yield from (Finding("problem", f"rank {view.rank}", problem) for problem in view.problems)
    if view.device_numa_node is not None and view.numa_nodes and view.device_numa_node not in view.numa_nodes:
        yield Finding(
            "warning", f"rank {view.rank}",
            f"its cores are on NUMA node {spans(view.numa_nodes)}, its device is on {view.device_numa_node}",
            f"numactl --cpunodebind={view.device_numa_node} --membind={view.device_numa_node}",
        )  # fmt: skip


def _shared_cores(views: Sequence[RankView]) -> Iterator[Finding]:
    """What ranks of one host have to share, where they may use the same cores."""
    hosts = defaultdict(list)
    for view in views:
        hosts[view.host].append(view)
    for host, here in hosts.items():
        cores = set().union(*(view.cpus for view in here))
        if cores and len(cores) < sum(len(view.cpus) for view in here):
            each = len(cores) / len(here)
            message = f"{plural(len(here), 'rank')} of {host} share {plural(len(cores), 'core')}, {each:.2g} for each"
            few = each < 2
            yield Finding("warning" if few else "ok", "cores", message, _FEW_CORES if few else "")


_FEW_CORES = "A rank's workers have to be fewer than its share of the cores, or its loader waits for them."


def _ranks(numbers: Sequence[int]) -> str:
    return f"rank{'' if len(numbers) == 1 else 's'} {spans(numbers)}"

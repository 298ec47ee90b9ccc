"""Growth of the memory of a monitored run: by the hour, what grows, and when none is left."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Literal

from bottleneck.results.format import long_duration, names, plural, significant, size, whole
from bottleneck.results.monitor import Memory, Monitored
from bottleneck.results.records import Interval

SETTLED_S = 120.0
"""Seconds after the first look at a process in which it may still fill caches that have an end."""
MIN_SPAN_S = 300.0
"""Seconds over which growth is judged, at least."""
_MIN_LOOKS = 5
MIN_BYTES_PER_HOUR = 50 << 20
"""Growth of all workers of a rank, or of its main process, below which nothing is said."""
_WORTH_SHARE = 0.05
"""Growth of a process as a share of that of the fastest, below which it is left out."""
_HOUR_S = 3600.0
_EXPLAINED = 0.3
"""Share of the growth of a process that a container has to explain, by its estimated memory."""
_COPIED = 0.5
"""Share of the growth of private memory that resident memory may have if shared pages become copies."""
_BLOCK_BYTES = 100
"""Bytes of a Python object on average; rather high."""
_MAX_LOOKS = 300
_Z = 1.645
"""Standard deviations of Kendall's statistic on either side, for 90 %."""

Kind = Literal["container", "copies", "objects", "other"]


@dataclass(frozen=True)
class Growth:
    """Growth of the memory of a process.

    Attributes:
        rank, worker, pid: The process; its worker is None for the main process.
        private_bytes: Its memory at the last look.
        bytes_per_hour: By the method of Theil and Sen, with an interval of 90 %.
        kind: What grows: a container, copies of pages that were shared, Python objects, or memory outside them.
        container: Its name; empty if none grows.
        before, after: Its entries.
    """

    rank: int
    worker: int | None
    pid: int
    private_bytes: int
    bytes_per_hour: Interval
    kind: Kind
    container: str = ""
    before: int = 0
    after: int = 0


def find_growth(run: Monitored) -> list[Growth]:
    """Return the growth of each process whose memory clearly grows, if it matters; the fastest first."""
    found = [growth for looks in run.memory.values() if (growth := _growth_of(looks)) is not None]
    groups = (group for group in _groups(found) if sum(one.bytes_per_hour.low for one in group) >= MIN_BYTES_PER_HOUR)
    worth = sorted((one for group in groups for one in group), key=lambda one: -one.bytes_per_hour.estimate)
    return [one for one in worth if one.bytes_per_hour.estimate >= _WORTH_SHARE * worth[0].bytes_per_hour.estimate]


def _groups(found: Sequence[Growth]) -> Iterator[list[Growth]]:
    """Group the workers of each rank, and its main process."""
    for key in dict.fromkeys((one.rank, one.worker is None) for one in found):
        yield [one for one in found if (one.rank, one.worker is None) == key]


def _growth_of(looks: Sequence[Memory]) -> Growth | None:
    settled = [look for look in looks if look.at - looks[0].at >= SETTLED_S]
    if len(settled) < _MIN_LOOKS or settled[-1].at - settled[0].at < MIN_SPAN_S:
        return None
    per_second = _slope(settled[:: 1 + len(settled) // _MAX_LOOKS])
    if not per_second.low > 0:
        return None
    first, last = settled[0], settled[-1]
    kind, container = _what_grows(first, last)
    if kind == "copies" and last.worker is None:  # it is the last one that uses a page, which takes no further memory
        return None
    return Growth(
        rank=last.rank,
        worker=last.worker,
        pid=last.pid,
        private_bytes=last.private_bytes,
        bytes_per_hour=Interval(*(_HOUR_S * end for end in (per_second.estimate, per_second.low, per_second.high))),
        kind=kind,
        container=container,
        before=first.grown.get(container, 0),
        after=last.grown.get(container, 0),
    )


def _slope(looks: Sequence[Memory]) -> Interval:
    """Return the growth of private memory [bytes/s]: the median of the slopes of all pairs, with Sen's interval."""
    pairs = combinations(looks, 2)
    slopes = sorted((b.private_bytes - a.private_bytes) / (b.at - a.at) for a, b in pairs if b.at > a.at)
    count = len(looks)
    around = round(_Z * math.sqrt(count * (count - 1) * (2 * count + 5) / 18) / 2)
    middle, last = len(slopes) // 2, len(slopes) - 1
    return Interval(slopes[middle], slopes[max(0, middle - around)], slopes[min(last, middle + around)])


def _what_grows(first: Memory, last: Memory) -> tuple[Kind, str]:
    """Return what grew between two looks, and the container that explains most of it."""
    grew = last.private_bytes - first.private_bytes
    explained = {name: _explained_bytes(name, first, last, grew) for name in last.grown}
    most = max(explained, key=lambda name: explained[name], default="")
    if most and grew > 0 and explained[most] >= _EXPLAINED * grew:
        return "container", most
    if last.resident_bytes - first.resident_bytes < _COPIED * grew:
        return "copies", ""
    blocks = last.python_blocks - first.python_blocks
    return ("objects" if blocks * _BLOCK_BYTES > _COPIED * grew else "other"), ""


def _explained_bytes(name: str, first: Memory, last: Memory, grew: float) -> float:
    """Return the bytes of a container's new entries; of a cache, whose entries are not seen, a plausible number."""
    if name in last.grown_bytes:
        return last.grown_bytes[name] - first.grown_bytes.get(name, 0)
    new = last.grown[name] - first.grown.get(name, 0)
    return _EXPLAINED * grew if new and grew / new >= _BLOCK_BYTES else 0.0


def what_grows(growth: Growth) -> str:
    """Return what grows in a process, in words."""
    if growth.kind == "container":
        since = f"{whole(growth.before)} to " if growth.before else ""
        return f"{growth.container}: {since}{whole(growth.after)} entries"
    return {
        "copies": "copies of pages that it shared with the main process",
        "objects": "Python objects, in no container that was seen to grow",
        "other": "memory outside Python objects, such as a library's",
    }[growth.kind]


REMEDY_OF: dict[Kind, str] = {
    "container": "Bound the container, for example with `functools.lru_cache(maxsize=...)`.",
    "copies": "Keep what the dataset holds in one array or tensor: each read of a Python object copies its page.",
    "objects": "Call `tracemalloc.start()` when the process starts (for a worker in `worker_init_fn`), and compare two "
    "`tracemalloc.take_snapshot()`: the difference names the lines that allocate them.",
    "other": "Look for a file, decoder or client that is not closed. In workers, `persistent_workers=False` frees the "
    "memory after each epoch until it is found.",
}


def _hours(hours: float) -> str:
    if hours < 1:
        return long_duration(_HOUR_S * hours)
    return f"{significant(hours, 2)} hours" if hours < 48 else f"{significant(hours / 24, 2)} days"


def growth_sentence(run: Monitored, found: Sequence[Growth]) -> str:
    """Return the sentence on the growth of a run's memory; empty if none grows."""
    if not found:
        return ""
    workers = sum(one.worker is not None for one in found)
    mains = len(found) - workers
    of_main = "the main process" if mains == 1 else f"{mains} main processes"
    of = names([*([plural(workers, "worker")] if workers else []), *([of_main] if mains else [])])
    per_hour = [sum(getattr(one.bytes_per_hour, end) for one in found) for end in ("estimate", "low", "high")]
    grows = f"The memory of {of} grows by {size(per_hour[0])} an hour ({size(per_hour[1])} to {size(per_hour[2])})"
    left = min(_left(run, found), default=None)
    return f"{grows}." if left is None else f"{grows}; the remaining {size(left[1])} will last {_hours(left[0])}."


def _left(run: Monitored, found: Sequence[Growth]) -> Iterator[tuple[float, float]]:
    """Yield the hours that memory will last on each machine, and the bytes that are left there."""
    for host in dict.fromkeys(run.hosts.get(one.rank) for one in found):
        here = {rank for rank in (one.rank for one in found) if run.hosts.get(rank) == host}
        looks = [looks[-1] for (rank, *_), looks in run.memory.items() if run.hosts.get(rank) == host]
        free = [look.available_bytes for look in looks if look.available_bytes]
        if free:
            yield min(free) / sum(one.bytes_per_hour.estimate for one in found if one.rank in here), min(free)

"""How many workers the machine has room for, by what those of this run took."""

from __future__ import annotations

from dataclasses import dataclass

from bottleneck.analysis.advice.rule import Case
from bottleneck.results.format import size

MEMORY_SHARE = 0.8
"""Of the memory that was free before the workers started, and of /dev/shm: what workers may take."""
_PREFETCH = 2  # PyTorch's default


@dataclass(frozen=True)
class Room:
    """A limit on workers."""

    workers: int
    """At most so many."""
    what: str
    """What limits them, with its numbers."""
    evidence: dict[str, float]
    """These numbers."""


def batch_room_bytes(case: Case, workers: float) -> float | None:
    """What the batches in flight of so many workers take of /dev/shm; None where that is unknown."""
    batch_bytes = case.evidence.payload.bytes
    return None if batch_bytes is None else workers * (case.number("prefetch_factor") or _PREFETCH) * batch_bytes


def worker_room(case: Case) -> Room | None:
    """The tightest limit that memory sets; None where none is known."""
    rooms = [room for room in (_by_memory(case), _by_shared_memory(case)) if room is not None]
    return min(rooms, key=lambda room: room.workers, default=None)


def _by_memory(case: Case) -> Room | None:
    usage, free = case.evidence.utilisation.workers, case.free_memory_bytes
    # The caches of the diagnosis are no memory of the job's.
    private = (usage.private_bytes or 0.0) - (usage.cache_bytes or 0.0)
    if not case.workers or free is None or private <= 0:
        return None
    each = private / case.workers
    most = int(MEMORY_SHARE * free / each)
    what = f"each worker takes {size(each)} of memory, of which {size(free)} were free"
    return Room(most, what, {"worker_private_bytes": each, "memory_available_bytes": free})


def _by_shared_memory(case: Case) -> Room | None:
    each, shared = batch_room_bytes(case, 1), case.evidence.utilisation.shared_memory.size_bytes
    if not each or shared is None or each <= 0:
        return None
    most = int(MEMORY_SHARE * shared / each)
    what = f"the batches of each worker take {size(each)} of the {size(shared)} of /dev/shm"
    return Room(most, what, {"worker_batches_bytes": each, "shm_size_bytes": shared})

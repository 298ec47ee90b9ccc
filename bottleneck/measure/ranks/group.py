"""Ranks agree on a schedule: by the job's own store, never by its process groups, in which gradients travel.

Who waits looks into the store now and then. So a rank that fails is heard of by all others that wait for it; those
that wait inside of a step, where nobody can reach them, are freed when the failed process ends.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterable
from itertools import count
from typing import Protocol

import msgspec

from bottleneck.errors import MeasurementError
from bottleneck.job.world import world_size

COMING_S = 120.0
"""For all ranks to come to the diagnosis: some load their data longer than others."""
_SHORTEST_PAUSE_S, _LONGEST_PAUSE_S = 2e-4, 5e-3
_PAUSE_S_PER_RANK = 5e-5
"""The more ranks look into the store, the less often each of them."""
_SHARE_OF_WAIT = 0.02
"""Of the time waited so far that the next pause is."""
_LOOKS_PER_FAILURE = 8
"""Looks for an answer for one look for a failure."""
_numbers = count()


class Store(Protocol):
    """What is used of a store of torch's."""

    def set(self, key: str, value: str) -> None:
        """Keep a value."""

    def get(self, key: str) -> bytes:
        """A value that is there."""

    def multi_get(self, keys: list[str]) -> list[bytes]:
        """Values that are there."""

    def check(self, keys: list[str]) -> bool:
        """Whether all of these are there."""

    def add(self, key: str, amount: int) -> int:
        """Count, and return what was counted so far."""

    def compare_set(self, key: str, expected: str, desired: str) -> bytes:
        """Keep a value if another is there, or none at all; return the one that is there then."""


class Failed(msgspec.Struct, frozen=True):
    """What ended the diagnosis on one rank."""

    rank: int
    host: str
    message: str
    remedy: str = ""
    interrupted: bool = False

    def error(self) -> BaseException:
        """As another rank raises it."""
        if self.interrupted:
            return KeyboardInterrupt()
        return MeasurementError(f"Rank {self.rank} on {self.host} failed. {self.message}", self.remedy)


class Counted:
    """A store whose requests are counted, with the bytes of their keys and values."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.requests = self.bytes_moved = 0

    def set(self, key: str, value: str) -> None:
        """Keep a value."""
        self._count(key, value)
        self._store.set(key, value)

    def get(self, key: str) -> bytes:
        """A value that is there."""
        value = self._store.get(key)
        self._count(key, value)
        return value

    def multi_get(self, keys: list[str]) -> list[bytes]:
        """Values that are there."""
        values = self._store.multi_get(keys)
        self._count(*keys, *values)
        return values

    def check(self, keys: list[str]) -> bool:
        """Whether all of these are there."""
        self._count(*keys)
        return self._store.check(keys)

    def add(self, key: str, amount: int) -> int:
        """Count, and return what was counted so far."""
        self._count(key)
        return self._store.add(key, amount)

    def compare_set(self, key: str, expected: str, desired: str) -> bytes:
        """Keep a value if another is there, or none at all; return the one that is there then."""
        self._count(key, expected, desired)
        return self._store.compare_set(key, expected, desired)

    def _count(self, *texts: str | bytes) -> None:
        self.requests += 1
        self.bytes_moved += sum(map(len, texts))


class Group:
    """The ranks of a job, as one of them sees them. Each calls the same methods in the same order.

    Args:
        store: Shared by all, and with no keys of an earlier group.
        rank: Of this process, from 0; 0 leads.
        size: How many there are.
        clock: Seconds from any beginning.
        sleep: Lets time pass.
    """

    def __init__(
        self,
        store: Store,
        rank: int,
        size: int,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.store = Counted(store)
        self.rank, self.size, self.host = rank, size, socket.gethostname()
        self._clock, self._sleep = clock, sleep
        self._calls = 0
        self.progress = 0
        """Batches of this rank: it goes on as long as this grows."""
        self.is_over = False
        """The ranks need each other no more."""
        self._longest_pause_s = max(_LONGEST_PAUSE_S, _PAUSE_S_PER_RANK * size)

    @property
    def leads(self) -> bool:
        """This rank decides for all."""
        return self.rank == 0

    # --- agreeing ------------------------------------------------------------------------------------------

    def come(self) -> None:
        """Wait until all ranks have come to the diagnosis.

        Raises:
            MeasurementError: One of them did not come in time, or failed.
        """
        key = self._key("here")
        self.store.add(key, 1)
        here = 0

        def all_here() -> bool:
            nonlocal here
            here = self.store.add(key, 0)
            return here >= self.size

        if not self._wait(all_here, COMING_S):
            raise MeasurementError(
                f"Of {self.size} ranks {here} came to the diagnosis within {COMING_S:.0f} s.",
                "Start every rank under it, as torchrun --nproc-per-node N -m bottleneck does, or call diagnose on "
                "each: all of them take part in each step.",
            )

    def meet(self, work: Callable[[], object] = lambda: None) -> None:
        """Wait until all ranks are here, and work meanwhile: those that are not may time something beside that work."""
        key = self._key("meet")
        self.store.add(key, 1)

        def all_here() -> bool:
            here = self.store.add(key, 0) >= self.size
            if not here:
                work()
            return here

        self._wait(all_here)

    def announce(self, text: str) -> None:
        """Tell all other ranks something, once all of them listen; only the one that leads does."""
        ready, said = self._key("ready"), self._key("said")
        self._wait(lambda: self.store.add(ready, 0) >= self.size - 1)
        self.store.set(said, text)

    def hear(self) -> str:
        """Wait for what the one that leads announces."""
        ready, said = self._key("ready"), self._key("said")
        self.store.add(ready, 1)
        self._wait(lambda: self.store.check([said]))
        return self.store.get(said).decode()

    def most(self, value: int) -> int:
        """The most that any rank says."""
        return self._agree(value, max)

    def fewest(self, value: int) -> int:
        """The least that any rank says."""
        return self._agree(value, min)

    def _agree(self, value: int, rule: Callable[[list[int]], int]) -> int:
        texts = self.gather(str(value))
        return int(self.share("" if texts is None else str(rule([int(text) for text in texts]))))

    def all_say(self, text: str) -> bool:
        """Whether all ranks say the same."""
        texts = self.gather(text)
        return self.share("" if texts is None else str(int(len(set(texts)) == 1))) == "1"

    def share(self, text: str) -> str:
        """What the one that leads says; what the others say does not matter."""
        if self.leads:
            self.announce(text)
            return text
        return self.hear()

    def gather(self, text: str) -> list[str] | None:
        """Hand a text to the one that leads, which gets those of all ranks in their order; the others get None."""
        key = self._key("of")
        if not self.leads:
            self.store.set(f"{key}/{self.rank}", text)
            return None
        keys = [f"{key}/{rank}" for rank in range(1, self.size)]
        self._wait(lambda: self.store.check(keys))
        return [text, *(value.decode() for value in self.store.multi_get(keys))]

    def _key(self, what: str) -> str:
        """A key of the next call: the same on all ranks, and never used before."""
        self._calls += 1
        return f"{what}/{self._calls}"

    # --- signs of life -------------------------------------------------------------------------------------

    def say_alive(self, text: str) -> None:
        """Leave a sign of life."""
        self.store.set(f"alive/{self.rank}", text)

    def signs(self, ranks: Iterable[int]) -> dict[int, str]:
        """The last signs of life of some ranks, of those that have left any."""
        keys = {rank: f"alive/{rank}" for rank in ranks}
        if not self.store.check(list(keys.values())):
            keys = {rank: key for rank, key in keys.items() if self.store.check([key])}
        values = self.store.multi_get(list(keys.values())) if keys else []
        return {rank: value.decode() for rank, value in zip(keys, values, strict=True)}

    # --- failing -------------------------------------------------------------------------------------------

    def fail(self, error: BaseException) -> None:
        """Let all ranks know what ended the diagnosis here; the first that says so is the one that is named."""
        interrupted = isinstance(error, KeyboardInterrupt)
        message = error.message if isinstance(error, MeasurementError) else f"{type(error).__name__}: {error}"
        remedy = error.remedy if isinstance(error, MeasurementError) else ""
        self.say_failed(Failed(self.rank, self.host, message, remedy, interrupted))

    def say_failed(self, failed: Failed) -> None:
        """Let all ranks know what failed, unless one of them has failed before."""
        self.store.compare_set("failed", "", msgspec.json.encode(failed).decode())

    def failed(self) -> Failed | None:
        """What ended the diagnosis, and on which rank; None while nothing has."""
        return msgspec.json.decode(self.store.get("failed"), type=Failed) if self.store.check(["failed"]) else None

    def _wait(self, ready: Callable[[], bool], limit_s: float | None = None) -> bool:
        """Wait until something is ready, or the time is over; return whether it is.

        Raises:
            MeasurementError: A rank has failed.
            KeyboardInterrupt: It was interrupted.
        """
        began_s = self._clock()
        for look in count(1):
            if ready():
                return True
            if look % _LOOKS_PER_FAILURE == 0:
                failed = self.failed()
                if failed is not None:
                    raise failed.error()
            waited_s = self._clock() - began_s
            if limit_s is not None and waited_s > limit_s:
                return False
            self._sleep(min(self._longest_pause_s, max(_SHORTEST_PAUSE_S, _SHARE_OF_WAIT * waited_s)))
        return False


def find_group() -> Group | None:
    """The ranks of this job; None where it is one process."""
    if world_size() < 2:
        return None
    import torch.distributed as dist
    from torch.distributed.distributed_c10d import PrefixStore, _get_default_store

    store = PrefixStore(f"bottleneck/{next(_numbers)}", _get_default_store())
    return Group(store, dist.get_rank(), dist.get_world_size())

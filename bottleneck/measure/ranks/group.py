"""Agreement of the ranks of a job on a schedule, and on the failure that ended it, by the job's own store.

Process groups carry gradients, and nothing of bottleneck's. In a separate group, a waiting rank would not learn of
failures: the sockets of a killed rank stay open in its forked workers, and `monitored_barrier` names a rank on rank 0
only. Polling a store also leaves Python free to handle signals.
"""

from __future__ import annotations

import os
import re
import socket
import time
from collections.abc import Callable, Sequence
from itertools import count
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias

import msgspec

from bottleneck.errors import MeasurementError
from bottleneck.job.world import world_size
from bottleneck.measure.keep.interrupts import ending

if TYPE_CHECKING:
    from torch.distributed.distributed_c10d import Store

JOIN_S = 120.0
"""Seconds for all ranks to reach the diagnosis: some load their data longer than others."""
MISSED_BEATS = 3
"""Missed heartbeats after which a rank counts as gone, once another one has seen a connection close."""
_BEAT_S = 1.0
_BEAT_S_PER_RANK = 5e-3
_MIN_PAUSE_S = 2e-4
"""Seconds between two looks into the store, at least: it is one server, and answers all ranks."""
_MAX_PAUSE_S = 5e-3
_PAUSE_S_PER_RANK = 5e-5
_SHARE_OF_WAIT = 0.02
"""Length of the next pause, as a share of the time waited so far."""
_LOOKS_PER_FAILURE = 8
"""Looks for an answer per look for a failure."""
_ECHO = re.compile(
    r"closed by peer|reset by peer|broken pipe|remote process|connection (?:refused|closed|was)|nccl|gloo|"
    r"socket (?:error|closed)|timed out waiting|process group",
    re.IGNORECASE,
)
"""Pattern of the errors of a step if another rank is gone."""
_numbers = count()


class Failed(msgspec.Struct, frozen=True):
    """The failure that ended the diagnosis on one rank."""

    rank: int
    host: str
    message: str
    remedy: str = ""
    interrupted: bool = False

    def error(self) -> BaseException:
        """Return the error that other ranks raise."""
        if self.interrupted:
            return KeyboardInterrupt()
        return MeasurementError(f"Rank {self.rank} on {self.host} failed. {self.message}", self.remedy)


class Group:
    """The ranks of a job, from the view of one of them. Each calls the same methods in the same order.

    Args:
        store: Store shared by all, without keys of an earlier group.
        rank: Rank of this process, from 0; 0 leads.
        size: Number of ranks.
        clock: Monotonic seconds.
        sleep: Waits for a number of seconds.
    """

    is_alone: ClassVar[bool] = False
    """True for a world of one, whose steps depend on no other rank."""

    def __init__(
        self,
        store: Store,
        rank: int,
        size: int,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.store = store
        self.rank = rank
        self.size = size
        self.host = socket.gethostname()
        self.clock = clock
        self._sleep = sleep
        self._calls = 0
        self._longest_pause_s = max(_MAX_PAUSE_S, _PAUSE_S_PER_RANK * size)
        self.beat_s = max(_BEAT_S, _BEAT_S_PER_RANK * size)
        """Seconds between two heartbeats; longer with many ranks."""
        self.members: dict[int, tuple[str, int]] = {}
        """Host and process id by rank; complete once all have joined."""
        self.is_over = False
        """True if the ranks no longer need each other."""
        self.has_ended = False
        """True if this rank was stopped, and asks if another one is the cause."""

    @property
    def leads(self) -> bool:
        """True if this rank decides for all."""
        return self.rank == 0

    # --- agreement -----------------------------------------------------------------------------------------

    def announce(self) -> None:
        """Publish host and process of this rank, which may fail before all have joined."""
        self.store.set(f"member/{self.rank}", msgspec.json.encode((self.host, os.getpid())).decode())

    def find_members(self, ranks: Sequence[int]) -> None:
        """Note host and process of ranks that have announced themselves."""
        found = self.store.multi_get([f"member/{rank}" for rank in ranks]) if ranks else []
        for rank, text in zip(ranks, found, strict=True):
            self.members[rank] = msgspec.json.decode(text, type=tuple[str, int])

    def join(self) -> None:
        """Wait until all ranks, which have announced themselves, have reached the diagnosis.

        Raises:
            MeasurementError: A rank did not arrive in time, or failed.
        """
        here = self.barrier(limit_s=JOIN_S)
        if here < self.size:
            raise MeasurementError(
                f"Of {self.size} ranks, {here} reached the diagnosis within {JOIN_S:.0f} s.",
                "Start every rank under it, as torchrun --nproc-per-node N -m bottleneck does, or call diagnose on "
                "each: all of them take part in each step.",
            )
        self.find_members(range(self.size))

    def barrier(self, work: Callable[[], object] = lambda: None, limit_s: float | None = None) -> int:
        """Wait until all ranks are here, and return their number; fewer if a limit is exceeded.

        Args:
            work: Repeated while others are missing: they may be timing something that competes with it.
            limit_s: Seconds to wait; None for no limit.
        """
        key = self._next_key()
        here = self.store.add(key, 1)

        def all_here() -> bool:
            nonlocal here
            here = self.store.add(key, 0)
            if here < self.size:
                work()
            return here >= self.size

        self._wait(all_here, limit_s)
        return here

    def part(self) -> None:
        """Wait until all ranks are done; a rank that ends after that has not failed."""
        self.barrier()
        self.is_over = True

    def agree(self, text: str = "", decide: Callable[[list[str]], str] = lambda texts: texts[0]) -> str:
        """Return the decision of rank 0 on all ranks.

        Args:
            text: Text of this rank.
            decide: Decides by the texts of all ranks in their order; by default, takes that of rank 0.
        """
        texts, key = self.gather(text), self._next_key()
        if texts is None:
            self._wait(lambda: self.store.check([key]))
            return self.store.get(key).decode()
        decision = decide(texts)
        self.store.set(key, decision)
        return decision

    def gather(self, text: str) -> list[str] | None:
        """Return the texts of all ranks in their order on rank 0; None on the others."""
        key = self._next_key()
        if not self.leads:
            self.store.set(f"{key}/{self.rank}", text)
            self.store.add(f"{key}/here", 1)
            return None
        self._wait(lambda: self.store.add(f"{key}/here", 0) >= self.size - 1)
        texts = self.store.multi_get([f"{key}/{rank}" for rank in range(1, self.size)])
        return [text, *(each.decode() for each in texts)]

    def share(self, value: Any) -> list[Any]:
        """Return the values of all ranks in their order, on each of them."""
        texts = self.agree(msgspec.json.encode(value).decode(), lambda texts: f"[{','.join(texts)}]")
        return list(msgspec.json.decode(texts))

    def _next_key(self) -> str:
        """Return a new key that is the same on all ranks."""
        self._calls += 1
        return f"call/{self._calls}"

    def _wait(self, ready: Callable[[], bool], limit_s: float | None = None) -> None:
        """Wait until something is ready, or the time is over.

        Raises:
            MeasurementError: A rank has failed.
            KeyboardInterrupt: A rank was interrupted.
        """
        began_s = self.clock()
        for look in count(1):
            if ready():
                return
            if look % _LOOKS_PER_FAILURE == 0:
                failed = self.failed()
                if failed is not None:
                    raise failed.error()
            waited_s = self.clock() - began_s
            if limit_s is not None and waited_s > limit_s:
                return
            self._sleep(min(self._longest_pause_s, max(_MIN_PAUSE_S, _SHARE_OF_WAIT * waited_s)))

    # --- failure -------------------------------------------------------------------------------------------

    def failed(self) -> Failed | None:
        """Return the root failure; None while there is none."""
        return msgspec.json.decode(self.store.get("failed"), type=Failed) if self.store.check(["failed"]) else None

    def say_failed(self, failed: Failed) -> None:
        """Let all ranks know of a failure; the first one counts."""
        self.store.compare_set("failed", "", msgspec.json.encode(failed).decode())

    def fail(self, error: BaseException) -> None:
        """Let all ranks know of the error that ended the diagnosis here."""
        message, remedy = f"{type(error).__name__}: {error}", ""
        if isinstance(error, MeasurementError):
            message, remedy = error.message, error.remedy
        self.say_failed(Failed(self.rank, self.host, message, remedy, isinstance(error, KeyboardInterrupt)))

    def root_failure(self, found: BaseException) -> BaseException:
        """Return the failure of the rank that failed first, if the error found here is an echo of it."""
        if self.is_over:
            return found
        ending.set()
        is_echo = isinstance(found, KeyboardInterrupt) or (
            isinstance(found, MeasurementError) and _ECHO.search(found.message) is not None
        )
        try:
            failed = self._wait_for_root() if is_echo else self.failed()
            if failed is None or failed.rank == self.rank:
                self.fail(found)
                return found
        except RuntimeError:  # the store went down with rank 0
            gone = MeasurementError("Rank 0 ended, and with it the store of the job.", "Look at its output.")
            return gone if is_echo else found
        return found if failed.interrupted and isinstance(found, KeyboardInterrupt) else failed.error()

    def _wait_for_root(self) -> Failed | None:
        """Return the failure that `Watch` finds in time. Rank 0 sees all ranks; the others leave it time to look."""
        self.has_ended = True
        until_s = self.clock() + (MISSED_BEATS + 1) * self.beat_s * (1 if self.leads else 2)
        while (failed := self.failed()) is None and self.clock() < until_s:
            self._sleep(self.beat_s / 10)
        return failed


class Solo:
    """A world of one: it leads, never waits, and fails alone. It has the methods of `Group`."""

    is_alone: ClassVar[bool] = True
    leads: ClassVar[bool] = True
    rank: ClassVar[int] = 0
    size: ClassVar[int] = 1

    @property
    def host(self) -> str:
        """Name of this host."""
        return socket.gethostname()

    @property
    def members(self) -> dict[int, tuple[str, int]]:
        """Host and process id by rank."""
        return {0: (self.host, os.getpid())}

    def join(self) -> None:
        """Return at once: there is no other rank."""

    def part(self) -> None:
        """Return at once: there is no other rank."""

    def barrier(self, work: Callable[[], object] = lambda: None, limit_s: float | None = None) -> int:  # noqa: ARG002
        """Return the number of ranks, which are all here."""
        return 1

    def agree(self, text: str = "", decide: Callable[[list[str]], str] = lambda texts: texts[0]) -> str:
        """Return the decision on the only text."""
        return decide([text])

    def gather(self, text: str) -> list[str] | None:
        """Return the only text."""
        return [text]

    def share(self, value: Any) -> list[Any]:
        """Return the only value, unchanged."""
        return [value]

    def fail(self, error: BaseException) -> None:
        """Do nothing: there is no other rank to hear of it."""

    def root_failure(self, found: BaseException) -> BaseException:
        """Return the failure found here, which is the only one."""
        return found


World: TypeAlias = Group | Solo
"""The ranks of a job, of one process or of many."""
ALONE = Solo()
"""World of a single process."""


def find_group() -> World:
    """Return the ranks of this job."""
    if world_size() < 2:
        return ALONE
    import torch.distributed as dist
    from torch.distributed.distributed_c10d import PrefixStore, _get_default_store

    store = PrefixStore(f"bottleneck/{next(_numbers)}", _get_default_store())
    return Group(store, dist.get_rank(), dist.get_world_size())

"""Mutual supervision of ranks: one that is killed or fails ends the diagnosis on all of them.

A rank inside a collective operation cannot be reached. Gloo frees it when the process of the other rank ends; so a rank
that knows of a failure and is stuck in its step ends its own process.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext, suppress

import psutil

from bottleneck.errors import ExitStatus
from bottleneck.measure.ranks.group import MISSED_BEATS, Failed, Group, World

SILENT_S = 20.0
"""Seconds without a heartbeat after which a rank counts as gone; on the same host, its process decides."""
GRACE_S = 5.0
"""Seconds for a rank that knows of a failure to come out of its step."""
LEADERS_GRACE_S = 20.0
"""The same for rank 0, which comes last: the ends of the others free it."""
_exit_now = os._exit
"""The real function, before a watched script can replace it."""


class Watch:
    """A thread that sends a heartbeat each second and supervises the other ranks.

    Args:
        group: The group of this rank.
        leave: Ends this process; gets the exit status.
    """

    def __init__(self, group: Group, leave: Callable[[int], None] | None = None) -> None:
        self._group = group
        self._leave = leave or _end_process
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="bottleneck-ranks", daemon=True)
        self._beats = 0
        self._heard: dict[int, tuple[bytes, float]] = {}
        """Last heartbeat of each rank (a number), and the time of its arrival."""
        self._failed_s: float | None = None

    def __enter__(self) -> Watch:
        self._beat()  # before another rank can ask for it
        self._group.announce()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join(timeout=2 * self._group.beat_s)

    def _run(self) -> None:
        while not self._over.is_set():
            with suppress(RuntimeError):  # the store went down with rank 0: the measuring thread finds out
                self.look()
            self._over.wait(self._group.beat_s)

    def look(self) -> None:
        """Send a heartbeat, and find a rank that failed."""
        group = self._group
        if group.is_over:
            return
        self._beat()
        failed = group.failed()
        if failed is None:
            failed = self._find_ended() or self._find_silent()
            if failed is not None:
                group.say_failed(failed)
        if failed is not None:
            self._end_if_stuck(failed)

    def _beat(self) -> None:
        self._beats += 1
        self._group.store.set(f"beat/{self._group.rank}", str(self._beats))

    def _find_ended(self) -> Failed | None:
        """Return the failure of a rank of this host whose process is gone."""
        group = self._group
        if len(group.members) < group.size:  # not all have joined: rank 0 supervises all, the others only rank 0
            wanted = range(1, group.size) if group.leads else range(1)
            unknown = [rank for rank in wanted if rank not in group.members]
            group.find_members([rank for rank in unknown if group.store.check([f"member/{rank}"])])
        for rank, (host, pid) in list(group.members.items()):
            if rank != group.rank and host == group.host and not is_alive(pid):
                return Failed(
                    rank,
                    host,
                    "Its process ended without a message.",
                    "If the kernel's out-of-memory killer ended it (see dmesg, and the memory limit of the container), "
                    "use fewer workers or a smaller batch.",
                )
        return None

    def _find_silent(self) -> Failed | None:
        """Return the failure of a rank without a heartbeat. Rank 0 listens to all, the others to rank 0."""
        group, now = self._group, self._group.clock()
        ranks = [rank for rank in list(group.members) if (rank > 0) == group.leads]
        beats = group.store.multi_get([f"beat/{rank}" for rank in ranks]) if ranks else []
        for rank, beat in zip(ranks, beats, strict=True):
            if rank not in self._heard or self._heard[rank][0] != beat:
                self._heard[rank] = beat, now
        # A rank that was stopped asks rank 0 for the cause, which may still be finding it.
        silent_s = (1 if group.leads else 2) * MISSED_BEATS * group.beat_s if group.has_ended else SILENT_S
        for rank, (_, heard_s) in self._heard.items():
            if now - heard_s > silent_s:
                return Failed(
                    rank,
                    group.members[rank][0],
                    f"It sent no heartbeat for {silent_s:.0f} s.",
                    "Its process was killed, its host is down, or the network between them failed.",
                )
        return None

    def _end_if_stuck(self, failed: Failed) -> None:
        """End this process if the measuring thread does not learn of a failure."""
        now = self._group.clock()
        if self._failed_s is None:
            self._failed_s = now
        if now - self._failed_s > (LEADERS_GRACE_S if self._group.leads else GRACE_S):
            print(f"bottleneck: {failed.error()}", file=sys.stderr, flush=True)
            self._leave(int(ExitStatus.INTERRUPTED if failed.interrupted else ExitStatus.COULD_NOT_MEASURE))


def watching(world: World) -> AbstractContextManager[Watch | None]:
    """Return a context in which the ranks of a job supervise each other; a process alone is not supervised."""
    return Watch(world) if isinstance(world, Group) else nullcontext()


def is_alive(pid: int) -> bool:
    """Return True if a process of this host is still running."""
    try:
        return psutil.Process(pid).status() not in (psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD)
    except psutil.NoSuchProcess:
        return False
    except psutil.Error:
        return True


def _end_process(status: int) -> None:
    """End this process and its workers at once: the measuring thread cannot be reached."""
    with suppress(psutil.Error):
        for child in psutil.Process().children(recursive=True):
            with suppress(psutil.Error):
                child.kill()
    _exit_now(status)

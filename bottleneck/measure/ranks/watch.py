"""Ranks look after each other: one that is killed, hangs or fails ends the diagnosis on all of them, by its name.

A rank that waits inside of a step for gradients of a rank that is gone hears nothing, and cannot be reached. Where
gradients travel by Gloo, it is freed with an error as soon as the process of the other one has ended. So a rank that
hears of a failure and does not come out of its step ends its own process.
"""

from __future__ import annotations

import os
import re
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from types import FrameType, TracebackType

import msgspec
import psutil
import torch

from bottleneck.errors import ExitStatus, MeasurementError
from bottleneck.measure.ranks.group import Failed, Group

EVERY_S = 1.0
_EVERY_S_PER_RANK = 5e-3
SILENT_S = 20.0
"""Without a sign of life a rank counts as gone; one on the same host does when its process is."""
HANG_S = 120.0
"""Without a step on any rank, at least; in a slow job, so many times the longest time that this took before."""
_HANG_FACTOR = 5.0
_GRACE_S, _LEADERS_GRACE_S = 5.0, 20.0
"""For a rank that hears of a failure to come out of its step; the first one is freed when the others have ended."""
_NAMING_S = 3.0
"""For the rank that failed to say so, where another one feels it first."""
_FROM_OTHERS = re.compile(
    r"closed by peer|reset by peer|broken pipe|remote process|connection (?:refused|closed|was)|nccl|gloo|"
    r"socket (?:error|closed)|timed out waiting|process group",
    re.IGNORECASE,
)
"""What a step raises when another rank is gone."""
_TORCH = os.path.dirname(torch.__file__)


class Sign(msgspec.Struct, frozen=True):
    """A sign of life."""

    number: int
    host: str
    pid: int
    steps: int
    """Batches so far."""
    at: str = ""
    """Where the user's code is, if it is there."""


class Watch:
    """A thread that says each second that this rank lives, and looks whether the others do."""

    def __init__(
        self, group: Group, clock: Callable[[], float] = time.monotonic, leave: Callable[[int], None] | None = None
    ) -> None:
        self._group, self._clock, self._leave = group, clock, leave or _end_process
        self._every_s = max(EVERY_S, _EVERY_S_PER_RANK * group.size)
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="bottleneck-ranks", daemon=True)
        self._main = threading.main_thread().ident
        self._number = 0
        self._heard: dict[int, tuple[Sign, float]] = {}
        self._last_step_s, self._longest_s = clock(), 0.0
        self._steps: dict[int, int] = {}
        self._failed_s: float | None = None

    def __enter__(self) -> Watch:
        self._last_step_s = self._clock()
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, _: BaseException | None, __: TracebackType | None) -> None:
        self._over.set()
        if threading.current_thread() is not self._thread:
            self._thread.join(timeout=2 * self._every_s)

    def _run(self) -> None:
        while not self._over.is_set():
            with suppress(RuntimeError):  # the store went with the first rank: who waits for it hears that
                self.look()
            self._over.wait(self._every_s)

    def look(self) -> None:
        """Give a sign of life, and see what the others do."""
        group = self._group
        if group.is_over:
            return
        self._number += 1
        own = Sign(self._number, group.host, os.getpid(), group.progress, self._place())
        group.say_alive(msgspec.json.encode(own).decode())
        failed = group.failed()
        if failed is None:
            failed = self._find_failed(range(group.size) if group.leads else (0,))
            if failed is not None:
                group.say_failed(failed)
        if failed is not None:
            self._end_if_stuck(failed)

    def _find_failed(self, ranks: range | tuple[int, ...]) -> Failed | None:
        signs = {rank: msgspec.json.decode(text, type=Sign) for rank, text in self._group.signs(ranks).items()}
        now = self._clock()
        for rank, sign in signs.items():
            known = self._heard.get(rank)
            if known is None or known[0].number != sign.number:
                self._heard[rank] = sign, now
        return self._find_gone(now) or self._find_hanging(signs, now)

    def find_gone(self) -> Failed | None:
        """The rank whose process has ended, as far as that shows at once."""
        group = self._group
        texts = group.signs(range(group.size) if group.leads else (0,))
        now = self._clock()
        self._heard = {rank: (msgspec.json.decode(text, type=Sign), now) for rank, text in texts.items()}
        return self._find_gone(now)

    def _find_gone(self, now: float) -> Failed | None:
        for rank, (sign, heard_s) in self._heard.items():
            if rank == self._group.rank:
                continue
            if sign.host == self._group.host and not is_alive(sign.pid):
                return Failed(
                    rank, sign.host, "Its process ended without a word.",
                    "If the kernel's out-of-memory killer ended it (see dmesg, and the memory limit of the container), "
                    "use fewer workers or a smaller batch.",
                )  # fmt: skip
            if now - heard_s > SILENT_S:
                return Failed(
                    rank, sign.host, f"It gave no sign of life for {SILENT_S:.0f} s.",
                    "Its process was killed, its host is gone, or the network between them.",
                )  # fmt: skip
        return None

    def _find_hanging(self, signs: dict[int, Sign], now: float) -> Failed | None:
        """The rank that keeps all from going on, when none has for long; only the first rank can tell."""
        if not self._group.leads or not self._group.progress:  # preparing has limits of its own
            return None
        steps = {rank: sign.steps for rank, sign in signs.items()}
        if steps != self._steps:
            self._longest_s = max(self._longest_s, now - self._last_step_s)
            self._steps, self._last_step_s = steps, now
            return None
        limit_s = max(HANG_S, _HANG_FACTOR * self._longest_s)
        if now - self._last_step_s <= limit_s or not signs:
            return None
        # Those that wait for its gradients are inside of torch.
        rank = min(signs, key=lambda rank: (not signs[rank].at, steps[rank]))
        where = f" It is at {signs[rank].at}." if signs[rank].at else ""
        return Failed(
            rank, signs[rank].host, f"No rank made a step for {limit_s:.0f} s, and it keeps the others waiting.{where}",
            f"Look where it hangs: py-spy dump --pid {signs[rank].pid}",
        )  # fmt: skip

    def _end_if_stuck(self, failed: Failed) -> None:
        """End this process if its main thread does not come to know of a failure."""
        now = self._clock()
        if self._failed_s is None:
            self._failed_s = now
        if now - self._failed_s > (_LEADERS_GRACE_S if self._group.leads else _GRACE_S):
            print(f"bottleneck: {failed.error()}", file=sys.stderr, flush=True)
            self._leave(int(ExitStatus.INTERRUPTED if failed.interrupted else ExitStatus.COULD_NOT_MEASURE))

    def _place(self) -> str:
        """Where the main thread is, if that is no code of torch's or ours."""
        frame: FrameType | None = sys._current_frames().get(self._main or 0)
        if frame is None:
            return ""
        name = frame.f_code.co_filename
        ours = os.path.dirname(os.path.dirname(os.path.dirname(__file__)))
        return "" if name.startswith((_TORCH, ours, "<")) else f"{name}:{frame.f_lineno} in {frame.f_code.co_name}"


def is_alive(pid: int) -> bool:
    """Whether a process of this host goes on."""
    try:
        return psutil.Process(pid).status() not in (psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD)
    except psutil.NoSuchProcess:
        return False
    except psutil.Error:
        return True


def what_ended_all(group: Group, found: BaseException, clock: Callable[[], float] = time.monotonic) -> BaseException:
    """What ended the diagnosis: the failure of the rank that failed first, which the others may have felt only."""
    felt = isinstance(found, KeyboardInterrupt) or (
        isinstance(found, MeasurementError) and _FROM_OTHERS.search(found.message) is not None
    )
    if group.is_over:
        return found
    until_s = clock() + (_NAMING_S if felt else 0.0)
    try:
        watch = Watch(group, clock)
        while True:
            failed = group.failed() or (watch.find_gone() if felt else None)
            if failed is not None and failed.rank != group.rank:
                group.say_failed(failed)
                return found if failed.interrupted and isinstance(found, KeyboardInterrupt) else failed.error()
            if clock() >= until_s:
                break
            time.sleep(0.1)
        group.fail(found)
    except RuntimeError:  # the store has gone with the first rank
        return (
            found
            if not felt
            else MeasurementError("Rank 0 ended, and with it the store of the job.", "Look at its output.")
        )
    return found


def _end_process(status: int) -> None:
    """End this process and its workers at once: its main thread cannot be reached."""
    with suppress(psutil.Error):
        for child in psutil.Process().children(recursive=True):
            with suppress(psutil.Error):
                child.kill()
    os._exit(status)

"""Ranks look after each other: one that is killed, hangs or fails ends the diagnosis on all of them, by its name.

A rank that waits inside of a step for gradients of a rank that is gone hears nothing, and cannot be reached. Where
gradients travel by Gloo, it is freed with an error as soon as the process of the other one has ended. So a rank that
hears of a failure and does not come out of its step ends its own process.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from types import FrameType, TracebackType

import psutil
import torch

from bottleneck.errors import ExitStatus
from bottleneck.measure.ranks.group import Failed, Group
from bottleneck.measure.ranks.signs import Sign, between_signs_s, find_ended, find_silent, leave_sign, read_signs

SILENT_S = 20.0
"""Without a sign of life a rank counts as gone; one on the same host does when its process is."""
HANG_S = 120.0
"""Without a step on any rank, at least; in a slow job, so many times the longest time that this took before."""
_HANG_FACTOR = 5.0
_GRACE_S, _LEADERS_GRACE_S = 5.0, 20.0
"""For a rank that hears of a failure to come out of its step; the first one is freed when the others have ended."""
_exit_now = os._exit
"""As it is before a script that is watched can replace it, or be watched by what replaces it."""
_NOT_THE_USERS = (f"{Path(torch.__file__).parent}{os.sep}", f"{Path(__file__).parents[2]}{os.sep}", "<")
"""How names of files begin that hold code of torch's, ours, or nobody's."""


class Watch:
    """A thread that says each second that this rank lives, and looks whether the others do.

    Made by the thread that measures.
    """

    def __init__(
        self, group: Group, clock: Callable[[], float] = time.monotonic, leave: Callable[[int], None] | None = None
    ) -> None:
        self._group, self._clock, self._leave = group, clock, leave or _end_process
        self._every_s = between_signs_s(group.size)
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="bottleneck-ranks", daemon=True)
        self._measuring = threading.get_ident()
        self._number = 0
        self._heard: dict[int, tuple[Sign, float]] = {}
        """The last sign of each rank, and when it came."""
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
        leave_sign(group, self._number, self._place())
        failed = group.failed()
        if failed is None:
            failed = self._find_failed()
            if failed is not None:
                group.say_failed(failed)
        if failed is not None:
            self._end_if_stuck(failed)

    def _find_failed(self) -> Failed | None:
        signs, now = read_signs(self._group), self._clock()
        for rank, sign in signs.items():
            known = self._heard.get(rank)
            if known is None or known[0].number != sign.number:
                self._heard[rank] = sign, now
        silent = {rank: sign for rank, (sign, heard_s) in self._heard.items() if now - heard_s > SILENT_S}
        return (
            find_ended(self._group, signs)
            or find_silent(self._group, silent, signs, SILENT_S)
            or self._find_hanging(signs, now)
        )

    def _find_hanging(self, signs: Mapping[int, Sign], now: float) -> Failed | None:
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
        """End this process if the thread that measures does not come to know of a failure."""
        now = self._clock()
        if self._failed_s is None:
            self._failed_s = now
        if now - self._failed_s > (_LEADERS_GRACE_S if self._group.leads else _GRACE_S):
            print(f"bottleneck: {failed.error()}", file=sys.stderr, flush=True)
            self._leave(int(ExitStatus.INTERRUPTED if failed.interrupted else ExitStatus.COULD_NOT_MEASURE))

    def _place(self) -> str:
        """Where the thread that measures is, if that is the user's code."""
        frame: FrameType | None = sys._current_frames().get(self._measuring)
        if frame is None or frame.f_code.co_filename.startswith(_NOT_THE_USERS):
            return ""
        return f"{frame.f_code.co_filename}:{frame.f_lineno} in {frame.f_code.co_name}"


def _end_process(status: int) -> None:
    """End this process and its workers at once: the thread that measures cannot be reached."""
    with suppress(psutil.Error):
        for child in psutil.Process().children(recursive=True):
            with suppress(psutil.Error):
                child.kill()
    _exit_now(status)

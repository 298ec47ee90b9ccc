"""Let a request to end the process (a scheduler's, a closed terminal's) end a diagnosis as Ctrl-C does: in order."""

from __future__ import annotations

import os
import signal
from types import FrameType

from bottleneck.measure.interrupts import ending

_REQUESTS = ("SIGTERM", "SIGHUP")  # Windows has no SIGHUP


def end_in_order() -> None:
    """Raise `KeyboardInterrupt` in this process when it is asked to end, unless it ignores that, as under nohup."""
    owner = os.getpid()

    def interrupt(number: int, _: FrameType | None) -> None:
        if os.getpid() != owner:  # a process that the user's code forked: it ends as it would have
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)
            return
        if not ending.is_set():
            raise KeyboardInterrupt

    for name in _REQUESTS:
        number = getattr(signal, name, None)
        if number is not None and signal.getsignal(number) is signal.SIG_DFL:
            signal.signal(number, interrupt)

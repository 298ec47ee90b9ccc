"""Ctrl-C while things are put in order: it waits until that is done."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def interrupts_deferred() -> Iterator[None]:
    """Let Ctrl-C take effect after the body, in the main thread; in another one Python never raises it.

    Where the body itself sets a handler of Ctrl-C, that one stays, and answers.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    arrived = False

    def defer(_number: int, _frame: FrameType | None) -> None:
        nonlocal arrived
        arrived = True

    previous = signal.signal(signal.SIGINT, defer)
    try:
        yield
    finally:
        if signal.getsignal(signal.SIGINT) is defer:
            # None: a handler that was not installed from Python, which Python cannot install again either.
            signal.signal(signal.SIGINT, signal.default_int_handler if previous is None else previous)
        if arrived:
            signal.raise_signal(signal.SIGINT)

"""Deferral of Ctrl-C, and of other requests to end the process, while state is restored.

A launcher asks all ranks to end as soon as one has failed. A rank that knows of the failure by then is about to end.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

_NAMES = ("SIGINT", "SIGTERM", "SIGHUP")
REQUESTS = [getattr(signal, name) for name in _NAMES if hasattr(signal, name)]  # Windows has no SIGHUP

ending = threading.Event()
"""Set once the error that ends this process is known: it is reported within seconds, regardless of later requests."""


@contextmanager
def interrupts_deferred() -> Iterator[None]:
    """Let signals that ask the process to end take effect after the body, if Python code handles them.

    That is the case in the main thread only. If the body itself sets a handler, that one stays, and answers.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    arrived: list[int] = []

    def defer(number: int, _frame: FrameType | None) -> None:
        arrived.append(number)

    previous = {number: signal.signal(number, defer) for number in REQUESTS if callable(signal.getsignal(number))}
    try:
        yield
    finally:
        for number, handler in previous.items():
            if signal.getsignal(number) is defer:
                signal.signal(number, handler)
        if arrived:
            signal.raise_signal(arrived[0])

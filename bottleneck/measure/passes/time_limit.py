"""Ends what takes too long, as far as Python allows that."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator
from types import FrameType

from bottleneck.loader.worker_errors import PassesThrough

_SIGNAL = getattr(signal, "SIGURG", None)
"""Ignored by default, so that one that comes too late does no harm; programs hardly use it."""


class TimeLimitExceeded(PassesThrough):
    """Raised in the main thread; no `except Exception` of the user's code catches it."""


@contextlib.contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """Raise `TimeLimitExceeded` in the body when it takes longer than some seconds.

    What waits in Python is ended: a sleep, a lock, a queue, a loop. Native code is not; the exception comes when it
    returns. In another thread than the main one, and on systems without such a signal, nothing is ended.
    """
    if _SIGNAL is None or threading.current_thread() is not threading.main_thread():
        yield
        return
    done = threading.Event()

    def end(number: int, frame: FrameType | None) -> None:
        del number, frame
        if not done.is_set():
            raise TimeLimitExceeded

    main = threading.get_ident()
    watchdog = threading.Timer(seconds, lambda: signal.pthread_kill(main, _SIGNAL))
    watchdog.daemon = True
    previous = signal.signal(_SIGNAL, end)
    try:
        watchdog.start()
        yield
    finally:
        done.set()
        watchdog.cancel()
        watchdog.join()
        signal.signal(_SIGNAL, previous if previous is not None else signal.SIG_DFL)

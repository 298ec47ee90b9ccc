"""The verdict on a job that runs already: watched from outside for some seconds, then judged."""

from __future__ import annotations

import datetime
import time
from collections.abc import Callable

from bottleneck.analysis.watched.judge import judge
from bottleneck.measure.options import ProgressCallback, ProgressUpdate
from bottleneck.results.watched import WatchedResult
from bottleneck.watching.sampling import watch_job


def attach(
    pid: int,
    seconds: float,
    progress: ProgressCallback | None = None,
    clock: Callable[[], float] = time.monotonic,
    pause: Callable[[float], None] = time.sleep,
) -> WatchedResult:
    """Watch a job, and return the verdict on it.

    Args:
        pid: Any of its processes; those that it has started are watched with it.
        seconds: How long the answer may take.
        progress: Told now and then how much of that is over.
        clock: Seconds from any beginning.
        pause: Lets time pass.

    Raises:
        UsageError: There is no such process.
        MeasurementError: It runs no Python, may not be looked into, or trains nothing.
    """
    began_s = clock()

    def wait(pause_s: float) -> None:
        pause(pause_s)
        if progress is not None:
            progress(ProgressUpdate("watching", elapsed_s=clock() - began_s, budget_s=seconds))

    watched = watch_job(pid, seconds, clock, wait)
    return judge(watched, datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"))

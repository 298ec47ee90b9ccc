"""The verdict on a running job: watched from outside for some seconds, then judged."""

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
        pid: Any process of the job; its descendants are watched with it.
        seconds: Maximum duration until the answer.
        progress: Called now and then with the elapsed time.
        clock: Monotonic time in seconds.
        pause: Waits for the given seconds.

    Raises:
        UsageError: There is no such process.
        MeasurementError: The job runs no Python, may not be inspected, or trains nothing.
    """
    began_s = clock()

    def wait(pause_s: float) -> None:
        pause(pause_s)
        if progress is not None:
            progress(ProgressUpdate("watching", elapsed_s=clock() - began_s, budget_s=seconds))

    watched = watch_job(pid, seconds, clock, wait)
    return judge(watched, datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"))

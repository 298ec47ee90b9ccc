"""Watch a script that trains without a DataLoader that can be fed, through the stacks of its process."""

from __future__ import annotations

import os
from collections.abc import Callable

import psutil

from bottleneck.errors import BottleneckError
from bottleneck.job.world import find_place
from bottleneck.measure.passes.pyspy import allow_tracing
from bottleneck.results.watched import WatchedResult
from bottleneck.watching.attach import attach

_ENDING_S = 2.0
"""Seconds in which processes of the script may end."""


def watch_inside(seconds: float, trains_here: bool, pause: Callable[[float], None]) -> WatchedResult | None:
    """Watch this process and its descendants, and return the verdict; None if no training was seen.

    Args:
        seconds: Maximum duration.
        trains_here: True if this process trains; else only a training in a child counts.
        pause: Waits for the given seconds.
    """
    # Each of several ranks would judge and end alone.
    if find_place() is not None or not (trains_here or psutil.Process().children()):
        pause(seconds)
        return None
    allow_tracing()
    try:
        found = attach(os.getpid(), seconds, pause=pause)
    except BottleneckError:  # the message that is shown instead says what was missing
        return None
    finally:
        allow_tracing(allowed=False)
    return found if trains_here or any(rank.pid != os.getpid() for rank in found.ranks) else None


def end_children() -> None:
    """End the processes that the script has started, because this one ends without waiting for them."""
    children = psutil.Process().children(recursive=True)
    for ask in (psutil.Process.terminate, psutil.Process.kill):
        for child in children:
            try:
                ask(child)
            except psutil.Error:  # it has ended
                continue
        _, children = psutil.wait_procs(children, timeout=_ENDING_S)

"""A script that trains without a DataLoader that can be fed: watched from outside, by the stacks of its own process."""

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
"""How long processes of the script may take to end."""


def watch_inside(seconds: float, trains_here: bool, pause: Callable[[float], None]) -> WatchedResult | None:
    """Watch this process and those that it has started, and return the verdict; None where nothing was seen to train.

    Args:
        seconds: How long it may take.
        trains_here: A training goes on in this process; else only one in a child counts.
        pause: Lets time pass.
    """
    # Of several ranks each would judge, and end, by itself.
    if find_place() is not None or not (trains_here or psutil.Process().children()):
        pause(seconds)
        return None
    allow_tracing()
    try:
        found = attach(os.getpid(), seconds, pause=pause)
    except BottleneckError:  # the sentence that comes instead says what was missing
        return None
    finally:
        allow_tracing(allowed=False)
    return found if trains_here or any(rank.pid != os.getpid() for rank in found.ranks) else None


def end_children() -> None:
    """End what the script has started: the process ends without waiting for it."""
    children = psutil.Process().children(recursive=True)
    for ask in (psutil.Process.terminate, psutil.Process.kill):
        for child in children:
            try:
                ask(child)
            except psutil.Error:  # it has ended
                continue
        _, children = psutil.wait_procs(children, timeout=_ENDING_S)

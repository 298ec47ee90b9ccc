"""Facts that this system and this Python do not report, and the parts of the result that miss them."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

from bottleneck.measure.evidence.io import read_counters
from bottleneck.measure.machine.limits import PROC, read_text
from bottleneck.results.records import Warning
from bottleneck.results.warnings.unseen import core_waits_not_seen, lines_not_seen, reads_not_seen


def unseen(proc: Path = PROC) -> Iterator[Warning]:
    """Yield a warning of each thing that cannot be measured here.

    Args:
        proc: Where the kernel tells of processes.
    """
    if read_counters([os.getpid()]) is None:
        yield reads_not_seen()
    if read_text(proc / "thread-self/schedstat") is None:
        yield core_waits_not_seen()
    if not getattr(sys, "_is_gil_enabled", lambda: True)():
        yield lines_not_seen()

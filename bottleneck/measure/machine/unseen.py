"""Facts that this system and this Python do not report, and the parts of the result that miss them."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

from bottleneck.measure.evidence.io import read_counters
from bottleneck.measure.machine.limits import PROC, read_text


def unseen(proc: Path = PROC) -> Iterator[tuple[str, str]]:
    """Yield (id, message) of each thing that cannot be measured here.

    Args:
        proc: Where the kernel tells of processes.
    """
    if read_counters([os.getpid()]) is None:
        yield (
            "reads-not-seen",
            "This system does not report how many bytes a process reads, so it is unknown where the data comes from, "
            "and whether more of it is read than kept.",
        )
    if read_text(proc / "thread-self/schedstat") is None:
        yield (
            "core-waits-not-seen",
            "This system does not report how long a thread waits for a core: workers that lack cores may look slow.",
        )
    if not getattr(sys, "_is_gil_enabled", lambda: True)():
        yield (
            "lines-not-seen",
            "This Python runs without a GIL, so stacks cannot be sampled safely, and no line of code is named. Run the "
            "job once with PYTHON_GIL=1 to see lines.",
        )

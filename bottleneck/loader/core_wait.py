"""How long a thread has been ready to run and has had no core, as the kernel counts it."""

from __future__ import annotations

from pathlib import Path


def read_core_wait_s() -> float | None:
    """Return for how long the calling thread has been ready to run and has had no core; None where that is unknown."""
    try:
        fields = Path("/proc/thread-self/schedstat").read_text().split()
        return int(fields[1]) * 1e-9
    except (OSError, ValueError, IndexError):
        return None

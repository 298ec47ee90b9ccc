"""What one examination says."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from bottleneck.errors import ExitStatus


@dataclass(frozen=True)
class Finding:
    """What one examination says."""

    status: Literal["ok", "warning", "problem"]
    """A problem makes measuring impossible; a warning hinders it or blurs its numbers."""
    subject: str
    message: str
    remedy: str = ""
    exit_status: ExitStatus = ExitStatus.COULD_NOT_MEASURE
    """What a problem means for who asked."""


def first_line(error: BaseException) -> str:
    """The first line of an error's message; its type where it has none."""
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__


def format_bytes(count: float) -> str:
    """A number of bytes for people, in powers of 1024 as memory is sized."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1024:
            return f"{count:.0f} {unit}" if unit == "B" or count >= 100 else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} TiB"


def format_seconds(seconds: float) -> str:
    """A time for people."""
    if seconds < 1e-3:
        return f"{seconds * 1e6:.0f} µs"
    return f"{seconds * 1e3:.3g} ms" if seconds < 1 else f"{seconds:.1f} s"

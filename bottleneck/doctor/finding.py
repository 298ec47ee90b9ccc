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
    """Of the command, where this is a problem."""


def first_line(error: BaseException) -> str:
    """The first line of an error's message; its type where it has none."""
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__

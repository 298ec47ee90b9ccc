"""The traceback of what the user's code raised, as text."""

from __future__ import annotations

import re
import traceback

from bottleneck.job.code_origin import is_ours, is_users

_STARTS_SCRIPTS = "<frozen runpy>"
_FRAME = re.compile(r'  File "(.+?)", line \d+')


def users_traceback(error: BaseException) -> str:
    """The traceback of an exception, without frames of ours and of what starts scripts."""
    frames = [
        f
        for f in traceback.extract_tb(error.__traceback__)
        if not is_ours(f.filename) and f.filename != _STARTS_SCRIPTS
    ]
    lines = ["Traceback (most recent call last):\n", *traceback.format_list(frames)]
    return "".join([*lines, *traceback.format_exception_only(type(error), error)]).rstrip()


def without_libraries(text: str) -> str:
    """A traceback with the frames of the user's own files only, and the number of the others."""
    lines: list[str] = []
    hidden, kept, in_frames = 0, True, False
    for line in text.splitlines():
        frame = _FRAME.match(line)
        if frame is not None:
            in_frames, kept = True, is_users(frame[1])
            hidden += not kept
        elif not (in_frames and line.startswith("    ")):  # neither a frame nor its source
            if in_frames and hidden:
                lines.append(
                    f"  ({hidden} frame{'s' if hidden > 1 else ''} of libraries left out: --traceback shows all)"
                )
            hidden, kept, in_frames = 0, True, False
        if kept:
            lines.append(line)
    return "\n".join(lines)

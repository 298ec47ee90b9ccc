"""The place in the user's code that a written traceback leads to."""

from __future__ import annotations

import re
from pathlib import Path

from bottleneck.job.code_origin import is_users

_FRAME = re.compile(r'File "([^"]+)", line (\d+)')


def find_place(text: str, *, innermost_first: bool) -> str | None:
    """File and line of the innermost frame of the user's code; None if there is none.

    Args:
        text: One or several stacks, as Python's traceback or faulthandler write them.
        innermost_first: In the order of faulthandler.
    """
    frames = [(path, line) for path, line in _FRAME.findall(text) if is_users(path)]
    if not frames:
        return None
    path, line = frames[0 if innermost_first else -1]
    return f"{Path(path).name}, line {line}"

"""The place in the user's code that a written traceback leads to."""

from __future__ import annotations

import re
import sysconfig
from pathlib import Path

_FRAME = re.compile(r'File "([^"]+)", line (\d+)')
_OURS = str(Path(__file__).resolve().parents[2])


def find_place(text: str, *, innermost_first: bool) -> str | None:
    """File and line of the innermost frame of the user's code; None if there is none.

    Args:
        text: One or several stacks, as Python's traceback or faulthandler write them.
        innermost_first: In the order of faulthandler.
    """
    frames = [(path, line) for path, line in _FRAME.findall(text) if _is_users(path)]
    if not frames:
        return None
    path, line = frames[0 if innermost_first else -1]
    return f"{Path(path).name}, line {line}"


def _is_users(path: str) -> bool:
    library = sysconfig.get_path("stdlib")
    return not path.startswith(("<", _OURS, library)) and "site-packages" not in path and "dist-packages" not in path

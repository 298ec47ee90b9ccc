"""Whose code a file holds: the user's, that of Python and installed packages, or this package's."""

from __future__ import annotations

import os
import sysconfig
from functools import cache
from pathlib import Path

_PACKAGE = Path(__file__).parents[1]
# Not the whole package: `_pydata` and pydata's Bottleneck, which share its folder, are called by the user's code.
_OURS = (
    *(os.path.join(_PACKAGE, folder, "") for folder in ("cli", "script", "measure", "loader", "job")),
    str(_PACKAGE / "api.py"),
)


def is_ours(file: str) -> bool:
    """Whether a file is part of what calls the user's code."""
    return file.startswith(_OURS)


@cache
def is_library(file: str) -> bool:
    """Whether a file belongs to Python or to an installed package."""
    path = Path(file)
    if {"site-packages", "dist-packages"} & set(path.parts):
        return True
    resolved = path.resolve()
    return any(resolved.is_relative_to(root) for root in _library_roots())


@cache
def _library_roots() -> frozenset[Path]:
    return frozenset(Path(sysconfig.get_path(key)).resolve() for key in ("stdlib", "platstdlib", "purelib", "platlib"))


def is_users(file: str) -> bool:
    """Whether the code of a frame is the user's own."""
    return not file.startswith("<") and not is_ours(file) and not is_library(file)

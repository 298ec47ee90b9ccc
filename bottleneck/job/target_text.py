"""The text of a target, and whether its file is there: known without torch."""

from __future__ import annotations

import difflib
import os
from pathlib import Path

from bottleneck.errors import TargetError

FORMS = "package.module:function or path/to/file.py:function"


def check_target(text: str) -> None:
    """Refuse a target that cannot be right, before anything is imported.

    Raises:
        TargetError: It names no function, or a file that is not there.
    """
    where, _ = split_target(text)
    if names_file(where):
        check_file(Path(where))


def split_target(text: str) -> tuple[str, str]:
    """The file or module of a target, and the function in it.

    Raises:
        TargetError: One of them is missing.
    """
    where, separator, path = text.rpartition(":")
    if not separator or not where or not path:
        name = where.strip(":") or path or "train.py"
        raise TargetError(f"{text!r} names no function.", f"Write {name}:build, in general {FORMS}.")
    return where, path


def names_file(where: str) -> bool:
    """Whether this is a file rather than a module."""
    return where.endswith(".py") or "/" in where or os.sep in where


def check_file(path: Path) -> None:
    """Refuse what is no file.

    Raises:
        TargetError: With a name that is near.
    """
    if os.path.isfile(path):  # which takes a name that is too long for one that is not there
        return
    if os.path.isdir(path):
        raise TargetError(f"{str(path)!r} is a folder, not a file.", f"Write {FORMS}.")
    raise TargetError(f"There is no file {str(path)!r}.", _file_remedy(path))


def _file_remedy(path: Path) -> str:
    folder = path.parent
    names = [entry.name for entry in folder.glob("*.py") if entry.is_file()] if os.path.isdir(folder) else []
    near = difflib.get_close_matches(path.name, names, n=1, cutoff=0.6)
    if near:
        return f"Did you mean {str(folder / near[0])!r}?"
    return f"Paths are relative to the working directory; write {FORMS}."

"""Run a script as Python would: as `__main__`, with its own arguments, and its folder first on the path."""

from __future__ import annotations

import os
import runpy
import sys
import threading
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from bottleneck.errors import UsageError

_WRITE = "Write bottleneck run path/to/train.py ARGS."
_NO_SCRIPTS = {
    ".ipynb": ("notebook", "In the notebook, write with bottleneck.diagnosing() as run: train()."),
    ".sh": ("shell script", "In the shell script, write bottleneck run in the place of python."),
}


@dataclass(frozen=True)
class Script:
    """What is to be run.

    Attributes:
        name: The path of a file, or the name of a module.
        arguments: Its own.
        is_module: It is a module, as after `python -m`.
    """

    name: str
    arguments: Sequence[str]
    is_module: bool = False

    def check(self) -> None:
        """Refuse what is no script of Python's, before torch is imported.

        Raises:
            UsageError: It is none, or is not there.
        """
        if self.is_module:
            return
        if not os.path.exists(self.name):
            raise UsageError(f"There is no script {self.name!r}.", _WRITE)
        if os.path.isdir(self.name) and not os.path.exists(os.path.join(self.name, "__main__.py")):
            raise UsageError(f"{self.name!r} is a folder.", _WRITE)
        kind = os.path.splitext(self.name)[1].lower()
        if kind in _NO_SCRIPTS:
            what, remedy = _NO_SCRIPTS[kind]
            raise UsageError(f"{self.name!r} is a {what}, not a Python script.", remedy)

    def run(self) -> None:
        """Run it to its end. Whatever it raises is raised, SystemExit included."""
        sys.argv = [self.name, *self.arguments]
        sys.modules["__mp_main__"] = _Main("__mp_main__")
        if self.is_module:
            sys.path.insert(0, os.getcwd())
            runpy.run_module(self.name, run_name="__main__", alter_sys=True)
        else:
            path = os.path.abspath(self.name)  # as Python does, so that `__file__` is right after a chdir
            sys.path.insert(0, os.path.dirname(os.path.realpath(path)))
            runpy.run_path(path, run_name="__main__")


class _Main(ModuleType):
    """What spawned workers call `__main__`, and pickle by that name: here it is the script's, and not ours."""

    def __getattr__(self, name: str) -> Any:
        return getattr(sys.modules["__main__"], name)


def wait_for_threads(already_there: Collection[threading.Thread]) -> None:
    """Wait for the threads that a script has started, as Python does at its end: its training may run in one."""

    def left() -> list[threading.Thread]:
        return [one for one in threading.enumerate() if not one.daemon and one not in already_there]

    while threads := left():
        threads[0].join()

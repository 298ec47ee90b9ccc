"""Thread counts of the libraries of a worker; for a trial, one thread each, restored afterwards."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

_LIBRARIES = (
    ("torch", "get_num_threads", "set_num_threads", 1),
    ("cv2", "getNumThreads", "setNumThreads", 0),
    ("numexpr", "get_num_threads", "set_num_threads", 1),
)
"""Their modules, what says how many threads they have, what sets it, and the number for the thread that asks alone."""


def _imported() -> Iterator[tuple[Callable[[], int], Callable[[int], object], int]]:
    """Yield what gets the threads of each library that is wholly imported, what sets them, and the number for one."""
    for name, get, put, one in _LIBRARIES:
        if hasattr(module := sys.modules.get(name), put):
            yield getattr(module, get), getattr(module, put), one


def library_threads() -> int:
    """Return the most threads that a library of this process computes with, of those that can be told how many."""
    found = [int(get()) for get, _, _ in _imported()]
    pools = _thread_pools()
    if pools is not None:
        found += [int(pool["num_threads"]) for pool in pools.threadpool_info()]
    return max(found, default=1)


_VARIABLES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


def _thread_pools() -> Any:
    """Return what knows NumPy's threads; None if they are not needed, or it is not installed.

    By default NumPy's libraries take a thread for each core, whether or not a dataset uses what computes in threads.
    """
    if "threadpoolctl" not in sys.modules and all(os.environ.get(name, "1") == "1" for name in _VARIABLES):
        return None
    try:
        return importlib.import_module("threadpoolctl")
    except ImportError:
        return None


class OneThread:
    """Lets those libraries compute with one thread; a library that the user's code has not imported stays so."""

    def __init__(self) -> None:
        self._undo: list[Callable[[], object]] = []

    def begin(self) -> None:
        pools = _thread_pools()
        if pools is not None:
            self._undo.append(pools.threadpool_limits(1).restore_original_limits)
        for get, put, one in _imported():
            self._undo.append(partial(put, get()))
            put(one)

    def end(self) -> None:
        while self._undo:
            self._undo.pop()()

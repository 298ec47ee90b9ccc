"""How many threads the libraries of a worker compute with; and for a trial one each, which ends as it was."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable
from typing import Any

import torch


def library_threads() -> int:
    """Return the most threads that a library of this process computes with, of those that can be told how many."""
    found = [torch.get_num_threads()]
    opencv: Any = sys.modules.get("cv2")
    if opencv is not None:
        found.append(int(opencv.getNumThreads()))
    expressions: Any = sys.modules.get("numexpr")
    if expressions is not None:
        found.append(int(expressions.get_num_threads()))
    pools = _thread_pools()
    if pools is not None:
        found += [int(pool["num_threads"]) for pool in pools.threadpool_info()]
    return max(found)


_VARIABLES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


def _thread_pools() -> Any:
    """What knows the threads that NumPy computes with; None where nobody asked for threads, or it is not installed.

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
        self._set(torch.get_num_threads, torch.set_num_threads, 1)
        opencv: Any = sys.modules.get("cv2")
        if opencv is not None:
            self._set(opencv.getNumThreads, opencv.setNumThreads, 0)  # 0: in the thread that asks
        expressions: Any = sys.modules.get("numexpr")
        if expressions is not None:
            self._set(expressions.get_num_threads, expressions.set_num_threads, 1)

    def _set(self, get: Callable[[], int], put: Callable[[int], object], value: int) -> None:
        before = get()
        put(value)
        self._undo.append(lambda: put(before))

    def end(self) -> None:
        while self._undo:
            self._undo.pop()()

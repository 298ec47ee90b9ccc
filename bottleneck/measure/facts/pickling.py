"""How much the start of a worker by spawn or forkserver would send: pickled within limits, and nothing is kept."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing import context
from multiprocessing.reduction import ForkingPickler
from typing import Any

import numpy as np
import torch

LIMIT_BYTES = 256 << 20
LIMIT_S = 1.0
_STORAGES = (torch.Tensor, torch.UntypedStorage, torch.TypedStorage)
_STUB = (bytes, (b"\0" * 200,))
"""About what is sent for a tensor: its type, shape and the name of its shared memory."""


@dataclass(frozen=True)
class PickleSize:
    """What a pickle takes.

    Attributes:
        stream_bytes: Sent to every worker; up to the limit or failure where it is not complete.
        shared_bytes: In tensors, which are moved to shared memory once and not sent.
        duration_s: Without copying the tensors.
        complete: Neither limit stopped it and nothing failed.
        failure: Why it cannot be pickled, on one line; empty where it can, or where a limit came first.
    """

    stream_bytes: int
    shared_bytes: int
    duration_s: float
    complete: bool
    failure: str = ""


class _LimitReachedError(Exception):
    """Pickling goes beyond a limit."""


class _Counter:
    """A file that keeps nothing, and ends the pickling at its limits."""

    def __init__(self, limit_bytes: int, limit_s: float, read_clock_s: Callable[[], float]) -> None:
        self._limit_bytes, self._limit_s, self._read_clock_s = limit_bytes, limit_s, read_clock_s
        self._start_s = read_clock_s()
        self.written_bytes = 0

    @property
    def elapsed_s(self) -> float:
        return self._read_clock_s() - self._start_s

    def write(self, piece: Any) -> int:
        self.written_bytes += len(piece)
        self.check()
        return len(piece)

    def check(self, further_bytes: int = 0) -> None:
        """Raise where a limit is reached, or would be with so many bytes more."""
        if self.written_bytes + further_bytes > self._limit_bytes or self.elapsed_s > self._limit_s:
            raise _LimitReachedError


class _Spawning:
    """Stands for the process being started, without which locks and queues refuse to be pickled."""

    @staticmethod
    def duplicate_for_child(descriptor: int) -> int:
        return descriptor


class _CountingPickler(ForkingPickler):
    """Pickles as the start of a process does, but leaves tensors where they are.

    PyTorch's own way would move their storage to shared memory, in the user's own objects.
    """

    def __init__(self, counter: _Counter) -> None:
        super().__init__(counter)
        self._counter = counter
        self._storages: dict[int, int] = {}

    @property
    def shared_bytes(self) -> int:
        return sum(self._storages.values())

    def reducer_override(self, obj: Any) -> Any:
        self._counter.check()
        if isinstance(obj, _STORAGES):
            self._note(obj)
            return _STUB
        if isinstance(obj, np.ndarray):
            self._counter.check(obj.nbytes)  # it is copied as a whole before it is written
        return NotImplemented

    def _note(self, value: Any) -> None:
        try:
            storage = value.untyped_storage() if isinstance(value, torch.Tensor) else value
            self._storages[storage.data_ptr()] = storage.nbytes()
        except (RuntimeError, NotImplementedError):
            return  # a tensor without one storage: sparse, or of a kind of its own


def pickle_size(
    value: Any,
    limit_bytes: int = LIMIT_BYTES,
    limit_s: float = LIMIT_S,
    read_clock_s: Callable[[], float] = time.perf_counter,
) -> PickleSize:
    """Return how much pickling an object as `spawn` would send it to a worker takes.

    The object stays as it is, except for what its own `__getstate__` and `__reduce__` do: they are the user's code,
    and the limit of time has to wait until they return.

    Args:
        value: A dataset, a collate_fn or anything else.
        limit_bytes: Pickling ends when more than this has been written.
        limit_s: Pickling ends after this time, at the next object or the next 64 KiB.
        read_clock_s: A steady clock.
    """
    counter = _Counter(limit_bytes, limit_s, read_clock_s)
    pickler = _CountingPickler(counter)
    complete, failure = False, ""
    before = context.get_spawning_popen()
    context.set_spawning_popen(_Spawning())  # type: ignore[arg-type]  # has what pickling asks of a real one
    try:
        pickler.dump(value)
        complete = True
    except _LimitReachedError:
        pass
    except Exception as error:  # noqa: BLE001 - whatever the user's classes raise
        failure = _describe(error)
    finally:
        context.set_spawning_popen(before)
    return PickleSize(counter.written_bytes, pickler.shared_bytes, counter.elapsed_s, complete, failure)


def _describe(error: Exception) -> str:
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text[:200]}" if text else type(error).__name__

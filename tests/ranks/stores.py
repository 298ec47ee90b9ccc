"""A store of one process, for ranks that are threads of it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from bottleneck.measure.ranks.group import Group


class DictStore:
    """Does what a store of torch's does."""

    def __init__(self) -> None:
        self.values: dict[str, bytes] = {}
        self._lock = threading.Lock()

    def set(self, key: str, value: str) -> None:
        self.values[key] = value.encode()

    def get(self, key: str) -> bytes:
        return self.values[key]

    def multi_get(self, keys: list[str]) -> list[bytes]:
        return [self.values[key] for key in keys]

    def check(self, keys: list[str]) -> bool:
        return all(key in self.values for key in keys)

    def add(self, key: str, amount: int) -> int:
        with self._lock:
            value = int(self.values.get(key, b"0")) + amount
            self.values[key] = str(value).encode()
        return value

    def compare_set(self, key: str, expected: str, desired: str) -> bytes:
        with self._lock:
            if self.values.get(key, b"") == expected.encode():
                self.values[key] = desired.encode()
            return self.values[key]


def make_group(store: DictStore, rank: int, size: int, **changes: Any) -> Group:
    """A rank that never waits: where another one is not ready it lets that one go on."""
    return Group(store, rank, size, **{"sleep": lambda _: time.sleep(0), **changes})


def on_all_ranks(call: Callable[[Group], Any], size: int = 3) -> list[Any]:
    """What a call returns on each rank, or raises there."""
    store = DictStore()

    def run(rank: int) -> Any:
        group = make_group(store, rank, size)
        try:
            return call(group)
        except BaseException as error:
            group.fail(error)
            return error

    with ThreadPoolExecutor(size) as pool:
        return list(pool.map(run, range(size)))

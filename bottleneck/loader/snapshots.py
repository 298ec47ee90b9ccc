"""The state that a loader which can resume, such as torchdata's `StatefulDataLoader`, sends along with a batch.

After each of the last batches of an interval, a worker calls `state_dict` of the dataset, or of its iterator, and sends
what has changed. That is part of handing a batch over: where nothing is handed over, there is no state either.
"""

from __future__ import annotations

import pickle
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch


@dataclass(frozen=True)
class SnapshotTimes:
    """Times of the snapshots of one worker, summed."""

    count: int = 0
    state_s: float = 0.0
    """Calling `state_dict`, and finding what has changed."""
    pickle_s: float = 0.0
    unpickle_s: float = 0.0
    pickled_bytes: int = 0


class Snapshots:
    """Takes and times the snapshots of a worker.

    Args:
        holders: Returns the objects of the user that may have a state, by name: the dataset and its iterator.
        clock: Monotonic seconds.
    """

    def __init__(self, holders: Callable[[], dict[str, Any]], clock: Callable[[], float] = time.perf_counter) -> None:
        self._holders, self._clock = holders, clock
        self._before: dict[tuple[Any, ...], Any] | None = None
        self._times = SnapshotTimes()

    def take(self) -> dict[str, Any]:
        """Return the state of each object that has one."""
        return {name: holder.state_dict() for name, holder in self._holders().items() if _is_stateful(holder)}

    def forget(self) -> None:
        """Release the last state that was timed."""
        self._before = None

    def time_one(self) -> SnapshotTimes:
        """Take a snapshot as the loader would send it, and return the times of all so far, except the first."""
        began_s = self._clock()
        state = _leaves(self.take())
        before, self._before = self._before, state
        if before is None or not state:
            return self._times
        changed = {place: leaf for place, leaf in state.items() if place not in before or _differ(before[place], leaf)}
        taken_s = self._clock()
        try:  # without tensors, which travel in shared memory
            content = pickle.dumps([leaf for leaf in changed.values() if not isinstance(leaf, torch.Tensor)])
        except Exception:  # noqa: BLE001 - the loader's own pickler may know more types
            return self._times
        pickled_s = self._clock()
        pickle.loads(content)
        unpickled_s = self._clock()
        sums = self._times
        self._times = SnapshotTimes(
            count=sums.count + 1,
            state_s=sums.state_s + taken_s - began_s,
            pickle_s=sums.pickle_s + pickled_s - taken_s,
            unpickle_s=sums.unpickle_s + unpickled_s - pickled_s,
            pickled_bytes=sums.pickled_bytes + len(content),
        )
        return self._times


def _is_stateful(holder: Any) -> bool:
    return all(callable(getattr(holder, name, None)) for name in ("state_dict", "load_state_dict"))


def _leaves(state: Any, place: tuple[Any, ...] = ()) -> dict[tuple[Any, ...], Any]:
    """Return what nested dictionaries hold, by place."""
    if not isinstance(state, dict) or not state:
        return {place: state} if place else {}
    found: dict[tuple[Any, ...], Any] = {}
    for key, part in state.items():
        found |= _leaves(part, (*place, key))
    return found


def _differ(before: Any, now: Any) -> bool:
    """Return True if two values differ, or cannot be compared: then the loader sends the value, too."""
    are_tensors = isinstance(before, torch.Tensor) and isinstance(now, torch.Tensor)
    try:
        return not torch.equal(before, now) if are_tensors else bool(before != now)
    except Exception:  # noqa: BLE001 - lists of tensors and arrays have no single truth
        return True

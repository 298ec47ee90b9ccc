"""Coming batches that the sampler was asked for ahead of time, to record some from all over them.

Where an epoch is sorted by length, or grows slowly, its first batches say little about those that raw is measured on.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

_MOST_BATCHES = 512
"""About as many as raw is measured on in a minute at a step of 20 ms."""
_MOST_INDICES = 1 << 19
_MOST_SECONDS = 0.2
_GOLDEN = (math.sqrt(5) - 1) / 2

_Request = tuple[Any, int]
"""What the workers are asked for, and the samples in it."""


class LookAhead:
    """Hands out what lies ahead: from all over it while asked so, and else in order, each once.

    Args:
        requests: Gives the next request of the user's order.
        batches: How many there are at most, such as those of an epoch.
    """

    def __init__(self, requests: Callable[[], _Request], batches: int, clock: Callable[[], float]) -> None:
        self._left: dict[int, _Request] = {}
        self._raised: Exception | None = None
        self._first = 0
        until_s, indices = clock() + _MOST_SECONDS, 0
        while len(self._left) < min(batches, _MOST_BATCHES) and indices < _MOST_INDICES and clock() < until_s:
            try:
                request = requests()
            except Exception as error:  # noqa: BLE001 - the sampler's own; it counts when its turn comes
                self._raised = error
                break
            self._left[len(self._left)] = request
            indices += request[1]
        self._positions = _all_over(len(self._left))

    def choose(self) -> _Request | None:
        """Return one from a place far from those chosen before; None where there is none left."""
        position = next((position for position in self._positions if position in self._left), None)
        return None if position is None else self._left.pop(position)

    def take(self) -> _Request | None:
        """Return the first one that is left; None where there is none.

        Raises:
            Exception: What the sampler raised at that place.
        """
        while self._left:
            request = self._left.pop(self._first, None)
            self._first += 1
            if request is not None:
                return request
        if self._raised is not None:
            raise self._raised
        return None


def _all_over(length: int) -> Iterator[int]:
    """Yield positions such that any number of them is spread over the whole: multiples of the golden ratio.

    Source: additive recurrence, as in L. Kuipers and H. Niederreiter, 'Uniform Distribution of Sequences', 1974.
    """
    for number in range(4 * length):
        yield int(math.modf((number + 0.5) * _GOLDEN)[0] * length)
    yield from range(length)

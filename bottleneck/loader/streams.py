"""The shares of a stream that its workers get: their first samples, compared, and the shards that the stream lists."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from inspect import CO_GENERATOR
from types import FrameType
from typing import Any

FIRST = 8
"""Samples at the beginning of a worker's stream that are compared with those of the others."""
_MIN_DISTINCT = 4
"""Different samples among them that it takes to say that streams are the same: a constant says nothing."""


def find_repeating(first: Iterable[tuple[int, ...]]) -> int:
    """Return how many workers begin with the very same samples, by their checksums; 0 where no two of them do."""
    known = [each for each in first if len(each) >= _MIN_DISTINCT]
    length = min(map(len, known), default=0)
    counts = Counter(each[:length] for each in known if len(set(each[:length])) >= _MIN_DISTINCT)
    most = max(counts.values(), default=0)
    return most if most > 1 else 0


def counted(stream: Iterator[Any]) -> Iterator[tuple[int, Any]]:
    """Yield each sample of a stream, with how many the generator that made it has made since the last one.

    All but one of them were thrown away. What is put together of several is another object than these, and counts as 1.
    """
    given: dict[FrameType, tuple[int, Any]] = {}

    def see(frame: FrameType, event: str, value: Any) -> None:
        if event == "return" and value is not None and frame.f_code.co_flags & CO_GENERATOR:
            given[frame] = given.get(frame, (0, None))[0] + 1, value

    while True:
        given.clear()
        if sys.getprofile() is None:
            sys.setprofile(see)
        try:
            sample = next(stream)
        except StopIteration:
            return
        finally:
            if sys.getprofile() is see:
                sys.setprofile(None)
        yield max((count for count, last in given.values() if last is sample), default=1), sample


def shards_of(dataset: Any) -> int | None:
    """Return the shards that a stream of a known library is divided by; None if it does not say."""
    if type(dataset).__module__.partition(".")[0] == "datasets":
        shards = getattr(dataset, "num_shards", None) or getattr(dataset, "n_shards", None)
        return shards if isinstance(shards, int) else None
    lists = getattr(sys.modules.get("webdataset"), "SimpleShardList", ())
    return next((len(part.urls) for part in getattr(dataset, "pipeline", ()) if isinstance(part, lists)), None)

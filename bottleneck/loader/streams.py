"""How a stream divides itself among the workers: their first samples, compared, and the shards that it says it has."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterable
from typing import Any

FIRST = 8
"""Samples at the beginning of a worker's stream that are compared with those of the others."""
_FEWEST_DISTINCT = 4
"""Different samples among them that it takes to say that streams are the same: a constant says nothing."""


def find_repeating(first: Iterable[tuple[int, ...]]) -> int:
    """Return how many workers begin with the very same samples, by their checksums; 0 where no two of them do."""
    known = [each for each in first if len(each) >= _FEWEST_DISTINCT]
    length = min(map(len, known), default=0)
    counts = Counter(each[:length] for each in known if len(set(each[:length])) >= _FEWEST_DISTINCT)
    most = max(counts.values(), default=0)
    return most if most > 1 else 0


def shards_of(dataset: Any) -> int | None:
    """Return the shards that a stream of a known library is divided by; None where it does not say."""
    if type(dataset).__module__.partition(".")[0] == "datasets":
        shards = getattr(dataset, "num_shards", None) or getattr(dataset, "n_shards", None)
        return shards if isinstance(shards, int) else None
    lists = getattr(sys.modules.get("webdataset"), "SimpleShardList", ())
    return next((len(part.urls) for part in getattr(dataset, "pipeline", ()) if isinstance(part, lists)), None)

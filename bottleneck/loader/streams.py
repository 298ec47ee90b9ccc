"""How a stream divides itself among the workers: their first samples, compared, and the shards that it says it has."""

from __future__ import annotations

import sys
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any

import numpy as np
import torch

from bottleneck.loader import trees

FIRST = 8
"""Samples at the beginning of a worker's stream that are compared with those of the others."""
_FEWEST_DISTINCT = 4
"""Different samples among them that it takes to say that streams are the same: a constant says nothing."""
_MOST_LEAVES, _MOST_BYTES = 16, 4096
"""Of a sample, and of each leaf: the beginning of a batch must not come later by this."""


def fingerprint(sample: Any) -> int:
    """Return a checksum of the beginning of a sample's data, which is the same in every process."""
    total = 0
    for leaf in islice(trees.leaves(sample), _MOST_LEAVES):
        total = zlib.crc32(_bytes_of(leaf), total)
    return total


def _bytes_of(leaf: Any) -> bytes:
    if isinstance(leaf, torch.Tensor) and leaf.device.type == "cpu" and leaf.layout == torch.strided:
        leaf = leaf.detach().numpy()
    if isinstance(leaf, np.ndarray) and not leaf.dtype.hasobject:
        return repr((leaf.shape, leaf.dtype, leaf.flat[:_MOST_BYTES].tobytes())).encode()
    return repr(leaf)[:_MOST_BYTES].encode() if isinstance(leaf, (str, bytes, int, float)) else b""


def find_repeating(first: Iterable[tuple[int, ...]]) -> int:
    """Return how many workers begin with the very same samples; 0 where no two of them do.

    Args:
        first: The fingerprints of each worker's first samples.
    """
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
    webdataset: Any = sys.modules.get("webdataset")
    lists = getattr(webdataset, "SimpleShardList", ())
    for part in getattr(dataset, "pipeline", ()) if lists else ():
        if isinstance(part, lists):
            return len(part.urls)
    return None


def begin_noting(stream: Iterator[Any], into: list[int]) -> Iterator[Any]:
    """Yield the first samples of a stream, each with its fingerprint noted."""
    for sample in islice(stream, FIRST):
        try:
            into.append(fingerprint(sample))
        except Exception:  # noqa: BLE001 - any user type may refuse; what says nothing is no different sample
            into.append(0)
        yield sample

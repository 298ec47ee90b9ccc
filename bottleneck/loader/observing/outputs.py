"""Checksums of the data of samples, which tell if two epochs make the same samples."""

from __future__ import annotations

import zlib
from typing import Any, NamedTuple

from bottleneck.loader import trees
from bottleneck.loader.recording.copies import bytes_of

MAX_OUTPUTS, _MAX_DATA_BYTES = 1024, 1 << 26
"""Samples whose data is compared, and the most bytes of one."""


class SampleData(NamedTuple):
    """A checksum of the data that a sample is made of, or consists of."""

    index: Any
    stage: str
    """The stage that gave the data; empty for a sample."""
    nbytes: int
    checksum: int


class OutputNotes:
    """Compares the samples of one worker, in the order in which they are made."""

    def __init__(self) -> None:
        self.begin(None)

    def begin(self, index: Any) -> None:
        """Begin the sample of an index; None for data that has none, which is not compared."""
        self._index = index
        self._loaded: set[tuple[int, int] | None] = set()
        """Size and checksum of all data that was loaded; None for some that is read later."""

    def see_loaded(self, *values: Any) -> None:
        """Note what was loaded, or goes into the augmentation, which often is the same."""
        if isinstance(self._index, (int, str)):
            self._loaded.add(_size_and_checksum(list(values)))

    def end(self, value: Any) -> list[SampleData]:
        """Return the data that the sample was made of; that of the sample itself if none is known."""
        index, found, stage = self._index, self._loaded, "load"
        self.begin(None)
        if not isinstance(index, (int, str)):
            return []
        if not found or None in found:
            found, stage = {_size_and_checksum(value)}, ""
        known = sorted(one for one in found if one is not None)
        return [SampleData(index, stage, sum(size for size, _ in known), hash(tuple(known)))] if known else []


def _size_and_checksum(value: Any) -> tuple[int, int] | None:
    """Return the size of data in bytes, and a checksum; None for much, or for some that is read or decoded later."""
    if trees.nbytes(value) > _MAX_DATA_BYTES:
        return None
    checksum = nbytes = 0
    for leaf in trees.leaves(value):
        content = bytes_of(leaf)
        if not len(content):
            return None
        checksum, nbytes = zlib.crc32(content, checksum), nbytes + len(content)
    return nbytes, checksum

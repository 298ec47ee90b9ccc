"""Drops files from the page cache, and checks whether that worked; neither needs root.

Dropping is advice to the kernel (`posix_fadvise`): pages that are dirty, or mapped into the memory of any process,
stay. So pages are probed afterwards: a read that must not wait (`preadv` with RWF_NOWAIT) fails for a page that is not
in memory.
"""

from __future__ import annotations

import bisect
import contextlib
import itertools
import os
import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

_PAGES = 64
"""Pages that are probed."""
_PAGE_BYTES = 4096


@dataclass(frozen=True)
class DataFile:
    """A file of the job."""

    path: str
    size_bytes: int


@dataclass(frozen=True)
class Page:
    """A page of a file."""

    path: str
    offset: int


def can_drop() -> bool:
    """Whether this system can drop files from memory, and say whether it did."""
    return hasattr(os, "posix_fadvise") and hasattr(os, "preadv") and hasattr(os, "RWF_NOWAIT")


def drop(files: Iterable[DataFile]) -> None:
    """Ask the kernel to forget what it holds of files in memory; those that cannot be opened are left out."""
    for file in files:
        with contextlib.suppress(OSError):
            descriptor = os.open(file.path, os.O_RDONLY)
            try:
                os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
            finally:
                os.close(descriptor)


def sample_pages(files: Sequence[DataFile], seed: int, pages: int = _PAGES) -> list[Page]:
    """Choose pages at random, each byte of the files alike; none of the files may be empty."""
    ends = list(itertools.accumulate(file.size_bytes for file in files))
    chosen, draw = [], random.Random(seed)
    for _ in range(pages if files else 0):
        at = draw.randrange(ends[-1])
        file = files[bisect.bisect_right(ends, at)]
        begin = at - (ends[bisect.bisect_right(ends, at)] - file.size_bytes)
        chosen.append(Page(file.path, begin - begin % _PAGE_BYTES))
    return chosen


def find_resident(pages: Iterable[Page]) -> list[Page] | None:
    """Return those of some pages that are in memory; None where a file system does not say.

    Probing a page that is not brings it in. The file is dropped again at once, so that pages beside it do not count.
    """
    found = []
    for page in pages:
        try:
            descriptor = os.open(page.path, os.O_RDONLY)
        except OSError:
            continue
        try:
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_RANDOM)  # without read-ahead
            try:
                if os.preadv(descriptor, [bytearray(1)], page.offset, os.RWF_NOWAIT) == 1:
                    found.append(page)
            except BlockingIOError:
                # It is on its way now; a page that is being read cannot be dropped.
                os.pread(descriptor, 1, page.offset)
                os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        except OSError:
            return None
        finally:
            os.close(descriptor)
    return found

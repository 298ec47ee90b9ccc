"""The stages that run inside the loader, and sets of them.

A *mode* is the set of loader stages that work for real, as one integer; the rest is served from caches. The
present mode lives in shared memory (`bottleneck.loader.control`) and every worker reads it once per batch.

Stages that the user marks work the other way round: each has a bit that *skips* it, while the code around it works
for real. These bits are assigned at run time, and every mode is tested in the workers, per batch and per sample, in
timed blocks. So modes are plain integers: `mode & LOAD` takes 0.03 us, and 1.4 us with an `enum.IntFlag` (Python 3.11).
"""

from __future__ import annotations

# Bits in order; 62 is free, and 63 is the sign.
LOAD = 1 << 0
AUGMENT = 1 << 1
WITHIN_SAMPLE = LOAD | AUGMENT
"""Stages inside `__getitem__`; `fetch` stands for all of them where it cannot be cut."""

ONE_THREAD = 1 << 2
"""Everything real, with libraries that compute with one thread in each worker."""

COLLATE = 1 << 3
HANDOFF = 1 << 4
ALL = WITHIN_SAMPLE | COLLATE | HANDOFF

CHECK = 1 << 5
"""With the hand-off alone: each worker checks that what it has recorded is as it was. Never timed."""

REST = 1 << 6
"""Nothing works: requests made ahead are answered with nothing, at once, until the next switch."""

NOTE_FILES = 1 << 7
"""Everything real, and the files noted that are opened on the way. Never timed."""

RECORD = 1 << 8
"""Everything real, and recorded on the way. Never timed."""

STOP = 1 << 9
"""Nothing works any more: outstanding requests are answered with nothing, at once."""

SKIP_OTHER = 1 << 10
"""Marked stages within `__getitem__` work for real, on what was recorded; the code around them does not."""
SKIP_COLLATE_REST = 1 << 11
"""The same for marked stages within the collate function."""

OBSERVE = 1 << 12
"""Everything real, and watched on the way: which stage and which transform takes the time. Never timed from outside."""

NAME_FRAMES = 1 << 13
"""Everything real, under frames that are named after their stages, for a profiler. Never timed."""

EXAMINE = 1 << 14
"""Everything real, twice, for a few samples: the data touched, and the outputs that come out the same. Never timed."""

OWN_ITEMS = 1 << 15
"""With marked stages served: the code around them works on the item that they were recorded of, not on a new one."""

FIRST_MARK = 16
MAX_MARKS = 45
"""Marked stages that a mode has bits for: it is a signed integer of 64 bits."""
MARK_BITS = ((1 << MAX_MARKS) - 1) << FIRST_MARK

PAY_SERVING = 1 << (FIRST_MARK + MAX_MARKS)
"""Everything real, at the price of serving: by way of the code that serves recordings, which finds nothing to serve."""


def skip_bit(number: int) -> int:
    """The bit that serves a marked stage from its recording."""
    return 1 << (FIRST_MARK + number)


BIT_OF_STAGE = {"load": LOAD, "augment": AUGMENT, "fetch": WITHIN_SAMPLE, "collate": COLLATE, "handoff": HANDOFF}

# The ladder: which loader stages work for real when data is cached at a point.
MODE_OF_EXPERIMENT = {
    "after_collate": HANDOFF,
    "before_collate": HANDOFF | COLLATE,
    "before_augment": HANDOFF | COLLATE | AUGMENT,
    "raw": ALL,
}

EXPERIMENTS = ("device", "host", "after_collate", "before_collate", "after_augment", "before_augment", "raw")
"""All experiments, from the device outwards."""


def reads_indices(mode: int) -> bool:
    """Return True if a batch in this mode needs indices from the user's sampler."""
    return bool(mode & (LOAD | RECORD))

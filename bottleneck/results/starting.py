"""Starting up: the time from the beginning of a script to the end of its first step."""

from __future__ import annotations

from dataclasses import dataclass

from bottleneck.results.values import Count, Quantity, left_out

IMPORTS, DATASET, OTHER = "imports", "making the dataset", "other code before the loop"
LOADERS = "other loaders before the loop"
WORKERS = "starting workers"
AGAIN, SENDING = "imports again in workers", "sending the dataset to workers"
FIRST_BATCH, FIRST_STEP = "first batch", "first step"


@dataclass(frozen=True, kw_only=True)
class StartingPart:
    """A part of the time of starting up."""

    name: str | None = None
    seconds: Quantity | None = None


@dataclass(frozen=True, kw_only=True)
class StartingLine:
    """A line of the user's own code on which starting up spends time."""

    part: str | None = None
    """Part of starting up to which its time belongs."""
    path: str | None = None
    """Path; relative to the working directory if inside it."""
    line: Count | None = None
    code: str | None = None
    """Text of the line; None if the file cannot be read."""
    seconds: Quantity | None = None
    again: bool | None = None
    """True if workers run it again unless they are forked: no `if __name__ == "__main__":` is around it."""
    needed: bool | None = left_out()
    """True if it imports a package that runs the loop, or that a class of the training comes from."""


@dataclass(frozen=True, kw_only=True)
class Starting:
    """The time from the beginning of a script to the end of its first step; of a described job, its workers' part."""

    seconds: Quantity | None = None
    """Sum of the parts."""
    parts: tuple[StartingPart, ...] = ()
    """In order of time."""
    lines: tuple[StartingLine, ...] = ()
    """Most expensive lines before the loop, the most expensive first."""
    bare_worker_s: Quantity | None = None
    """Start of a single process by the workers' method, without a dataset; None if they are forked, or start fast."""
    full_worker_s: Quantity | None = None
    """The same for a process that gets the dataset."""

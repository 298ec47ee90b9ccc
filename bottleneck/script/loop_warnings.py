"""Warnings about a loop that is measured: what it does with its batches, and its other loaders."""

from __future__ import annotations

from collections.abc import Iterator

from bottleneck.results.records import Warning
from bottleneck.results.warnings.job import copy_not_seen, several_loaders
from bottleneck.script.iterators import Source
from bottleneck.script.job import NEEDED, NO_MOVE
from bottleneck.script.watch import Watch


def warnings_of_loop(watch: Watch, source: Source | None) -> Iterator[Warning]:
    """Yield the warnings about a loop, and about the source of its batches."""
    in_the_loop = None if source is None else source.moves.in_the_loop
    if in_the_loop is not None:
        yield in_the_loop
    if watch.loop.not_copied in (NO_MOVE, NEEDED):
        yield copy_not_seen(watch.loop.not_copied)
    if watch.others:
        yield several_loaders([type(loader.dataset).__name__ for loader in watch.others], watch.names)

"""Warnings about a loop that is measured: what it does with its batches, and its other loaders."""

from __future__ import annotations

from collections.abc import Iterator

from bottleneck.results.records import Warning
from bottleneck.script.iterators import Source
from bottleneck.script.job import NEEDED, NO_MOVE
from bottleneck.script.watch import Watch


def warnings_of_loop(watch: Watch, source: Source | None) -> Iterator[Warning]:
    """Yield the warnings about a loop, and about the source of its batches."""
    in_the_loop = None if source is None else source.moves.in_the_loop
    if in_the_loop is not None:
        yield Warning(
            "input-in-loop",
            f"The loop {in_the_loop}: what it does with them before it trains is part of compute. In the "
            "dataset or the collate function, it would be measured as input, and workers would do it.",
        )
    if watch.loop.not_copied in (NO_MOVE, NEEDED):
        yield Warning(
            "copy-not-seen",
            f"There is no stage `copy`: {watch.loop.not_copied}. What the loop copies is part of compute.",
        )
    if watch.others:
        others = ", ".join(type(loader.dataset).__name__ for loader in watch.others)
        yield Warning(
            "several-loaders",
            f"The loop takes batches from other loaders as well ({others}), which were not varied: their cost is "
            f"in compute. --loader (in Python: loader) chooses: {', '.join(watch.names)}. To measure all of "
            "them as one, loop over bottleneck.watch(zip(...)).",
        )

"""A training loop that is not ours: what `bottleneck run` knows of it, and the measuring has to go by."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(eq=False)
class Loop:
    """The loop of a script, fed by the diagnosis."""

    batches_per_update: int = 1
    """Batches for one step of the optimizer. Some loops take them all at once, and then train on one after another."""
    batches_ahead: int = 0
    """Batches that it may have taken before it trains on the first of them."""
    has_queue: bool = False
    """It takes its batches in another thread than it trains, until a queue of unknown length is full: in a block that
    begins while it is empty, the first steps would cost nothing."""
    breaks: int = 0
    """How often it has begun a pass over any loader: an epoch ended by its own count, or it evaluates."""
    copies: bool = False
    """It copies its batches to the device by itself: the pipeline's `to_device` makes those of `device` only."""
    not_copied: str = ""
    """Why no batch can be served to it that is on the device already; empty where that can be done."""

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
    breaks: int = 0
    """How often it has begun a pass over any loader: an epoch ended by its own count, or it evaluates."""

"""What the main process takes to receive a batch in which there is nothing: quicker than that no loader seems to be."""

from __future__ import annotations

from collections.abc import Callable

from bottleneck.loader import modes
from bottleneck.loader.switched_loader import SwitchedLoader
from bottleneck.measure.explain_errors import loader_failures

_LIMIT_S = 0.2
_LEAST_TURNS = 4
"""Batches of each worker, at least; of so many the queue's own length is no part worth mentioning."""


def receiving_s_per_batch(loader: SwitchedLoader, clock: Callable[[], float]) -> float | None:
    """Time batches that the workers answer with nothing, at once [s]; the loader rests afterwards.

    None where batches do not come from workers, or none may be left out of them.
    """
    if not loader.num_workers or not loader.can_skip_batches:
        return None
    with loader_failures("receiving"):
        loader.switch(modes.STOP)
        for _ in range(max(1, loader.queue_length)):
            loader.next_batch()
        started, taken = clock(), 0
        while taken < _LEAST_TURNS * loader.queue_length or clock() - started < _LIMIT_S:
            loader.next_batch()
            taken += 1
        seconds = clock() - started
        loader.rest()
    return seconds / taken

"""Costs of new shapes inside timed blocks: graphs compiled, memory taken from the device, algorithms tried.

Cached batches have shapes that were met while warming up, but fresh ones need not: the cost of a new shape then falls
on the experiments with fresh batches alone, and would be called loading.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch

from bottleneck.measure.ladder import Arm
from bottleneck.results.evidence import TrainingSeen
from bottleneck.results.records import Warning
from bottleneck.results.warnings.job import new_shapes_in_blocks

_MIN_WITH_GROWTH = 3
"""Blocks in which the allocator took memory above which it is more than the start of a job."""
_SHARE_WITH_GROWTH = 0.2
"""The same as a share of the blocks."""


class Counts(NamedTuple):
    """Counts since the process began."""

    compiled: int = 0
    """Graphs compiled by `torch.compile`."""
    segments: int = 0
    """Segments of memory that the allocator took from the device."""
    retries: int = 0
    """Times that it found no memory, and released its cache first."""


def make_counts(device: torch.device) -> Callable[[], Counts]:
    """Return a function that reads the counters without waiting."""
    return lambda: Counts(graphs_compiled(), *_allocated(device))


def graphs_compiled() -> int:
    """Return the number of graphs that `torch.compile` has compiled in this process."""
    counters = getattr(sys.modules.get("torch._dynamo.utils"), "counters", None)
    return int(counters["stats"].get("unique_graphs", 0)) if counters and "stats" in counters else 0


def _allocated(device: torch.device) -> tuple[int, int]:
    if device.type != "cuda":
        return 0, 0
    stats = torch.cuda.memory_stats(device)
    return int(stats.get("segment.all.allocated", 0)), int(stats.get("num_alloc_retries", 0))


def shapes_of(batch: Any) -> Any:
    """Return the shapes of a batch's tensors at its top level; runs in timed blocks."""
    if isinstance(batch, torch.Tensor):
        return batch.shape
    if isinstance(batch, tuple | list):
        return tuple([part.shape for part in batch if isinstance(part, torch.Tensor)])
    if isinstance(batch, Mapping):
        return tuple([part.shape for part in batch.values() if isinstance(part, torch.Tensor)])
    return None


@dataclass
class _Blocks:
    blocks: int = 0
    compiled: int = 0
    compiling: int = 0
    """Blocks in which something was compiled."""
    segments: int = 0
    growing: int = 0
    """Blocks in which memory was taken from the device."""
    retries: int = 0
    shapes: int = 0
    """Shapes first met in them."""


@dataclass
class NewShapes:
    """Counts of new shapes from block to block.

    Attributes:
        counts: Reads the counters.
        looks: True to read shapes; that takes some microseconds of a step, which matter on a CPU only.
        tries_algorithms: True if the device tries its algorithms for each new shape.
    """

    counts: Callable[[], Counts] = Counts
    looks: bool = True
    tries_algorithms: bool = False
    _before: Counts = field(default=Counts(), init=False)
    _known: set[Any] = field(default_factory=set, init=False)
    _present: set[Any] = field(default_factory=set, init=False)
    _fresh: _Blocks = field(default_factory=_Blocks, init=False)
    """Coupled blocks with batches that the loader made."""

    def meet(self, batch: Any) -> None:
        try:
            self._present.add(shapes_of(batch))
        except Exception:  # noqa: BLE001 - nested tensors have no shape, and batches may be anything
            self._present.add(None)

    def begin_block(self) -> None:
        self._know_present()
        self._before = self.counts()

    def end_block(self, arm: Arm) -> None:
        """Count the events since, if the block had batches made by the loader."""
        after, new = self.counts(), self._know_present()
        if not arm.coupled or arm.supply != "loader":
            return
        fresh, before = self._fresh, self._before
        fresh.blocks += 1
        fresh.shapes += new
        fresh.compiled += after.compiled - before.compiled
        fresh.compiling += after.compiled > before.compiled
        fresh.segments += after.segments - before.segments
        fresh.growing += after.segments > before.segments
        fresh.retries += after.retries - before.retries

    def _know_present(self) -> int:
        """Add the block's shapes to the known ones; return the number of new ones."""
        new = len(self._present - self._known)
        self._known |= self._present
        self._present.clear()
        return new

    # --- the result ----------------------------------------------------------------------------------------

    def evidence(self) -> TrainingSeen:
        fresh = self._fresh
        return TrainingSeen(
            blocks=fresh.blocks,
            distinct_shapes=len(self._known) if self.looks else None,
            shapes_new_in_blocks=fresh.shapes if self.looks else None,
            compiled_in_blocks=fresh.compiled,
            allocations_in_blocks=fresh.segments,
            allocation_retries_in_blocks=fresh.retries,
        )

    def warning(self) -> Warning | None:
        """Return a warning if timed blocks include costs of new shapes."""
        fresh = self._fresh
        grows = fresh.growing >= max(_MIN_WITH_GROWTH, _SHARE_WITH_GROWTH * fresh.blocks)
        growing, tried = fresh.growing * grows, fresh.shapes * self.tries_algorithms
        if not (fresh.compiled or fresh.retries or growing or tried):
            return None
        return new_shapes_in_blocks(
            fresh.blocks,
            compiled=fresh.compiled,
            compiling=fresh.compiling,
            retries=fresh.retries,
            segments=fresh.segments,
            growing=growing,
            tried=tried,
        )

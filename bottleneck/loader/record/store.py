"""What a worker records of the user's samples and batches, within a number of bytes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from bottleneck.loader.record.served import ServedBatch, storages
from bottleneck.loader.record.tape import Call
from bottleneck.loader.replay.replay import Replay
from bottleneck.loader.replay.template import Fill, OutputSlot


@dataclass
class RecordedItem:
    """What one fetch returned: a sample, or a whole list of them from `__getitems__`."""

    request: Any
    """The index or indices that it was fetched with."""
    value: Any
    """A copy of what was returned."""
    calls: list[Call]
    slots: list[OutputSlot] = field(default_factory=list)
    """Where the outputs of cuts went."""
    fill: Fill | None = None
    """Puts fresh outputs into the value; None until the plan is known."""
    rest: Any = None
    """The value without what `fill` puts there; the value itself where a plan copies no samples."""
    nbytes: int = 0
    replays: dict[int, Replay] = field(default_factory=dict)
    """How its item is made again in a mode, once it has been."""


@dataclass
class RecordedBatch:
    """The items of one batch, and the batch they were collated to."""

    items: list[RecordedItem]
    size: int
    """Samples in the batch."""
    collated: ServedBatch | None = None
    calls: list[Call] = field(default_factory=list)
    """Calls of marked stages within the collate function."""
    slots: list[OutputSlot] = field(default_factory=list)
    """Where their outputs went."""
    around: Callable[[list[Any]], Any] | None = None
    """Serves the batch with fresh outputs in their places; None until it has been."""
    replays: dict[int, Replay] = field(default_factory=dict)
    """How it is collated again in a mode, once it has been."""

    def serve_around(self, outputs: list[Any]) -> Any:
        """Return a fresh copy with the outputs of its calls in their places; these are not copied once more."""
        if self.collated is None:
            return None
        if self.around is None:
            given = storages([(call.args, call.kwargs) for call in self.calls])
            # What hands on what it was given would give the same tensor each time.
            slots = self.slots if not storages(outputs) & given else []
            self.around = self.collated.around(slots)
        return self.around(outputs)


class RecordingStore:
    """Recorded batches, in the loader's own order, within a number of bytes; it may change while there are none."""

    def __init__(self, budget_bytes: int = 0) -> None:
        self.budget_bytes = budget_bytes
        self.batches: list[RecordedBatch] = []
        self.nbytes = 0
        self._next = 0

    def has_room(self, nbytes: int) -> bool:
        return self.nbytes + nbytes <= self.budget_bytes

    def clear(self) -> None:
        self.batches.clear()
        self.nbytes = self._next = 0

    def add(self, batch: RecordedBatch, nbytes: int) -> None:
        self.batches.append(batch)
        self.nbytes += nbytes

    def next_batch(self, size: int | None) -> RecordedBatch:
        """Return the next batch in turn; of the wanted size if there is one."""
        count = len(self.batches)
        for offset in range(count):
            candidate = self.batches[(self._next + offset) % count]
            if size is None or candidate.size == size:
                self._next = (self._next + offset + 1) % count
                return candidate
        self._next = (self._next + 1) % count
        return self.batches[self._next - 1]

"""Samples and batches that a worker keeps, and the slots for the outputs of recorded calls in them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from bottleneck.job import containers
from bottleneck.loader import trees
from bottleneck.loader.calls import Call
from bottleneck.loader.recording.copies import ServedBatch, storages
from bottleneck.loader.recording.replay import Replay
from bottleneck.loader.trees import TreePath

Fill = Callable[[Any, list[Any]], Any]
"""Takes a sample and the fresh outputs of its calls; returns the sample with them in place."""


class OutputSlot(NamedTuple):
    """A place in a sample that holds what a cut gave out."""

    call: int
    """Number of the call."""
    inner: TreePath
    """Path in its output."""
    outer: TreePath
    """Path in the sample."""


def _identities(value: Any) -> dict[int, TreePath]:
    """Map the identity of every node of a tree that has one to the path where it was met first."""
    found: dict[int, TreePath] = {}

    def visit(node: Any, path: TreePath) -> None:
        if trees.is_primitive(node) or id(node) in found:
            return
        found[id(node)] = path
        for key, part in containers.children(node) or ():
            visit(part, (*path, key))

    visit(value, ())
    return found


def find_slots(value: Any, calls: list[Call]) -> list[OutputSlot]:
    """Find where the outputs of cuts stand, as the same objects, in what the dataset returned.

    Later calls win: when one output went through several cuts, the last one filled the slot.
    """
    places = _identities(value)
    slots: list[OutputSlot] = []
    taken: set[TreePath] = set()

    def visit(number: int, node: Any, path: TreePath) -> None:
        if trees.is_primitive(node):
            return
        place = places.get(id(node))
        if place is not None:
            if place not in taken:
                taken.add(place)
                slots.append(OutputSlot(number, path, place))
            return
        for key, part in containers.children(node) or ():
            visit(number, part, (*path, key))

    for number in reversed(range(len(calls))):
        visit(number, calls[number].original, ())
    return slots


def keep_calls(
    calls: list[Call], slots: list[OutputSlot], keeps: Callable[[Call], bool]
) -> tuple[list[Call], list[OutputSlot]]:
    """Return some of the calls, and their slots."""
    kept = [number for number, call in enumerate(calls) if keeps(call)]
    place = {number: position for position, number in enumerate(kept)}
    return [calls[number] for number in kept], [
        slot._replace(call=place[slot.call]) for slot in slots if slot.call in place
    ]


def make_fill(value: Any, slots: list[OutputSlot]) -> Fill:
    """Compile what puts outputs into a sample, none of whose slots lies within another.

    Only the containers on the way are rebuilt.
    """
    for call, inner, outer in slots:
        if not outer:
            return _taker(call, inner)
    below: dict[Any, list[OutputSlot]] = {}
    for call, inner, outer in slots:
        below.setdefault(outer[0], []).append(OutputSlot(call, inner, outer[1:]))
    parts = containers.children(value) or []
    fills = [(key, make_fill(part, below[key])) for key, part in parts if key in below]
    kind = type(value)
    if kind is tuple and len(slots) == 1 and slots[0].inner == () and len(slots[0].outer) == 1:
        # By far the most frequent sample, (image, label), without a loop: each microsecond would be the user's.
        call, key = slots[0].call, slots[0].outer[0]
        behind = key + 1
        return lambda tree, outputs: (*tree[:key], outputs[call], *tree[behind:])
    if kind is tuple or kind is list:

        def fill_sequence(tree: Any, outputs: list[Any]) -> Any:
            items = list(tree)
            for key, fill in fills:
                items[key] = fill(items[key], outputs)
            return items if kind is list else tuple(items)

        return fill_sequence
    if kind is dict:
        return lambda tree, outputs: {**tree, **{key: fill(tree[key], outputs) for key, fill in fills}}

    def fill_other(tree: Any, outputs: list[Any]) -> Any:
        fresh = dict(containers.children(tree) or ())
        for key, fill in fills:
            fresh[key] = fill(fresh[key], outputs)
        return containers.rebuild(tree, list(fresh.items()))

    return fill_other


def without_outputs(value: Any, slots: list[OutputSlot]) -> Any:
    """Return a sample with None in the slots of outputs: a copy of it then takes no time for the replaced parts.

    The sample itself is returned where one of its containers does not keep None.
    """
    nothing = [None] * (1 + max((slot.call for slot in slots), default=-1))
    fill = make_fill(value, [slot._replace(inner=()) for slot in slots])
    try:
        rest = fill(value, nothing)
        fill(rest, nothing)  # as in a timed block, where each place has to be there still
    except Exception:  # any user type may refuse
        return value
    return rest


def _taker(call: int, path: TreePath) -> Fill:
    """Return what takes a node out of a call's output."""

    def take(_: Any, outputs: list[Any]) -> Any:
        node = outputs[call]
        for key in path:
            by_key = node if isinstance(node, (list, dict, tuple)) else dict(containers.children(node) or ())
            node = by_key[key]
        return node

    return take


@dataclass
class RecordedItem:
    """The result of one fetch: a sample, or a whole list of them from `__getitems__`."""

    request: Any
    """The index or indices that it was fetched with."""
    value: Any
    """A copy of what was returned."""
    calls: list[Call]
    slots: list[OutputSlot] = field(default_factory=list)
    """Slots for the outputs of cuts."""
    fill: Fill | None = None
    """Puts fresh outputs into the value; None until the plan is known."""
    rest: Any = None
    """The value without what `fill` puts there; the value itself where a plan copies no samples."""
    nbytes: int = 0
    replays: dict[int, Replay] = field(default_factory=dict)
    """The way to make its item again in a mode, once it has been made."""


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
    """Slots for their outputs."""
    around: Callable[[list[Any]], Any] | None = None
    """Serves the batch with fresh outputs in their places; None until it has been."""
    replays: dict[int, Replay] = field(default_factory=dict)
    """The way to collate it again in a mode, once it has been collated."""

    def serve_around(self, outputs: list[Any]) -> Any:
        """Return a fresh copy with the outputs of its calls in their places; these are not copied once more."""
        if self.collated is None:
            return None
        if self.around is None:
            given = storages([(call.args, call.kwargs) for call in self.calls])
            # What hands on what it was given would give the same tensor each time.
            slots = self.slots if not storages(outputs) & given else []
            self.around = self._serve_with(self.collated, slots)
        return self.around(outputs)

    @staticmethod
    def _serve_with(collated: ServedBatch, slots: list[OutputSlot]) -> Callable[[list[Any]], Any]:
        """Return what serves a copy of a batch with fresh outputs in their places."""
        if not slots:
            return lambda _: collated.serve()
        value, fill = collated.value, make_fill(collated.value, slots)
        make = collated.compile(value, (), frozenset(slot.outer for slot in slots))
        return lambda outputs: fill(value if make is None else make(), outputs)


class RecordingStore:
    """Recorded batches, in the loader's own order, within a number of bytes; it may change while there are none."""

    def __init__(self, budget_bytes: int = 0) -> None:
        self.budget_bytes = budget_bytes
        self.batches: list[RecordedBatch] = []
        self.nbytes = 0
        self._next = 0

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

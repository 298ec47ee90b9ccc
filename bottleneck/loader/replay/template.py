"""A recorded sample, or batch, as a template: where outputs of cuts stand in it, and how fresh ones are put there."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from bottleneck.job import containers
from bottleneck.loader import trees
from bottleneck.loader.record.tape import Call

TreePath = tuple[Any, ...]
"""Keys from the root of a tree to one of its nodes."""
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

        def fill_dict(tree: Any, outputs: list[Any]) -> Any:
            return {**tree, **{key: fill(tree[key], outputs) for key, fill in fills}}

        return fill_dict

    def fill_other(tree: Any, outputs: list[Any]) -> Any:
        fresh = dict(containers.children(tree) or ())
        for key, fill in fills:
            fresh[key] = fill(fresh[key], outputs)
        return containers.rebuild(tree, list(fresh.items()))

    return fill_other


def without_outputs(value: Any, slots: list[OutputSlot]) -> Any:
    """Return a sample with None where outputs are put into it: a copy of it then takes no time for what is replaced.

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

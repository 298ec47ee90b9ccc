"""A recorded sample as a template: where the outputs of cuts stand in it, and how fresh ones are put there."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from bottleneck.job import containers
from bottleneck.loader import trees
from bottleneck.loader.record.tape import Call

Path = tuple[Any, ...]
"""Keys from the root of a tree to one of its nodes."""
Fill = Callable[[Any, list[Any]], Any]
"""Takes a sample and the fresh outputs of its calls; returns the sample with them in place."""


class Hole(NamedTuple):
    """A place in a sample that holds what a cut gave out."""

    call: int
    """Number of the call."""
    inner: Path
    """Path in its output."""
    outer: Path
    """Path in the sample."""


def _identities(value: Any) -> dict[int, Path]:
    """Map the identity of every node of a tree that has one to the path where it was met first."""
    found: dict[int, Path] = {}

    def visit(node: Any, path: Path) -> None:
        if trees.is_primitive(node) or id(node) in found:
            return
        found[id(node)] = path
        for key, part in containers.children(node) or ():
            visit(part, (*path, key))

    visit(value, ())
    return found


def find_holes(value: Any, calls: list[Call]) -> list[Hole]:
    """Find where the outputs of cuts stand, as the same objects, in what the dataset returned.

    Later calls win: when one output went through several cuts, the last one filled the hole.
    """
    places = _identities(value)
    holes: list[Hole] = []
    taken: set[Path] = set()

    def visit(number: int, node: Any, path: Path) -> None:
        if trees.is_primitive(node):
            return
        place = places.get(id(node))
        if place is not None:
            if place not in taken:
                taken.add(place)
                holes.append(Hole(number, path, place))
            return
        for key, part in containers.children(node) or ():
            visit(number, part, (*path, key))

    for number in reversed(range(len(calls))):
        visit(number, calls[number].original, ())
    return holes


def make_fill(value: Any, holes: list[Hole]) -> Fill:
    """Compile what puts outputs into a sample; only the containers on the way are rebuilt.

    Args:
        value: The recorded sample.
        holes: Its places; none lies within another.
    """
    for call, inner, outer in holes:
        if not outer:
            return _taker(call, inner)
    below: dict[Any, list[Hole]] = {}
    for call, inner, outer in holes:
        below.setdefault(outer[0], []).append(Hole(call, inner, outer[1:]))
    parts = containers.children(value) or []
    fills = [(key, make_fill(part, below[key])) for key, part in parts if key in below]
    kind = type(value)
    if kind is tuple and len(holes) == 1 and holes[0].inner == () and len(holes[0].outer) == 1:
        # By far the most frequent sample, (image, label), without a loop: each microsecond would be the user's.
        call, key = holes[0].call, holes[0].outer[0]
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


def _taker(call: int, path: Path) -> Fill:
    """Return what takes a node out of a call's output."""

    def take(_: Any, outputs: list[Any]) -> Any:
        node = outputs[call]
        for key in path:
            by_key = node if isinstance(node, (list, dict, tuple)) else dict(containers.children(node) or ())
            node = by_key[key]
        return node

    return take

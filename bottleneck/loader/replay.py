"""Serve recorded calls: outputs put into a recorded sample, or handed out while the user's code runs."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from itertools import cycle
from typing import Any, NamedTuple

from bottleneck.job import containers, marks
from bottleneck.loader import trees
from bottleneck.loader.calls import Call, Function, Tape, copy_arguments

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


class Replay:
    """Answers the calls made while one recorded sample is made again, or one batch is collated again.

    Everything that can be prepared is prepared here, once: a replay runs inside timed blocks, where each
    microsecond of ours would be taken for the user's.

    Args:
        served: Sites whose recorded outputs are served.
        real: Sites that work for real, and with them whatever they call.
        copied: Sites whose output is copied each time it is served, because later code changes it in place.
        restore_rng: Leave the random number generators as the real call would have left them.
    """

    def __init__(
        self,
        tape: Tape,
        calls: list[Call],
        served: frozenset[str],
        real: frozenset[str] = frozenset(),
        *,
        copied: frozenset[str] = frozenset(),
        restore_rng: bool = False,
    ) -> None:
        self._tape, self._copied, self._restores_rng = tape, copied, restore_rng
        recorded: dict[str, list[Call]] = {}
        for call in calls:
            if call.site in served or call.site in real:
                recorded.setdefault(call.site, []).append(call)
        self._served = served & recorded.keys()
        self._ready = {
            site: found[0].output
            for site, found in recorded.items()
            if site in self._served and len(found) == 1 and not self._needs_care(found[0])
        }
        """Outputs that can be handed out as they are, whenever they are asked for."""
        # A site that is called more often than it was recorded gets its calls again from the first.
        self._recorded = [(site, found) for site, found in recorded.items() if site not in self._ready]
        self._next: dict[str, Iterator[Call]] = {}
        self._inside = False
        # Marks can be called anywhere; other cuts need no answer where marks are the only ones.
        cuts = any(not marks.is_mark(site) for site in (*served, *real))
        self._answer_cuts = self._answer if cuts else None

    def _needs_care(self, call: Call) -> bool:
        draws = self._restores_rng and call.rng_after is not None
        return draws or bool(call.inner) or call.site in self._copied

    def run(self, function: Function, *args: Any) -> Any:
        """Call a function that runs the user's code, with this replay answering the cuts' calls."""
        tape = self._tape
        self._next = {site: cycle(calls) for site, calls in self._recorded}
        self._inside = False
        tape.handler, marks.handler = self._answer_cuts, self._answer
        try:
            return function(*args)
        finally:
            tape.handler = marks.handler = None

    def _answer(self, site: str, function: Function, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        # Calls inside another cut were not recorded either.
        if self._inside:
            return function(*args, **kwargs)
        if site in self._ready:
            return self._ready[site]
        recorded = self._next.get(site)
        if recorded is None:
            return function(*args, **kwargs)
        call = next(recorded)
        if site in self._served:
            if call.inner:
                self._run_inner(call)
            if self._restores_rng and call.rng_after is not None:
                call.rng_after.restore()
            output = trees.copy_deep(call.output) if site in self._copied else call.output
        else:
            self._inside = True
            try:
                output = function(*args, **kwargs)
            finally:
                self._inside = False
        return output

    def _run_inner(self, call: Call) -> None:
        """Let the marked stages inside a call that is served work, as they would have."""
        for inner in call.inner:
            if inner.site in self._served:
                self._run_inner(inner)
            else:
                inner.function(*inner.args, **inner.kwargs)

    def run_calls(self, calls: Collection[Call], copied: frozenset[str]) -> list[Any]:
        """Let recorded calls of marked stages, nested ones included, work alone on what they were called with.

        Args:
            copied: Sites that change their arguments, and so get a copy of the recorded ones.

        Returns:
            What each call gave; None for those that are served, and those within another.
        """
        nested = {id(inner) for call in calls for inner in call.inner}
        own = [None if id(call) in nested else call for call in calls]
        outputs: list[Any] = self.run(self._call_all, own, copied)
        return outputs

    def _call_all(self, calls: list[Call | None], copied: frozenset[str]) -> list[Any]:
        return [None if call is None else self._call_alone(call, copied) for call in calls]

    def _call_alone(self, call: Call, copied: frozenset[str]) -> Any:
        if call.site in self._served:
            self._run_inner(call)
            return None
        args, kwargs = recorded_arguments(call, copied)
        return call.function(*args, **kwargs)


def recorded_arguments(call: Call, copied: Iterable[str]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return what a recorded call was called with; a copy for the sites that change it."""
    if call.site not in copied:
        return call.args, call.kwargs
    if marks.is_mark(call.site):
        return copy_arguments(call)
    return trees.copy_deep(call.args), trees.copy_deep(call.kwargs)

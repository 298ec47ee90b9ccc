"""Put timers in the place of the single transforms inside composed ones, and take them away again.

A timer stays for one batch only: whatever the user's code does in between finds its own transforms.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

from bottleneck.job.cuts import find_members, is_function, name_of
from bottleneck.job.inspect import Item, Key, KeyPath, resolve, write_path
from bottleneck.loader.record.cutting import Cut, assign, make_cut
from bottleneck.loader.record.tape import Tape


@dataclass(frozen=True)
class Place:
    """Where a single transform is kept.

    Attributes:
        root: The outermost transform around it.
        path: Keys from there; not empty.
        name: What it is called.
        place: Its whole path, from the dataset, as it is reported.
    """

    root: Any
    path: KeyPath
    name: str
    place: str


def find_places(roots: list[tuple[str, Any]]) -> tuple[list[Place], dict[str, str]]:
    """Find the single transforms inside the callables of a dataset, which come with their names as paths on it.

    Returns:
        Those inside composed transforms; and the callables that are single transforms themselves, by name.
    """
    seen: set[int] = set()
    places: list[Place] = []
    single: dict[str, str] = {}
    for name, root in roots:
        members = find_members(root, seen)
        for member in members:
            tail = write_path(_as_written(member.path))
            joint = "" if tail.startswith("[") else "."
            places.append(Place(root, member.path, member.name, f"{name}{joint}{tail}"))
        if not members and not is_function(root) and id(root) not in seen:
            single[name] = name_of(root)
    return places, single


def _as_written(path: KeyPath) -> KeyPath:
    """Return a path as the user would write it: modules are reached by their position or name."""
    keys: list[Key] = []
    for key in path:
        if isinstance(key, Item) and keys[-1:] == ["_modules"]:
            keys[-1] = int(key.key) if str(key.key).isdigit() else str(key.key)
        else:
            keys.append(key)
    return tuple(keys)


class Timers:
    """Timers in the place of single transforms; a tape answers their calls, as those of cuts at `Place.place`."""

    def __init__(self, places: list[Place], tape: Tape) -> None:
        self._places, self._tape = places, tape
        self._made: dict[str, tuple[Any, Any]] = {}
        """Place -> its timer, and the transform that it stands for."""
        self._timers: dict[int, tuple[Any, Any]] = {}
        """The same for those that are in place, by the identity of the timer."""
        self._containers: list[Any] = []
        self._tuples: dict[tuple[int, KeyPath], tuple[Any, KeyPath, tuple[Any, ...]]] = {}
        """What stood where a tuple was made anew."""

    @contextmanager
    def installed(self) -> Iterator[None]:
        """Keep the timers in their places inside the block."""
        try:
            for place in self._places:
                self._install(place)
            yield
        finally:
            self._remove()

    def _install(self, place: Place) -> None:
        try:
            container = resolve(place.root, place.path[:-1])
            transform = resolve(place.root, place.path)
            if isinstance(transform, Cut):
                return  # a cut of the dataset
            timer = self._timer_for(place, transform)
            self._timers[id(timer)] = (timer, transform)
            self._containers.append(container)
            if isinstance(container, tuple):
                outer = place.path[:-1]
                self._tuples.setdefault((id(place.root), outer), (place.root, outer, container))
            _put(place.root, place.path, timer)
        except Exception:  # noqa: BLE001 - any user type may refuse; this one is not timed, and the report says what is missing
            return

    def _timer_for(self, place: Place, transform: Any) -> Any:
        made = self._made.get(place.place)
        if made is None or made[1] is not transform:
            made = self._made[place.place] = (make_cut(transform, place.place, self._tape), transform)
        return made[0]

    def _remove(self) -> None:
        """Put every transform back, also where the user's code has moved it to meanwhile."""
        for container in self._containers:
            self._clean(container)
        for place in reversed(self._places):
            with suppress(Exception):  # what could not be reached holds no timer
                found = resolve(place.root, place.path)
                if id(found) in self._timers:
                    _put(place.root, place.path, self._timers[id(found)][1])
                self._clean(resolve(place.root, place.path[:-1]))
        for root, path, before in self._tuples.values():
            with suppress(Exception):
                now = resolve(root, path)
                if isinstance(now, tuple) and [id(part) for part in now] == [id(part) for part in before]:
                    _put(root, path, before)
        self._containers.clear()
        self._tuples.clear()
        self._timers.clear()

    def _clean(self, container: Any) -> None:
        for key, value in _entries(container):
            if id(value) in self._timers:
                container[key] = self._timers[id(value)][1]


def _entries(container: Any) -> list[tuple[Any, Any]]:
    """Return the keys and values of a container that can be changed."""
    if isinstance(container, dict):
        return list(container.items())
    return list(enumerate(container)) if isinstance(container, list) else []


def _put(root: Any, path: KeyPath, value: Any) -> None:
    assign(root, path, value, _set_attribute)


def _set_attribute(holder: Any, name: str, value: Any) -> None:
    """Set an attribute where it is kept, past a `__setattr__` such as that of modules, which sorts by type."""
    state: dict[Key, Any] = getattr(holder, "__dict__", {})
    modules = state.get("_modules")
    if isinstance(modules, dict) and name in modules:
        modules[name] = value
    elif name in state:
        state[name] = value
    else:
        setattr(holder, name, value)

"""Stand-ins for a dataset's callables: cuts, and timers of the single transforms inside composed ones.

A `Cut` stands in for a callable on the dataset. While nothing is recorded or replayed it passes calls through; while
everything is real, calls do not even reach it (`step_aside`). A timer stays for one item or batch only, a cut until the
loader is closed.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import FrozenInstanceError, dataclass
from functools import partial
from typing import Any

from bottleneck.job.cuts import CutSite, find_members, is_function, name_of
from bottleneck.job.inspect import Item, Key, KeyPath, resolve, write_path
from bottleneck.loader.calls import Tape
from bottleneck.loader.trees import as_it_is

Undo = Callable[[], object]
"""Puts back what was there before a change."""


class Cut:
    """Replaces a callable on the dataset; code that looks into it finds the attributes of the callable alone."""

    __slots__ = ("__weakref__", "_cut_function", "_cut_site", "_cut_tape")

    def __init__(self, function: Callable[..., Any], site: str, tape: Tape) -> None:
        self._cut_function = function
        self._cut_site = site
        self._cut_tape = tape

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        handler = self._cut_tape.handler
        if handler is None:
            return self._cut_function(*args, **kwargs)
        return handler(self._cut_site, self._cut_function, args, kwargs)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_cut_"):  # not there yet, while a copy is being made
            raise AttributeError(name)
        return getattr(self._cut_function, name)

    def __setattr__(self, name: str, value: Any) -> None:
        if name.startswith("_cut_"):
            object.__setattr__(self, name, value)
        else:
            setattr(self._cut_function, name, value)

    def __copy__(self) -> Any:
        return copy.copy(self._cut_function)

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        return copy.deepcopy(self._cut_function, memo)

    def __reduce_ex__(self, protocol: Any) -> tuple[Any, ...]:
        """Copies and pickles are those of the callable; their calls are not recorded."""
        return as_it_is, (self._cut_function,)

    def __repr__(self) -> str:
        return repr(self._cut_function)

    @property  # type: ignore[misc]  # a property instead of an attribute
    def __class__(self) -> type:
        """The class of the callable, so that `isinstance` in the user's code still holds."""
        return type(self._cut_function)


# Looked up on the class, past `__getattr__`: a dataset may iterate over its augmentation instead of calling it.
_SPECIAL = ("__len__", "__iter__", "__next__", "__getitem__", "__contains__", "__bool__", "__enter__", "__exit__")


def make_cut(function: Callable[..., Any], site: str, tape: Tape) -> Cut:
    """Return what stands in for a callable, with the special methods of its class, and asks a tape at each call."""

    def forward(name: str) -> Callable[..., Any]:
        return lambda cut, *args: getattr(cut._cut_function, name)(*args)

    special = {name: forward(name) for name in _SPECIAL if hasattr(type(function), name)}
    made: type[Cut] = type("Cut", (Cut,), {"__slots__": (), **special})
    return made(function, site, tape)


def step_aside(cuts: list[Cut], *, aside: bool) -> None:
    """Let calls of cuts go to their callables at once, without a frame of our own, or to the cuts again.

    A cut's own frame takes some tenths of a microsecond where it runs all the time, and several microseconds for
    samples that wait: by then the core has forgotten it. The cuts stay in place, as the user's code may hold them.
    """
    for cut in cuts:
        cls = type(cut)
        if aside:
            cls.__call__ = staticmethod(cut._cut_function)  # type: ignore[method-assign]  # takes no `self`
        elif "__call__" in vars(cls):
            del cls.__call__


def install(dataset: Any, sites: tuple[CutSite, ...], tape: Tape) -> list[Undo]:
    """Replace callables of a dataset by cuts; a site that refuses is left out and noted on the tape.

    Returns:
        What puts the callables back, to be called from the last one to the first; a worker's own copy of the dataset
        needs that no more.
    """
    undo = []
    # Innermost first: the path to a member of a callable that is cut itself then passes no cut.
    for site in sorted(sites, key=lambda site: -len(site.path)):
        try:
            cut = make_cut(resolve(dataset, site.whole_path), site.name, tape)
            undo.append(put(dataset, site.whole_path, cut))
        except Exception as error:  # noqa: BLE001 - any user class may refuse; the site is then not used
            tape.sites.unusable[site.name] = f"it cannot be replaced on the dataset ({type(error).__name__})"
            continue
        tape.cuts.append(cut)
        tape.sites.stages[site.name] = site.stage
        if site.chosen:
            tape.sites.chosen.add(site.name)
    return undo


def put_back(undo: list[Undo]) -> None:
    """Put back what was replaced."""
    while undo:
        with suppress(Exception):  # the user's code may have put something else there
            undo.pop()()


def callables_at(dataset: Any, sites: tuple[CutSite, ...]) -> list[tuple[str, Any]]:
    """Return the name and the callable of each site that is there, whether it has been cut or not."""
    found = []
    for site in sites:
        try:
            function = resolve(dataset, site.whole_path)
        except (AttributeError, IndexError, KeyError, TypeError):
            continue
        found.append((site.name, function._cut_function if isinstance(function, Cut) else function))
    return found


def put(root: Any, path: KeyPath, value: Any) -> Undo:
    """Put a value at a path of an object, and return what undoes that; a tuple on the way is replaced by another."""
    way, key = path[:-1], path[-1]
    holder = resolve(root, way)
    if isinstance(holder, tuple):
        members = [value if position == key else member for position, member in enumerate(holder)]
        return put(root, way, type(holder)(*members) if hasattr(holder, "_fields") else type(holder)(members))
    if isinstance(key, str):
        before = getattr(holder, key) if _holds(holder, key) else None
        _change(holder, key, value)
        return partial(_change, holder, key, before)
    index = key.key if isinstance(key, Item) else key
    before, holder[index] = holder[index], value
    if isinstance(holder, (list, dict)):
        return partial(_replace, holder, value, before)
    return partial(holder.__setitem__, index, before)


def _holds(holder: Any, name: str) -> bool:
    """Return True if an object itself holds an attribute, and not its class."""
    state: dict[str, Any] = getattr(holder, "__dict__", {})
    in_slot = hasattr(type(getattr(type(holder), name, None)), "__set__")
    return in_slot or name in state or name in state.get("_modules", ())


def _change(holder: Any, name: str, value: Any) -> None:
    """Set an attribute, or remove it where the value is None: callables are put there, and taken away again."""
    change = (name, value) if value is not None else (name,)
    try:
        (setattr if value is not None else delattr)(holder, *change)
    except FrozenInstanceError:
        (object.__setattr__ if value is not None else object.__delattr__)(holder, *change)


def _replace(container: Any, value: Any, other: Any) -> None:
    """Replace a member of a list or dict by another one, even if the user's code has moved it."""
    for key, member in list(container.items() if isinstance(container, dict) else enumerate(container)):
        if member is value:
            container[key] = other


@dataclass(frozen=True)
class Place:
    """The place that keeps a single transform.

    Attributes:
        root: The outermost transform around it.
        path: Keys from there; not empty.
        name: What it is called.
        place: Its whole path, from the dataset, as in the report.
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
        for path, called in members:
            tail = write_path(_as_written(path))
            joint = "" if tail.startswith("[") else "."
            places.append(Place(root, path, called, f"{name}{joint}{tail}"))
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
    """Timers that replace single transforms; a tape answers their calls, as those of cuts at `Place.place`."""

    def __init__(self, places: list[Place], tape: Tape) -> None:
        self._places = places
        self._tape = tape
        self._made: dict[str, tuple[Any, Any]] = {}
        """Place -> its timer, and the transform that it stands for."""

    @contextmanager
    def installed(self) -> Iterator[None]:
        """Keep the timers in their places inside the block."""
        undo: list[Undo] = []
        try:
            for place in self._places:
                with suppress(Exception):  # one that refuses is not timed, and is missing from the report
                    self._install(place, undo)
            yield
        finally:
            put_back(undo)
            for place in self._places:
                self._remove(place)

    def _remove(self, place: Place) -> None:
        """Put back a transform whose timer the user's code has copied into another list."""
        with suppress(Exception):  # what cannot be reached holds no timer
            timer = resolve(place.root, place.path)
            if isinstance(timer, Cut) and timer._cut_tape is self._tape:
                put(place.root, place.path, timer._cut_function)

    def _install(self, place: Place, undo: list[Undo]) -> None:
        transform = resolve(place.root, place.path)
        if isinstance(transform, Cut):
            return  # a cut of the dataset
        timer, made_for = self._made.get(place.place, (None, None))
        if made_for is not transform:
            timer = make_cut(transform, place.place, self._tape)
            self._made[place.place] = timer, transform
        undo.append(put(place.root, place.path, timer))

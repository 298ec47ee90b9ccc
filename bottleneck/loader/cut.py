"""Stand-ins for a dataset's callables: cuts, and timers of the single transforms inside composed ones.

A `Cut` stands in for a callable on the dataset. While nothing is recorded or replayed it passes calls through; while
everything is real, calls do not even reach it (`step_aside`). A timer stays for one batch only: whatever the user's
code does in between finds its own transforms.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import FrozenInstanceError, dataclass
from typing import Any

import torch

from bottleneck.job.cuts import MAX_MEMBERS, CutSite, find_members, is_dataset, is_function, name_of
from bottleneck.job.inspect import Item, Key, KeyPath, entries, follow, resolve, write_path
from bottleneck.loader.calls import Tape


class Cut:
    """Stands in for a callable on the dataset."""

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
        return _itself, (self._cut_function,)

    def __repr__(self) -> str:
        return repr(self._cut_function)

    @property  # type: ignore[misc]  # a property instead of an attribute
    def __class__(self) -> type:
        """The class of the callable, so that `isinstance` in the user's code still holds."""
        return type(self._cut_function)


def _itself(value: Any) -> Any:
    return value


# Looked up on the class, past `__getattr__`: a dataset may iterate over its augmentation instead of calling it.
_SPECIAL = (
    "__len__",
    "__iter__",
    "__next__",
    "__getitem__",
    "__contains__",
    "__bool__",
    "__enter__",
    "__exit__",
)


def _cut_class(cls: type) -> type[Cut]:
    """Return a class for one cut, with the special methods that a callable's class has."""

    def forward(name: str) -> Callable[..., Any]:
        return lambda cut, *args: getattr(cut._cut_function, name)(*args)

    return type("Cut", (Cut,), {name: forward(name) for name in _SPECIAL if hasattr(cls, name)})


def make_cut(function: Callable[..., Any], site: str, tape: Tape) -> Cut:
    """Return what stands in for a callable, and asks a tape at each call."""
    return _cut_class(type(function))(function, site, tape)


def step_aside(cuts: list[Cut], *, aside: bool) -> None:
    """Let calls of cuts go to their callables at once, without a frame of ours, or to the cuts again.

    A cut's own frame takes some tenths of a microsecond where it runs all the time, and several microseconds for
    samples that wait: by then the core has forgotten it. The cuts stay in place, as the user's code may hold them.
    """
    for cut in cuts:
        cls = type(cut)
        if aside:
            cls.__call__ = staticmethod(cut._cut_function)  # type: ignore[method-assign]  # takes no `self`
        elif "__call__" in vars(cls):
            del cls.__call__


def install(dataset: Any, sites: tuple[CutSite, ...], tape: Tape, *, in_place: bool) -> Any:
    """Return the dataset with its callables replaced by cuts.

    Args:
        sites: Where to cut; a site that refuses is left out and noted on the tape.
        in_place: Change this very object (in a worker it is the worker's own); otherwise every holder on the
            way is shallow-copied, and the user's object stays as it is.
    """
    if not sites:
        return dataset  # which may be an array of any size
    copies: dict[int, Any] = {}
    root = dataset if in_place else _copy_datasets(dataset, copies)
    holders = None if in_place else _Copies(root, {id(copy) for copy in copies.values()})
    # Innermost first: the way to a member of what is cut itself leads past no cut then.
    for site in sorted(sites, key=lambda site: -len(site.path)):
        try:
            if holders is not None:
                holders.own(site.path)
            function = resolve(root, site.whole_path)
            cut = make_cut(function, site.name, tape)
            assign(root, site.whole_path, cut)
        except Exception as error:  # noqa: BLE001 - any user class may refuse; the site is then not used
            tape.sites.unusable[site.name] = f"it cannot be replaced on the dataset ({type(error).__name__})"
            continue
        tape.cuts.append(cut)
        tape.sites.stages[site.name] = site.stage
        if site.chosen:
            tape.sites.chosen.add(site.name)
    return root


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


def _set_attribute(holder: Any, name: str, value: Any) -> None:
    try:
        setattr(holder, name, value)
    except FrozenInstanceError:
        object.__setattr__(holder, name, value)


def assign(
    root: Any, path: KeyPath, value: Any, set_attribute: Callable[[Any, str, Any], None] = _set_attribute
) -> None:
    """Put a value at a path of an object; a tuple on the way is replaced by another one."""
    *way, key = path
    holder = resolve(root, tuple(way))
    if isinstance(key, str):
        set_attribute(holder, key, value)
    elif isinstance(holder, tuple):
        assign(root, tuple(way), _replaced(holder, key, value), set_attribute)
    else:
        holder[key.key if isinstance(key, Item) else key] = value


def _replaced(old: tuple[Any, ...], key: Key, value: Any) -> tuple[Any, ...]:
    members = [value if position == key else member for position, member in enumerate(old)]
    return type(old)(*members) if hasattr(old, "_fields") else type(old)(members)


class _Copies:
    """Copies what lies on the way to a site, so that the user's own objects stay as they are.

    Args:
        root: The outermost dataset; a copy already.
        ours: Identities of objects that are copies.
    """

    def __init__(self, root: Any, ours: set[int]) -> None:
        self._root, self._ours = root, ours

    def own(self, path: KeyPath) -> None:
        """Make every object on a path, the last one included, a copy; a tuple is replaced when it is assigned to."""
        for length in range(1, len(path) + 1):
            way = path[:length]
            child = follow(resolve(self._root, way[:-1]), way[-1])
            if id(child) in self._ours or isinstance(child, tuple):
                continue
            clone = _copy_level(child)
            self._ours.add(id(clone))
            assign(self._root, way, clone)


def _copy_datasets(dataset: Any, copies: dict[int, Any]) -> Any:
    """Copy a dataset and the datasets inside it, level by level; one that is there twice stays one."""
    if id(dataset) in copies:
        return copies[id(dataset)]
    copies[id(dataset)] = clone = _copy_level(dataset)
    for name, value in list(getattr(clone, "__dict__", {}).items()):
        if is_dataset(value):
            clone.__dict__[name] = _copy_datasets(value, copies)
        elif isinstance(value, (list, tuple, dict)) and len(value) <= MAX_MEMBERS:
            parts = list(entries(value))
            if any(is_dataset(member) for _, member in parts):
                clone.__dict__[name] = copies[id(value)] = _copy_level(value)
                for (key,), member in parts:
                    if is_dataset(member):
                        assign(clone, (name, key), _copy_datasets(member, copies))
    return clone


def _copy_level(value: Any) -> Any:
    """Copy an object without its contents, past a `__copy__` or `__reduce__` of the user's where there is a dict."""
    if type(value) in (list, dict, tuple):
        return copy.copy(value)
    state = getattr(value, "__dict__", None)
    if state is None or getattr(type(value), "__new__") is not object.__new__:  # noqa: B009 - mypy takes the two for unlike
        return copy.copy(value)
    clone = object.__new__(type(value))
    clone.__dict__.update(state)
    if isinstance(value, torch.nn.Module):  # its modules and parameters are attributes in dictionaries of their own
        inner = ("_modules", "_parameters", "_buffers")
        clone.__dict__.update({name: copy.copy(state[name]) for name in inner if name in state})
    for cls in type(value).__mro__:
        slots = vars(cls).get("__slots__", ())
        for slot in (slots,) if isinstance(slots, str) else slots:
            if slot not in ("__dict__", "__weakref__") and hasattr(value, slot):
                object.__setattr__(clone, slot, getattr(value, slot))
    return clone


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
    """Timers that replace single transforms; a tape answers their calls, as those of cuts at `Place.place`."""

    def __init__(self, places: list[Place], tape: Tape) -> None:
        self._places, self._tape = places, tape
        self._made: dict[str, tuple[Any, Any]] = {}
        """Place -> its timer, and the transform that it stands for."""
        self._timers: dict[int, tuple[Any, Any]] = {}
        """The same for those that are in place, by the identity of the timer."""
        self._containers: list[Any] = []
        self._tuples: dict[tuple[int, KeyPath], tuple[Any, KeyPath, tuple[Any, ...]]] = {}
        """The tuples that were replaced, and where they stood."""

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
        """Put every transform back, also where the user's code has moved it."""
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
        for key, value in _changeable(container):
            if id(value) in self._timers:
                container[key] = self._timers[id(value)][1]


def _changeable(container: Any) -> list[tuple[Any, Any]]:
    """Return the keys and values of a container that can be changed."""
    if isinstance(container, dict):
        return list(container.items())
    return list(enumerate(container)) if isinstance(container, list) else []


def _put(root: Any, path: KeyPath, value: Any) -> None:
    assign(root, path, value, _set_kept)


def _set_kept(holder: Any, name: str, value: Any) -> None:
    """Set an attribute where it is kept, past a `__setattr__` such as that of modules, which sorts by type."""
    state: dict[Key, Any] = getattr(holder, "__dict__", {})
    modules = state.get("_modules")
    if isinstance(modules, dict) and name in modules:
        modules[name] = value
    elif name in state:
        state[name] = value
    else:
        setattr(holder, name, value)

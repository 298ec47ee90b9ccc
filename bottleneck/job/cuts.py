"""Sites where a dataset can be cut: the callables on it, and on datasets inside it, that do its work.

Nothing is called or changed. Which of the sites are really called, and with which arguments,
shows when they are recorded (`bottleneck.loader.cut`).
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from types import BuiltinFunctionType, CodeType, FunctionType, MethodType
from typing import Any

import torch
from torch import nn
from torch.utils.data import Dataset

from bottleneck.errors import PipelineError
from bottleneck.job import recipes
from bottleneck.job.inspect import (
    Key,
    KeyPath,
    attributes,
    entries,
    follow,
    listed_callables,
    names_in,
    parse_path,
    resolve,
    write_path,
)
from bottleneck.job.recipes import CutStage

_AUGMENT_NAME = re.compile(
    r"(^|_)(transforms?|transformations?|augment(ation|ations|er|or|ed)?|augs?|tfms?|tf|pipeline|pre_?process(or|ing)?|tokeni[sz](e|er|ation))($|_)",
    re.IGNORECASE,
)
_LOAD_NAME = re.compile(
    r"(^|_)(load|loads|loader|loading|read|reads|reader|open|opener|fetch|fetcher|decode|decoder|imread|parse|parser)($|_)",
    re.IGNORECASE,
)
_BETWEEN_WORDS = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_AUGMENT_MODULES = ("torchvision.transforms", "albumentations", "monai.transforms", "kornia", "timm.data")
_MAX_DEPTH = 16
_MAX_ENTRIES = 64


@dataclass(frozen=True)
class CutSite:
    """A callable on a dataset that can be recorded and replayed.

    Attributes:
        path: Keys from the outermost dataset to the holder.
        attribute: The last key, from the holder to the callable: mostly the name of an attribute.
        stage: Stage of its calls; None if only its arguments show that.
        chosen: True if the user named it (`augment=`).
    """

    path: KeyPath
    attribute: Key
    stage: CutStage | None
    chosen: bool = False

    @property
    def whole_path(self) -> KeyPath:
        """Keys from the outermost dataset to the callable itself."""
        return (*self.path, self.attribute)

    @property
    def name(self) -> str:
        """The path as a user would write it, such as `dataset.transform`."""
        return write_path(self.whole_path)


def find_sites(dataset: Any, augment: str | Iterable[str] | None = None) -> tuple[CutSite, ...]:
    """Return the sites where a dataset could be cut, outermost dataset first.

    Args:
        dataset: The user's dataset.
        augment: Paths that the user named as the augmentation, such as `"dataset.transform"`.

    Raises:
        PipelineError: A path that the user named does not lead to a callable.
    """
    chosen = tuple(_chosen_sites(dataset, (augment,) if isinstance(augment, str) else tuple(augment or ())))
    found: list[CutSite] = []
    _search(dataset, (), found, set())
    taken = {site.whole_path for site in chosen}
    others = (site for site in found if site.whole_path not in taken)
    # If the user names the augmentation, guesses of others are unwanted.
    return chosen + tuple(site for site in others if not chosen or site.stage == "load")


def is_dataset(value: Any) -> bool:
    """Return True if an object inside a dataset is itself a dataset: PyTorch's, or known to a recipe."""
    return isinstance(value, Dataset) or recipes.knows(value)


def _chosen_sites(dataset: Any, names: Iterable[str]) -> Iterator[CutSite]:
    for name in names:
        path: KeyPath = ()
        target = None
        try:
            path = parse_path(name)
            # No item of a dataset is read: that would run the user's code.
            target = resolve(dataset, path) if isinstance(path[0], str) else None
        except (AttributeError, LookupError, TypeError, ValueError):
            pass
        if not callable(target):
            raise PipelineError(
                f"augment={name!r} does not lead to a callable on the dataset ({type(dataset).__name__}).",
                "Write the attribute path of the augmentation, such as augment='transform' or "
                "augment='dataset.transform'.",
            )
        yield CutSite(path[:-1], path[-1], "augment", chosen=True)


def _search(holder: Any, path: KeyPath, found: list[CutSite], seen: set[int]) -> None:
    if id(holder) in seen or len(path) > _MAX_DEPTH:
        return
    seen.add(id(holder))
    known = recipes.callables(holder)
    for one in known:
        stage = one.stage or _guess_stage("", resolve(holder, one.path))
        found.append(CutSite((*path, *one.path[:-1]), one.path[-1], stage))
    for inner in recipes.datasets(holder):
        _search(resolve(holder, inner), (*path, *inner), found, seen)
    state = getattr(holder, "__dict__", None)
    if not isinstance(state, dict):
        return
    settled = {one.path[0] for one in known}
    called = _names_called(type(holder)) - settled
    machinery = recipes.is_machinery(type(holder))
    for name, value in state.items():
        if is_dataset(value):
            _search(value, (*path, name), found, seen)
        else:
            is_short = isinstance(value, (list, tuple, dict)) and len(value) <= _MAX_ENTRIES
            parts = list(entries(value, (*path, name))) if is_short else []
            for place, member in parts:
                if is_dataset(member):
                    _search(member, place, found, seen)
            if name not in settled and not machinery:
                found.extend(_callables_in(name, value, parts, path))
    for name in sorted(called - set(state)):
        method = _plain_method(type(holder), name)
        if method is not None:
            found.append(CutSite(path, name, _guess_stage(name, method)))


def _callables_in(name: str, value: Any, parts: Sequence[tuple[KeyPath, Any]], path: KeyPath) -> Iterator[CutSite]:
    """Yield the site of a callable attribute, or of the functions in a list that the dataset calls in turn."""
    if callable(value):
        if not isinstance(value, type):
            yield from _single_or_members(name, value, path)
    elif all(callable(member) and not isinstance(member, type) for _, member in parts):
        found = [(place, _guess_from_class(member) or _guess_stage(name, member)) for place, member in parts]
        if any(stage is not None for _, stage in found):  # a list of functions may be for anything
            yield from (CutSite(place[:-1], place[-1], stage) for place, stage in found)


def _single_or_members(name: str, value: Any, path: KeyPath) -> Iterator[CutSite]:
    """Yield the site of a callable; if it is composed and some of its members load, the sites of all members."""
    members = {place: _guess_from_class(resolve(value, place)) for place in listed_callables(value, "transforms")}
    if "load" not in members.values():
        yield CutSite(path, name, _guess_stage(name, value))
        return
    for (*way, key), stage in members.items():
        yield CutSite((*path, name, *way), key, stage or "augment")


def _plain_method(cls: type, name: str) -> Any:
    """Return a method or function on a class that may be replaced on the instance, or None."""
    if name.startswith("__"):
        return None
    for base in cls.__mro__:
        if base in (object, Dataset, torch.utils.data.IterableDataset) or base.__module__ == "typing":
            return None
        if name in vars(base):
            if recipes.is_machinery(base):
                return None
            raw = vars(base)[name]
            if isinstance(raw, (staticmethod, classmethod)):
                raw = raw.__func__
            return raw if isinstance(raw, FunctionType) else None
    return None


def _names_called(cls: type) -> set[str]:
    """Return the attribute names that a dataset's item methods mention, and the methods they call in turn."""
    names: set[str] = set()
    todo = ["__getitem__", "__getitems__", "__iter__", "__next__"]
    while todo:
        name = todo.pop()
        for base in cls.__mro__:  # an item method may call the one of a base
            method: Any = vars(base).get(name)
            code = getattr(inspect.unwrap(method), "__code__", None)  # without decorators such as torch.no_grad()
            if isinstance(code, CodeType):
                new = names_in(code) - names
                names |= new
                todo.extend(found for found in new if _plain_method(cls, found) is not None)
    return names


def _guess_stage(name: str, value: Any) -> CutStage | None:
    while isinstance(value, partial):
        value = value.func
    for known in (name, str(getattr(value, "__name__", ""))):
        stage = _guess_from_name(known)
        if stage is not None:
            return stage
    cls = value if isinstance(value, (FunctionType, MethodType)) else type(value)
    if str(getattr(cls, "__module__", "")).startswith(_AUGMENT_MODULES) or isinstance(value, torch.nn.Module):
        return "augment"
    return _guess_from_class(value)


def _guess_from_class(value: Any) -> CutStage | None:
    """Guess from the name of an object's class, such as `LoadImageFromFile`."""
    return _guess_from_name(_BETWEEN_WORDS.sub("_", type(value).__name__))


def _guess_from_name(name: str) -> CutStage | None:
    if _AUGMENT_NAME.search(name):
        return "augment"
    return "load" if _LOAD_NAME.search(name) else None


_MAX_MEMBERS = 200
_MAX_MEMBER_DEPTH = 8
_MAX_GUESSES = 2
"""Maximum depth of attributes in which transforms are searched for in objects that no recipe knows."""


Member = tuple[KeyPath, str]
"""A single transform inside a composed one: its path, and the name of its class or function."""


def find_members(transform: Any, seen: set[int] | None = None) -> tuple[Member, ...]:
    """Return the single transforms inside a composed one, in its order; nothing for other objects.

    Args:
        seen: Identities of composed transforms that were inspected; they are skipped, and new ones added.
    """
    found: list[Member] = []
    _gather_members(transform, (), 0, found, set() if seen is None else seen)
    return tuple(found[:_MAX_MEMBERS])


def is_function(value: Any) -> bool:
    """Return True if a callable is a function, method or class, not an object with its own data."""
    return isinstance(value, (FunctionType, MethodType, BuiltinFunctionType, type))


def name_of(transform: Callable[..., Any]) -> str:
    """Return the name of a transform for people."""
    if isinstance(transform, partial):
        return name_of(transform.func)
    return str(getattr(transform if is_function(transform) else type(transform), "__name__", type(transform).__name__))


def _gather_members(value: Any, path: KeyPath, guesses: int, found: list[Member], seen: set[int]) -> bool:
    """Gather the members of a transform; return True if it has any.

    Args:
        guesses: Number of attributes on the way that no recipe knows.
    """
    if id(value) in seen or len(path) > 2 * _MAX_MEMBER_DEPTH or len(found) >= _MAX_MEMBERS:
        return False
    try:
        known = [(more, resolve(value, more)) for more in recipes.members(value) if more]
        known = [(more, member) for more, member in known if callable(member)]
    except Exception:  # noqa: BLE001 - any user type may refuse inspection; its members then have no rows
        known = []
    if known:
        seen.add(id(value))
        for more, member in known:
            if not _gather_members(member, (*path, *more), guesses, found, seen):
                found.append(((*path, *more), name_of(member)))
        return True
    if guesses >= _MAX_GUESSES or is_function(value) or isinstance(value, Dataset):
        return False
    # An object of the user may hold composed transforms, such as one for each view.
    held = False
    for name in {**attributes(value), **(value._modules if isinstance(value, nn.Module) else {})}:
        attribute = follow(value, name)
        if callable(attribute) and not isinstance(attribute, Dataset):
            held |= _gather_members(attribute, (*path, name), guesses + 1, found, seen)
    if held:
        seen.add(id(value))
        if path:  # it does its own work besides its members'
            found.append((path, name_of(value)))
    return held

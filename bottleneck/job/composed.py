"""What a transform is composed of: the single transforms inside it, and where each of them is kept.

Nothing is called or changed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from types import BuiltinFunctionType, FunctionType, MethodType
from typing import Any

from torch import nn
from torch.utils.data import Dataset

from bottleneck.job.key_paths import follow, resolve
from bottleneck.job.recipes.interface import KeyPath, attributes
from bottleneck.job.recipes.registry import members as members_by_recipe

_MOST_MEMBERS = 200
_MAX_DEPTH = 8
_MAX_ATTRIBUTE_DEPTH = 2
"""How deep transforms are looked for among the attributes of objects that no recipe knows."""


@dataclass(frozen=True)
class Member:
    """A single transform inside a composed one.

    Attributes:
        path: Where it is, from the outermost transform; empty for one that is not composed.
        name: Its class, or its own name where it is a function.
    """

    path: KeyPath
    name: str


def find_members(transform: Any, seen: set[int] | None = None) -> tuple[Member, ...]:
    """Return the single transforms inside a composed one, in the order in which it keeps them; else nothing.

    Args:
        seen: Identities of composed transforms that have been looked at; they are left out, and new ones added.
    """
    search = _Search(set() if seen is None else seen)
    search.look_into(transform, (), 0)
    return tuple(search.found[:_MOST_MEMBERS])


def is_function(value: Any) -> bool:
    """Whether a callable is a function or a method, and not an object with data of its own."""
    return isinstance(value, (FunctionType, MethodType, BuiltinFunctionType, type))


def name_of(transform: Callable[..., Any]) -> str:
    """Return what people call a transform."""
    if isinstance(transform, partial):
        return name_of(transform.func)
    if is_function(transform):
        return str(getattr(transform, "__name__", type(transform).__name__))
    return str(type(transform).__name__)


class _Search:
    def __init__(self, seen: set[int]) -> None:
        self.found: list[Member] = []
        self._seen = seen

    def look_into(self, value: Any, path: KeyPath, depth: int, guesses: int = 0) -> bool:
        """Gather the members of a transform; return whether it has any.

        Args:
            guesses: How many attributes on the way were not known to a recipe.
        """
        if id(value) in self._seen or depth > _MAX_DEPTH or len(self.found) >= _MOST_MEMBERS:
            return False
        known = list(_known_members(value))
        if known:
            self._seen.add(id(value))
            for more in known:
                member = resolve(value, more)
                if not self.look_into(member, (*path, *more), depth + 1, guesses):
                    self._add(member, (*path, *more))
            return True
        if guesses >= _MAX_ATTRIBUTE_DEPTH or is_function(value) or isinstance(value, Dataset):
            return False
        return self._look_into_attributes(value, path, depth, guesses)

    def _look_into_attributes(self, value: Any, path: KeyPath, depth: int, guesses: int) -> bool:
        """Gather the composed transforms that an object of the user's own holds, such as one for each view."""
        held = False
        for name, attribute in _callable_attributes(value):
            if self.look_into(attribute, (*path, name), depth + 1, guesses + 1):
                held = True
        if held:
            self._seen.add(id(value))
            if path:  # it has work of its own, beside its members
                self._add(value, path)
        return held

    def _add(self, transform: Any, path: KeyPath) -> None:
        self.found.append(Member(path, name_of(transform)))


def _known_members(value: Any) -> Iterator[KeyPath]:
    try:
        yield from [path for path in members_by_recipe(value) if path and callable(resolve(value, path))]
    except Exception:  # noqa: BLE001 - any user type may refuse to be looked into; its members have no rows then
        return


def _callable_attributes(value: Any) -> Iterator[tuple[str, Any]]:
    held = dict(attributes(value))
    if isinstance(value, nn.Module):
        held |= value._modules
    for name in held:
        attribute = follow(value, name)
        if callable(attribute) and not isinstance(attribute, Dataset):
            yield name, attribute

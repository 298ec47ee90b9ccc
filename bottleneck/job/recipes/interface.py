"""What a recipe for a framework says: where its objects keep the callables at which they can be cut.

A recipe only looks; it neither calls nor changes anything, and it imports nothing of its framework: when it is
asked, the objects are there already, and so is the framework.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

CutStage = Literal["augment", "load"]


@dataclass(frozen=True)
class Item:
    """A key of a mapping, as part of a path; plain text in a path is an attribute, a number a position."""

    key: Any


Key = str | int | Item
KeyPath = tuple[Key, ...]
"""Keys from an object to something inside it."""


@dataclass(frozen=True)
class FoundCallable:
    """A callable inside an object of a framework.

    Attributes:
        path: Where it is, from the object; not empty.
        stage: Which stage its calls belong to; None where only its name or its arguments can tell.
    """

    path: KeyPath
    stage: CutStage | None = None


class Recipe:
    """What is known about one framework. A recipe overrides what its framework needs; the rest stays empty.

    Attributes:
        name: The framework. A recipe replaces an earlier one of the same name.
        packages: Packages or modules whose classes this recipe knows, such as `("webdataset",)`. An object belongs
            to a recipe when its class, or one that it derives from, is defined in one of them.
        complete: The callables that this recipe names are all there is in the framework's own classes; what else
            they have, in methods and attributes, is machinery and is not searched.
    """

    name: str = ""
    packages: tuple[str, ...] = ()
    complete: bool = False

    def callables(self, holder: Any) -> Iterable[FoundCallable]:  # noqa: ARG002 - for recipes that override it
        """Yield the callables that a dataset of the framework keeps."""
        return ()

    def datasets(self, holder: Any) -> Iterable[KeyPath]:  # noqa: ARG002 - for recipes that override it
        """Yield where a dataset of the framework keeps further datasets."""
        return ()

    def members(self, transform: Any) -> Iterable[KeyPath]:  # noqa: ARG002 - for recipes that override it
        """Yield where a transform of the framework keeps the transforms that it is composed of."""
        return ()

    def adopt(self, dataset: Any) -> Any:
        """Return what a DataLoader can take in the place of an object that it cannot; by default the object."""
        return dataset


def attributes(value: Any) -> Mapping[str, Any]:
    """The attributes that an object itself holds; none of its class, and none that are computed."""
    held = getattr(value, "__dict__", None)
    return held if isinstance(held, Mapping) else {}


def entries(container: Any, path: KeyPath = ()) -> Iterator[tuple[KeyPath, Any]]:
    """Yield the entries of a list, tuple or mapping (or one that PyTorch made of modules) with their paths.

    Args:
        container: Anything; what is no container has no entries.
        path: Where the container is.
    """
    if isinstance(container, Mapping):
        yield from (((*path, Item(key)), value) for key, value in list(container.items()))
    elif isinstance(container, (list, tuple)) or type(container).__name__ == "ModuleList":
        yield from (((*path, position), value) for position, value in enumerate(container))


def listed_callables(value: Any, name: str) -> Iterator[KeyPath]:
    """Yield the paths of the callables in a container that is an attribute of an object."""
    for path, member in entries(getattr(value, name, None), (name,)):
        if callable(member):
            yield path

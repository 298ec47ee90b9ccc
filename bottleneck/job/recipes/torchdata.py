"""torchdata nodes: a chain of nodes, each around the one before."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from torch.utils.data import IterableDataset

from bottleneck.job.recipes.interface import FoundCallable, KeyPath, Recipe, attributes, entries


class NodeStream(IterableDataset[Any]):
    """A node as a dataset; it runs where the dataset does, as a copy, and its threads and processes end with that."""

    def __init__(self, node: Any) -> None:
        self.node = node

    def __iter__(self) -> Iterator[Any]:
        node = _fresh(self.node, {})
        node.reset()
        yield from node


class TorchdataNodes(Recipe):
    """Nodes that work in the thread that asks them; what works ahead in threads of its own is not cut."""

    name = "torchdata"
    packages = ("torchdata.nodes", __name__)
    complete = True

    def callables(self, holder: Any) -> Iterable[FoundCallable]:
        """Yield the function of a mapper without workers."""
        held = attributes(holder)
        if callable(held.get("map_fn")) and not _has_mapper(held) and not _works_ahead(held):
            yield FoundCallable(("map_fn",))

    def datasets(self, holder: Any) -> Iterable[KeyPath]:
        """Yield the nodes around which a node is."""
        held = attributes(holder)
        if _has_mapper(held):
            yield ("_it",)
        elif not _works_ahead(held):
            yield from ((name,) for name in ("node", "source") if _is_node(held.get(name)))
            yield from (path for path, _ in entries(held.get("source_nodes"), ("source_nodes",)))

    def adopt(self, dataset: Any) -> Any:
        """Return a node, or that of a `nodes.Loader`, as an iterable dataset."""
        node = attributes(dataset).get("root", dataset)
        return NodeStream(node) if _is_node(node) else dataset


def _is_node(value: Any) -> bool:
    return hasattr(value, "get_state") and hasattr(value, "reset")


def _has_mapper(held: Mapping[str, Any]) -> bool:
    """Whether a node leaves its work to a mapper that it made when it was made itself."""
    inner = held.get("_it")
    return _is_node(inner) and "map_fn" in attributes(inner)


def _works_ahead(held: Mapping[str, Any]) -> bool:
    """Whether a node works in threads or processes of its own."""
    return bool(held.get("num_workers")) or "prefetch_factor" in held or "_pin_memory_device" in held


def _fresh(node: Any, copies: dict[int, Any]) -> Any:
    """Copy a chain of nodes without what is running in it; what they work on is not copied."""
    if id(node) in copies:
        return copies[id(node)]
    copies[id(node)] = clone = copy.copy(node)
    for name, value in attributes(node).items():
        if callable(getattr(type(node), name, None)):
            delattr(clone, name)  # stands in for a method, and knows the original only
        elif _is_node(value):
            setattr(clone, name, _fresh(value, copies))
        elif name == "_it":
            clone._it = None
        elif isinstance(value, dict) and any(_is_node(part) for part in value.values()):
            setattr(clone, name, {k: _fresh(part, copies) if _is_node(part) else part for k, part in value.items()})
    return clone

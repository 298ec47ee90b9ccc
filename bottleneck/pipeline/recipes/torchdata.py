"""torchdata nodes: a chain of nodes, each around the one before."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from torch.utils.data import IterableDataset

from bottleneck.pipeline.recipes.interface import FoundCallable, Path, Recipe, attributes, entries


class NodeStream(IterableDataset[Any]):
    """A node, or a `nodes.Loader`, as a dataset.

    Args:
        node: Runs where the dataset does; its own threads and processes remain its own.
    """

    def __init__(self, node: Any) -> None:
        self.node = node

    def __iter__(self) -> Iterator[Any]:
        if hasattr(self.node, "reset"):  # a Loader resets its node by itself
            self.node.reset()
        try:
            yield from self.node
        finally:
            getattr(self.node, "shutdown", _nothing)()


class TorchdataNodes(Recipe):
    """Nodes that work in the thread that asks them; what works ahead in threads of its own is not cut."""

    name = "torchdata"
    packages = ("torchdata.nodes", __name__)
    searches_methods = False

    def callables(self, holder: Any) -> Iterable[FoundCallable]:
        """Yield the function of a mapper without workers."""
        held = attributes(holder)
        if callable(held.get("map_fn")) and not _has_mapper(holder) and not _works_ahead(held):
            yield FoundCallable(("map_fn",))

    def datasets(self, holder: Any) -> Iterable[Path]:
        """Yield the nodes around which a node is."""
        held = attributes(holder)
        if _has_mapper(holder):
            yield ("_it",)
            return
        if _works_ahead(held):
            return
        for name in ("node", "root", "source"):
            if held.get(name) is not None:
                yield (name,)
        for path, _ in entries(held.get("source_nodes"), ("source_nodes",)):
            yield path

    def adopt(self, dataset: Any) -> Any:
        """Return a node as an iterable dataset."""
        is_node = type(dataset).__name__ == "Loader" or hasattr(dataset, "get_state")
        return NodeStream(dataset) if is_node and not isinstance(dataset, IterableDataset) else dataset


def _has_mapper(holder: Any) -> bool:
    """Whether a node leaves its work to a mapper that it made when it was made itself."""
    return "map_fn" in attributes(getattr(holder, "_it", None)) and hasattr(holder._it, "reset")


def _works_ahead(held: Any) -> bool:
    return bool(held.get("num_workers")) or "prefetch_factor" in held or "pin_memory_device" in held


def _nothing() -> None:
    """A node that has nothing to shut down."""

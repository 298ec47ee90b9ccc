"""Every pass over a DataLoader, seen where it begins.

Wrappers and frameworks come through `DataLoader.__iter__`. A class may also begin its passes by itself, as torchdata's
StatefulDataLoader does: then its own `__iter__` is the place.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any

from torch.utils.data import DataLoader
from torch.utils.data.dataloader import _BaseDataLoaderIter

Begin = Callable[[DataLoader[Any]], Iterator[Any]]

ORIGINAL: Begin = DataLoader.__iter__


class Passes:
    """While it is entered, each pass over a DataLoader begins with `open`.

    Args:
        open: Gets the loader and what begins a pass over it; gives the iterator.
        opened: The class of what `open` gives.
    """

    def __init__(self, open: Callable[[DataLoader[Any], Begin], Any], opened: type) -> None:
        self._open, self._opened = open, opened
        self._originals: dict[type, Begin] = {}
        self._by_themselves: set[type] = set()

    def __enter__(self) -> Passes:
        replace = self._replace

        def made(cls: Any, /, **options: Any) -> None:
            super(DataLoader, cls).__init_subclass__(**options)  # type: ignore[misc]  # a class below it
            replace(cls)

        DataLoader.__iter__ = lambda loader: self._open(loader, ORIGINAL)  # type: ignore[method-assign]  # until the end
        DataLoader.__init_subclass__ = classmethod(made)  # type: ignore[assignment]  # until the end
        for kind in _below(DataLoader):
            self._replace(kind)
        return self

    def __exit__(self, *_: object) -> None:
        DataLoader.__iter__ = ORIGINAL  # type: ignore[method-assign, assignment]  # as it was
        del DataLoader.__init_subclass__
        for kind, original in self._originals.items():
            kind.__iter__ = original  # type: ignore[attr-defined]  # as it was

    def _replace(self, kind: type) -> None:
        """See the passes of a class that begins them by itself, and not around PyTorch's way."""
        original: Begin | None = vars(kind).get("__iter__")
        if original is None or kind in self._originals:
            return

        @functools.wraps(original)
        def begin(loader: DataLoader[Any]) -> Any:
            if kind in self._by_themselves:
                return self._open(loader, original)
            found = original(loader)
            if isinstance(found, self._opened) or not isinstance(found, _BaseDataLoaderIter):
                return found
            self._by_themselves.add(kind)
            return self._open(loader, lambda _: found)

        self._originals[kind] = original
        kind.__iter__ = begin  # type: ignore[attr-defined]  # until the end


def _below(kind: type) -> Iterator[type]:
    child: type
    for child in kind.__subclasses__():
        yield child
        yield from _below(child)

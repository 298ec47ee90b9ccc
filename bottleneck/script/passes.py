"""Every pass over a DataLoader, seen where it begins: where an iterator of PyTorch's is made.

A loader comes there by `DataLoader.__iter__`, by `_get_iterator` in an `__iter__` of its own, or without being a
DataLoader at all, as fastai's does. An iterator that a class keeps over its epochs is made once: there, its own
`__iter__` says that the next one begins.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any

from torch.utils.data import DataLoader
from torch.utils.data.dataloader import _BaseDataLoaderIter

from bottleneck.script.stream import lent_dataset, lent_loader

Begin = Callable[[Any], Iterator[Any]]

_open: Callable[[Any, Begin], Iterator[Any] | None] | None = None
"""Gives the iterator, or None for PyTorch's own, while `Passes` is entered; None outside of it."""


def _make(kind: type, /, *arguments: Any, **named: Any) -> Any:
    """The `__new__` of PyTorch's iterators."""
    loader = arguments[0] if arguments else named.get("loader")

    def begin(_: Any) -> Any:
        made: Any = object.__new__(kind)
        made.__init__(*arguments, **named)
        return made

    found = _open(loader, begin) if _open is not None and loader is not None else None
    return object.__new__(kind) if found is None else found


class Passes:
    """While it is entered, each pass over a DataLoader begins with `open`.

    Args:
        open: Gets the loader and what begins a pass over it; gives the iterator, or None where this pass is of no
            interest.
        begun: Gets a loader of a class with an `__iter__` of its own, when that is called.
    """

    def __init__(
        self, open: Callable[[DataLoader[Any], Begin], Iterator[Any] | None], begun: Callable[[DataLoader[Any]], None]
    ) -> None:
        self._open, self._begun = open, begun
        self._originals: dict[type, Begin] = {}
        self._lent: dict[int, tuple[Any, Any]] = {}

    def __enter__(self) -> Passes:
        global _open  # noqa: PLW0603 - there is one door
        replace = self._replace

        def made(cls: Any, /, **options: Any) -> None:
            super(DataLoader, cls).__init_subclass__(**options)  # type: ignore[misc]  # a class below it
            replace(cls)

        _open = self._open_any
        # It stays: a class whose __new__ is taken away again refuses all arguments.
        _BaseDataLoaderIter.__new__ = _make  # type: ignore[assignment, method-assign]
        DataLoader.__init_subclass__ = classmethod(made)  # type: ignore[assignment]  # until the end
        for kind in _below(DataLoader):
            self._replace(kind)
        return self

    def __exit__(self, *_: object) -> None:
        global _open  # noqa: PLW0603 - there is one door
        _open = None
        del DataLoader.__init_subclass__
        for kind, original in self._originals.items():
            kind.__iter__ = original  # type: ignore[attr-defined]  # as it was

    def _open_any(self, loader: Any, begin: Begin) -> Iterator[Any] | None:
        if not isinstance(loader, DataLoader):
            try:
                # Kept, so that no other gets its identity.
                _, dataset = self._lent.setdefault(id(loader.dataset), (loader.dataset, lent_dataset(loader)))
                loader = lent_loader(loader, dataset)
            except Exception:  # noqa: BLE001 - it lacks what a DataLoader needs: its pass stays PyTorch's own
                return None
        return self._open(loader, begin)

    def _replace(self, kind: type) -> None:
        """See where a class with an `__iter__` of its own begins a pass, be it over an iterator that it keeps."""
        original: Begin | None = vars(kind).get("__iter__")
        if original is None or kind in self._originals:
            return

        @functools.wraps(original)
        def begin(loader: DataLoader[Any]) -> Any:
            self._begun(loader)
            return original(loader)

        self._originals[kind] = original
        kind.__iter__ = begin  # type: ignore[attr-defined]  # until the end


def _below(kind: type) -> Iterator[type]:
    child: type
    for child in kind.__subclasses__():
        yield child
        yield from _below(child)

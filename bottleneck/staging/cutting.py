"""Put cuts in the place of a dataset's callables.

A `Cut` stands in for a callable on the dataset. While nothing is recorded or replayed it passes calls through.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

from torch.utils.data import Dataset

from bottleneck.pipeline.cuts import MAX_MEMBERS, CutSite, resolve
from bottleneck.staging.tape import Tape


class Cut:
    """Stands in for a callable on the dataset."""

    def __init__(self, function: Callable[..., Any], site: str, tape: Tape) -> None:
        self._cut_function = function
        self._cut_site = site
        self._cut_tape = tape

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Record, replay or pass through, as the tape says."""
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

    @property  # type: ignore[misc]
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
    """Return a class of cuts with the special methods that a callable's class has."""

    def forward(name: str) -> Callable[..., Any]:
        return lambda cut, *args: getattr(cut._cut_function, name)(*args)

    return type("Cut", (Cut,), {name: forward(name) for name in _SPECIAL if hasattr(cls, name)})


def install(dataset: Any, sites: tuple[CutSite, ...], tape: Tape, *, in_place: bool) -> Any:
    """Put cuts in the place of a dataset's callables.

    Args:
        dataset: The user's dataset.
        sites: Where to cut; a site that refuses is left out and noted on the tape.
        tape: Receives the cuts.
        in_place: Change this very object (in a worker it is the worker's own); otherwise every holder on the
            way is shallow-copied, and the user's object stays as it is.

    Returns:
        The dataset to use.
    """
    copies: dict[int, Any] = {}
    root = dataset if in_place else _copy_datasets(dataset, copies)
    copied: dict[tuple[str | int, ...], Any] = {(): root}
    ours = {id(copy) for copy in copies.values()}
    for site in sites:
        try:
            holder = resolve(root, site.path) if in_place else _copied_holder(copied, site.path, ours)
            function = getattr(holder, site.attribute)
            cut = _cut_class(type(function))(function, site.name, tape)
            setattr(holder, site.attribute, cut)
        except Exception as error:  # noqa: BLE001 - any user class may refuse; the site is then not used
            tape.unusable[site.name] = f"it cannot be replaced on the dataset ({type(error).__name__})"
            continue
        tape.stages[site.name] = site.stage
        if site.chosen:
            tape.chosen.add(site.name)
    return root


def _copy_datasets(dataset: Any, copies: dict[int, Any]) -> Any:
    """Copy a dataset and the datasets inside it, level by level; one that is there twice stays one."""
    if id(dataset) in copies:
        return copies[id(dataset)]
    copies[id(dataset)] = clone = _copy_level(dataset)
    for name, value in list(getattr(clone, "__dict__", {}).items()):
        if isinstance(value, Dataset):
            clone.__dict__[name] = _copy_datasets(value, copies)
        elif isinstance(value, (list, tuple)) and any(isinstance(member, Dataset) for member in value[:MAX_MEMBERS]):
            # A tuple becomes a list, so that its members can be replaced.
            members = [_copy_datasets(m, copies) if isinstance(m, Dataset) else m for m in value]
            clone.__dict__[name] = copies[id(value)] = members
    return clone


def _copied_holder(copied: dict[tuple[str | int, ...], Any], path: tuple[str | int, ...], ours: set[int]) -> Any:
    """Return the object at a path, which is copied first if it is the user's."""
    if path in copied:
        return copied[path]
    parent = _copied_holder(copied, path[:-1], ours)
    key = path[-1]
    child = parent[key] if isinstance(key, int) else getattr(parent, key)
    if id(child) not in ours:
        child = list(child) if isinstance(child, (list, tuple)) else _copy_level(child)
        if isinstance(key, int):
            parent[key] = child
        else:
            setattr(parent, key, child)
    copied[path] = child
    return child


def _copy_level(value: Any) -> Any:
    """Copy an object without its contents, past a `__copy__` or `__reduce__` of the user's where there is a dict."""
    state = getattr(value, "__dict__", None)
    if state is None or getattr(type(value), "__new__") is not object.__new__:  # noqa: B009 - mypy takes the two for unlike
        return copy.copy(value)
    clone = object.__new__(type(value))
    clone.__dict__.update(state)
    for cls in type(value).__mro__:
        slots = vars(cls).get("__slots__", ())
        for slot in (slots,) if isinstance(slots, str) else slots:
            if slot not in ("__dict__", "__weakref__") and hasattr(value, slot):
                object.__setattr__(clone, slot, getattr(value, slot))
    return clone

"""Functions of other packages and of Python, replaced while something is watched, and restored.

Only `Passes` replaces one without this module: the `__new__` of PyTorch's iterators, which stays.
"""

from __future__ import annotations

import ctypes
import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any


def replace_function(owner: Any, name: str, wrap: Callable[[Any], Any]) -> Callable[[], None]:
    """Replace a function by what `wrap` makes of it; return a function that restores it.

    Args:
        owner: A module, a class or an object; what a class inherits is replaced for that class alone.
        name: Name of the function in it.
        wrap: Function from the original, as `getattr` returns it, to its replacement.

    Raises:
        AttributeError: There is no such function.
    """
    is_own, original = name in vars(owner), vars(owner).get(name)  # such as a staticmethod
    _put(owner, name, wrap(getattr(owner, name)))

    def restore() -> None:
        if is_own:
            _put(owner, name, original)
        else:
            delattr(owner, name)

    return restore


@contextmanager
def replaced(owner: Any, name: str, wrap: Callable[[Any], Any]) -> Iterator[None]:
    """Replace a function as `replace_function` does, while the context is entered."""
    restore = replace_function(owner, name, wrap)
    try:
        yield
    finally:
        restore()


def _put(owner: Any, name: str, value: Any) -> None:
    try:
        setattr(owner, name, value)
    except TypeError:  # a class in C, such as those of PyAV: what it finds by name it finds in a dictionary, too
        gc.get_referents(vars(owner))[0][name] = value
        ctypes.pythonapi.PyType_Modified(ctypes.py_object(owner))

"""Paths from a dataset to what lies inside it: following, writing and parsing them."""

from __future__ import annotations

import ast
import re
from typing import Any

from bottleneck.job.recipes.interface import Item, Key, KeyPath

_STEP = re.compile(r"""\.?(?P<name>[^.\[\]'"]+)|\[(?P<key>'[^']*'|"[^"]*"|[^\[\]'"]*)\]|\.""")


def follow(value: Any, key: Key) -> Any:
    """Return what lies at one key of an object."""
    if isinstance(key, str):
        return getattr(value, key)
    return value[key.key if isinstance(key, Item) else key]


def resolve(value: Any, path: KeyPath) -> Any:
    """Return what lies at a path of an object."""
    for key in path:
        value = follow(value, key)
    return value


def write_path(path: KeyPath) -> str:
    """Write a path as in code, such as `dataset.transforms[0]`."""
    text = ""
    for key in path:
        if isinstance(key, Item):
            text += f"[{key.key!r}]"
        else:
            text += f"[{key}]" if isinstance(key, int) else f".{key}"
    return text.lstrip(".")


def parse_path(text: str) -> KeyPath:
    """Read a path as a user writes it: `dataset.transform`, `steps[0]`, `steps.0`, `options['transform']`.

    Raises:
        ValueError: It cannot be read, or is empty.
    """
    keys: list[Key] = []
    place = 0
    while place < len(text):
        step = _STEP.match(text, place)
        if step is None:
            raise ValueError(text)
        place = step.end()
        word = step["name"] if step["key"] is None else step["key"].strip()
        if word is None:
            continue
        if word[:1] in ("'", '"'):
            keys.append(Item(ast.literal_eval(word)))
        else:
            keys.append(int(word) if word.isdigit() else word)
    if not keys or "" in keys:
        raise ValueError(text)
    return tuple(keys)

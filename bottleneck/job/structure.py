"""What a sample or a batch is made of, in a few words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from PIL import Image

from bottleneck.job.containers import children, inside
from bottleneck.job.safe_repr import quote

_MOST_PARTS, _MOST_DEPTH, _MOST_KEY = 6, 3, 20


def describe_structure(value: Any, depth: int = 0) -> str:
    """The kinds, shapes and dtypes in a sample or a batch, such as '(float32 [3, 224, 224], int)'."""
    if isinstance(value, torch.Tensor):
        return f"{str(value.dtype).removeprefix('torch.')} {list(value.shape)}"
    if isinstance(value, np.ndarray):
        return f"array {value.dtype} {list(value.shape)}"
    if isinstance(value, Image.Image):
        return f"image {value.mode} {value.width}x{value.height}"
    if isinstance(value, str | bytes):
        return f"{type(value).__name__} of {len(value)}"
    parts = inside(value)
    if parts is None:
        return "None" if value is None else type(value).__name__
    if depth >= _MOST_DEPTH:
        return f"{type(value).__name__} of {len(parts)}"
    named = not isinstance(value, list | tuple) or hasattr(value, "_fields")
    keys = getattr(value, "_fields", [key for key, _ in parts])
    shown = [
        (f"{(key if isinstance(key, str) else quote(key))[:_MOST_KEY]}: " if named else "")
        + describe_structure(part, depth + 1)
        for key, (_, part) in zip(keys, parts[:_MOST_PARTS], strict=False)
    ]
    if not named and len(parts) > len(shown) and len(set(shown)) == 1:
        return f"{type(value).__name__} of {len(parts)} times {shown[0]}"
    if len(parts) > len(shown):
        shown.append(f"{len(parts) - len(shown)} more")
    if children(value) is None:
        return f"{type(value).__name__}({', '.join(shown)})"
    before, after = ("{", "}") if isinstance(value, Mapping) else ("[", "]") if isinstance(value, list) else ("(", ")")
    return before + ", ".join(shown) + after

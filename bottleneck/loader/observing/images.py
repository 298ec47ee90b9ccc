"""Images in the samples: how many pixels are decoded, and how many of them are used."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np
import torch
from PIL import Image

from bottleneck.loader import trees

_MAX_LEAVES = 64
CHANNELS = (1, 3, 4)


@dataclass
class Pixels:
    """Facts about the images of some samples.

    Attributes:
        samples: Those in which an image was found both before the augmentation and at the end.
        decoded: Pixels before, in all of them together.
        used: Pixels at the end.
        loaded_samples: Samples whose whole input of the augmentation is known.
        loaded_bytes: The size of that, images or not.
    """

    samples: int = 0
    decoded: int = 0
    used: int = 0
    loaded_samples: int = 0
    loaded_bytes: int = 0

    def add(self, other: Pixels) -> None:
        for name, value in vars(other).items():
            setattr(self, name, getattr(self, name) + value)


class PixelNotes:
    """Watches the samples of one worker."""

    def __init__(self) -> None:
        self.begin()

    def begin(self) -> None:
        """Begin an item: a sample, or a batch of a dataset that fetches whole ones."""
        self._decoded: list[int] = []
        self._loaded: dict[int, tuple[Any, int]] = {}
        """Identity -> a value, kept so that no other gets its identity, and its size."""

    def see_loaded(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Note what goes into the augmentation as a whole."""
        self._loaded |= {id(value): (value, trees.nbytes(value)) for value in (*args, *kwargs.values())}
        self._see_image((args, kwargs))

    def see_transformed(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Note what goes into a single transform; the first one of an item gets what was decoded."""
        if not self._decoded:
            self._see_image((args, kwargs))

    def _see_image(self, value: Any) -> None:
        found = [pixels for leaf in _leaves(value) if _is_decoded(leaf) and (pixels := image_pixels(leaf))]
        if found:
            self._decoded.append(max(found))

    def end(self, value: Any, samples: int) -> Pixels:
        """Return what was found in an item of that many samples."""
        seen = Pixels()
        used = [pixels for leaf in _leaves(value) if (pixels := image_pixels(leaf))]
        if self._decoded and used:
            each = max(self._decoded) if samples == 1 else sum(self._decoded) / len(self._decoded)
            seen.samples, seen.decoded, seen.used = samples, round(each * samples), max(used) * samples
        if self._loaded:
            seen.loaded_samples, seen.loaded_bytes = samples, sum(nbytes for _, nbytes in self._loaded.values())
        self.begin()
        return seen


def image_pixels(leaf: Any) -> int | None:
    """Return how many pixels an image of any type has; None for what does not look like an image."""
    if isinstance(leaf, Image.Image):
        return leaf.width * leaf.height
    if not isinstance(leaf, (torch.Tensor, np.ndarray)) or not 2 <= leaf.ndim <= 4:
        return None
    values = math.prod(leaf.shape)
    if leaf.ndim == 2:
        return values if _is_bytes(leaf) else None
    channels = next((size for size in (leaf.shape[-1], leaf.shape[-3]) if size in CHANNELS), None)
    return values // channels if channels is not None else None


def describe_output(value: Any) -> str:
    """Return size and type of what a transform returned: of the first image or array in it, or else of the whole."""
    for leaf in islice(trees.leaves(value), _MAX_LEAVES):
        if isinstance(leaf, Image.Image):
            return f"{leaf.width}x{leaf.height} {leaf.mode}"
        if isinstance(leaf, (torch.Tensor, np.ndarray)):
            shape = "x".join(str(size) for size in leaf.shape)
            return f"{shape} {str(leaf.dtype).removeprefix('torch.')}".strip()
    return type(value).__name__


def _is_decoded(leaf: Any) -> bool:
    return isinstance(leaf, Image.Image) or (isinstance(leaf, (torch.Tensor, np.ndarray)) and _is_bytes(leaf))


def _is_bytes(leaf: Any) -> bool:
    return str(leaf.dtype).removeprefix("torch.") == "uint8"


def _leaves(value: Any) -> Iterator[Any]:
    return islice(trees.leaves(value), _MAX_LEAVES)

"""How many pixels the loading gives out, and how many of them a sample keeps."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np
import torch
from PIL import Image

from bottleneck.loader import trees

_MOST_LEAVES = 64
_CHANNELS = (1, 3, 4)


@dataclass
class Pixels:
    """What was found of the images of some samples.

    Attributes:
        samples: Those in which an image was found both before the augmentation and at the end.
        decoded: Pixels before, in all of them together.
        used: Pixels at the end.
        loaded_samples: Samples of which everything that goes into the augmentation is known.
        loaded_bytes: The size of that, images or not.
    """

    samples: int = 0
    decoded: int = 0
    used: int = 0
    loaded_samples: int = 0
    loaded_bytes: int = 0

    def add(self, other: Pixels) -> None:
        self.samples += other.samples
        self.decoded += other.decoded
        self.used += other.used
        self.loaded_samples += other.loaded_samples
        self.loaded_bytes += other.loaded_bytes


class PixelNotes:
    """Watches the samples of one worker."""

    def __init__(self) -> None:
        self._decoded: list[int] = []
        self._loaded: dict[int, int] = {}
        self._kept: list[Any] = []

    def begin(self) -> None:
        """Begin an item: a sample, or a batch of a dataset that fetches whole ones."""
        self._decoded, self._loaded, self._kept = [], {}, []

    def see_loaded(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Note what goes into the augmentation as a whole."""
        for value in (*args, *kwargs.values()):
            self._kept.append(value)  # so that its identity is not given to another one
            self._loaded.setdefault(id(value), trees.nbytes(value))
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
        """Return what was found of an item with so many samples."""
        seen = Pixels()
        used = [pixels for leaf in _leaves(value) if (pixels := image_pixels(leaf))]
        if self._decoded and used:
            each = max(self._decoded) if samples == 1 else sum(self._decoded) / len(self._decoded)
            seen.samples, seen.decoded, seen.used = samples, round(each * samples), max(used) * samples
        if self._loaded:
            seen.loaded_samples, seen.loaded_bytes = samples, sum(self._loaded.values())
        self.begin()
        return seen


def _leaves(value: Any) -> Iterator[Any]:
    return islice(trees.leaves(value), _MOST_LEAVES)


def image_pixels(leaf: Any) -> int | None:
    """Return how many pixels an image has, whatever its type; None for what does not look like an image."""
    if isinstance(leaf, Image.Image):
        return leaf.width * leaf.height
    if not isinstance(leaf, (torch.Tensor, np.ndarray)) or not 2 <= leaf.ndim <= 4:
        return None
    shape = tuple(int(size) for size in leaf.shape)
    if leaf.ndim == 2:
        return shape[0] * shape[1] if _is_bytes(leaf) else None
    pixels = 1
    for size in shape:
        pixels *= size
    for channels in (shape[-1], shape[-3]):
        if channels in _CHANNELS:
            return pixels // channels
    return None


def _is_decoded(leaf: Any) -> bool:
    """Whether this is of a type that decoders give."""
    return isinstance(leaf, Image.Image) or (isinstance(leaf, (torch.Tensor, np.ndarray)) and _is_bytes(leaf))


def _is_bytes(leaf: Any) -> bool:
    return str(leaf.dtype).removeprefix("torch.") == "uint8"

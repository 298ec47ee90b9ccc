"""Change to decoding of JPEG files: at a half, a quarter or an eighth of their size, for small samples."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Any

import torch
from torch.nn.functional import adaptive_avg_pool2d
from torch.utils.data import IterableDataset

from bottleneck.analysis.advice.samples import MARGIN
from bottleneck.job.replaced import replaced
from bottleneck.loader import trees
from bottleneck.loader.user_code import fetches_batches
from bottleneck.tuner.change import Change, Context
from bottleneck.tuner.changes.data import Around, copied, seeded, spread_over
from bottleneck.tuner.changes.samples import InMemory, steps_of, with_steps
from bottleneck.tuner.changes.step import STREAM

_GRID = 8
"""Side in pixels to which two images are averaged before they are compared, which ignores differences in detail."""
_ALIKE = 0.05
"""Mean difference of averaged pixels up to which images show the same, as a share of the range of values."""
_COLOURS = (1, 3, 4)


class SmallDecoding(Around):
    """A dataset whose JPEG files Pillow decodes at a reduced size, with at least `side` pixels a side.

    libjpeg leaves out the finest detail while it decodes; see `PIL.Image.Image.draft`.
    """

    def __init__(self, dataset: Any, side: int) -> None:
        super().__init__(dataset)
        self.side = side

    def __getitem__(self, index: int) -> Any:
        with _drafts(self.side):
            return self.dataset[index]


@contextmanager
def _drafts(side: int) -> Iterator[None]:
    from PIL import Image

    def small(opens: Callable[..., Image.Image]) -> Callable[..., Image.Image]:
        @wraps(opens)
        def opens_small(*arguments: Any, **options: Any) -> Image.Image:
            image = opens(*arguments, **options)
            image.draft(None, (side, side))
            return image

        return opens_small

    with replaced(Image, "open", small):
        yield


def _pixels(leaf: Any) -> torch.Tensor | None:
    """Return a leaf as an image of colours x height x width; None if it is not an image."""
    if not isinstance(leaf, torch.Tensor) or leaf.ndim != 3:
        return None
    image = leaf if leaf.shape[0] in _COLOURS else leaf.movedim(-1, 0)
    return image.double() if image.shape[0] in _COLOURS and image.shape[1:].numel() else None


def _side_of(dataset: Any) -> int | None:
    """Return the minimum side in pixels for decoding, by one sample; None if it has no image."""
    leaves = trees.leaves(seeded(0, copied(dataset).__getitem__, 0))
    images = [image for leaf in leaves if (image := _pixels(leaf)) is not None]
    return round(MARGIN * max(max(image.shape[1:]) for image in images)) if images else None


def _why_not(here: Context) -> str | None:
    dataset = here.pipeline.dataset
    if isinstance(dataset, IterableDataset):
        return STREAM
    if isinstance(dataset, InMemory) or fetches_batches(dataset) or not hasattr(dataset, "__len__") or not len(dataset):
        return "its samples come from memory, or in whole batches"
    try:
        side = _side_of(dataset)
        return "a sample has no image" if side is None else _why_other(copied(dataset), side)
    except Exception:  # noqa: BLE001 - the user's dataset may not expect smaller images
        return "a sample cannot be made of a smaller image"


def _why_other(dataset: Any, side: int) -> str | None:
    """Return why samples from smaller images are of no use; None if they show the same."""

    def resized(steps: list[Any]) -> list[Any]:  # random crops at random scales cannot be compared
        if not any(type(step).__name__ == "RandomResizedCrop" for step in steps):
            return steps
        from torchvision.transforms import Resize

        return [Resize(step.size) if type(step).__name__ == "RandomResizedCrop" else step for step in steps]

    is_other, dataset = False, with_steps(dataset, resized) if steps_of(dataset) else dataset
    small = SmallDecoding(dataset, side)
    for index in spread_over(dataset):
        one, other = (trees.leaves(seeded(1, each.__getitem__, index)) for each in (dataset, small))
        if len(one) != len(other) or not all(map(_show_the_same, one, other)):
            return "a sample would show something else: a crop, or a number, depends on the size of the image"
        is_other |= not all(map(trees.equal, one, other))
    return None if is_other else "no JPEG file has twice the size that the samples need"


def _show_the_same(one: Any, other: Any) -> bool:
    image, small = _pixels(one), _pixels(other)
    if image is None or small is None or image.shape != small.shape or one.dtype != other.dtype:
        return trees.equal(one, other)
    apart = adaptive_avg_pool2d(image, _GRID) - adaptive_avg_pool2d(small, _GRID)
    return float(apart.abs().mean()) <= _ALIKE * float(image.max() - image.min())


CHANGES = (
    Change(
        "decode_small",
        lambda pipeline, side: pipeline.replace(dataset=SmallDecoding(pipeline.dataset, side)),
        line="image.draft(None, ({value}, {value}))  # in the dataset, right after image = Image.open(path)",
        advice=("image-decoding",),
        why_not=_why_not,
        input_only=True,
        next_value=lambda here, judged: None if judged else _side_of(here.pipeline.dataset),
        source="https://pillow.readthedocs.io/en/stable/reference/Image.html#PIL.Image.Image.draft",
    ),
)

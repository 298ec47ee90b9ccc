"""Change that moves random augmentation of pixels to the device, on whole batches with separate draws per sample.

torchvision's own transforms draw once for a batch, which is then flipped as a whole or not at all. Those here take the
same arguments, but draw for each sample; the parameters are tensors on the device, so that nothing waits for it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import cache, partial
from typing import Any

import torch
from torch.nn.functional import conv2d, pad
from torch.utils.data import IterableDataset

from bottleneck.job.pipeline import Pipeline
from bottleneck.loader import trees
from bottleneck.tuner.change import Change, Context
from bottleneck.tuner.changes.data import gives_same_pixels, inside_subsets, is_torchvisions, split, with_transform
from bottleneck.tuner.changes.payload import after_the_move
from bottleneck.tuner.changes.step import STREAM

_SCALING = ("ToTensor", "ToDtype", "ConvertImageDtype")
_GREY = (0.2989, 0.587, 0.114)
"""Weights of the colours for grey, as in torchvision."""
_IMAGES_DIMENSIONS = 4

Images = torch.Tensor
"""Floats from 0 to 1, of shape (samples, channels, height, width)."""
Op = Callable[[Images], Images]


def _draw(images: Images, low: float = 0.0, high: float = 1.0) -> torch.Tensor:
    """Return a random number for each sample, of a shape that combines with images."""
    drawn = torch.empty(len(images), 1, 1, 1, device=images.device)
    return drawn.uniform_(low, high)


def _some(images: Images, share: float, change: Op) -> Images:
    """Change each image with this probability."""
    return torch.where(_draw(images) < share, change(images), images)


@cache  # copying them for each batch would make the host wait for the device
def _by_channel(values: tuple[float, ...], device: torch.device) -> torch.Tensor:
    return torch.tensor(values, device=device).view(-1, 1, 1)


def _grey(images: Images) -> Images:
    return (images * _by_channel(_GREY, images.device)).sum(1, keepdim=True)


def _blend(images: Images, other: Images, factor: torch.Tensor) -> Images:
    return (factor * images + (1 - factor) * other).clamp_(0, 1)


# --- torchvision's transforms, with draws per sample -----------------------------------------------------------


def _flip(step: Any, dimension: int, images: Images) -> Images:
    return _some(images, step.p, lambda each: each.flip(dimension))


def _jitter(step: Any, images: Images) -> Images:
    ops: list[Op] = []
    if step.brightness is not None:
        ops.append(lambda each: (each * _draw(each, *step.brightness)).clamp_(0, 1))
    if step.contrast is not None:
        ops.append(lambda each: _blend(each, _grey(each).mean((2, 3), keepdim=True), _draw(each, *step.contrast)))
    if step.saturation is not None:
        ops.append(lambda each: _blend(each, _grey(each), _draw(each, *step.saturation)))
    if step.hue is not None:
        ops.append(lambda each: _shift_hue(each, _draw(each, *step.hue)))
    for at in torch.randperm(len(ops)).tolist():  # drawn on the host: one order for the batch
        images = ops[at](images)
    return images


def _shift_hue(images: Images, shift: torch.Tensor) -> Images:
    from torchvision.transforms._functional_tensor import _hsv2rgb, _rgb2hsv

    hue, saturation, value = _rgb2hsv(images).unbind(-3)
    changed: Images = _hsv2rgb(torch.stack([(hue + shift[:, 0]) % 1.0, saturation, value], -3))
    return changed


def _blur(step: Any, images: Images) -> Images:
    samples, channels = images.shape[:2]
    sigma = _draw(images, *map(float, step.sigma)).view(samples, 1)
    for size, dimension in zip(reversed(step.kernel_size), (-2, -1), strict=True):  # its height, then its width
        steps = torch.arange(size, device=images.device) - (size - 1) / 2
        kernel = torch.exp(-0.5 * (steps / sigma) ** 2)
        kernel = (kernel / kernel.sum(1, keepdim=True)).repeat_interleave(channels, 0)
        shape, edges = (
            ((size, 1), (0, 0, size // 2, size // 2)) if dimension == -2 else ((1, size), (size // 2,) * 2 + (0, 0))
        )
        flat = pad(images, edges, mode="reflect").flatten(0, 1)[None]
        blurred = conv2d(flat, kernel.view(-1, 1, *shape), groups=samples * channels)
        images = blurred.view(samples, channels, *blurred.shape[-2:])
    return images


def _solarize(step: Any, images: Images) -> Images:
    threshold = step.threshold / 255 if step.threshold > 1 else step.threshold
    return _some(images, step.p, lambda each: torch.where(each >= threshold, 1 - each, each))


def _erase(step: Any, images: Images) -> Images:
    height, width = images.shape[-2:]
    area = height * width * _draw(images, *step.scale)
    ratio = torch.exp(_draw(images, *map(math.log, step.ratio)))
    sides = (area * ratio).sqrt().clamp(max=height).floor(), (area / ratio).sqrt().clamp(max=width).floor()
    inside = torch.ones((), dtype=torch.bool, device=images.device)
    for size, length, shape in ((height, sides[0], (-1, 1)), (width, sides[1], (1, -1))):
        begin = ((size - length + 1) * _draw(images)).floor()
        places = torch.arange(size, device=images.device).view(*shape)
        inside = inside & (places >= begin) & (places < begin + length)
    return _some(images, step.p, lambda each: each.masked_fill(inside, float(step.value)))


def _apply(step: Any, images: Images) -> Images:
    ops = [_op_of(inner) for inner in step.transforms]

    def change(each: Images) -> Images:
        for op in ops:
            assert op is not None  # checked by `_op_of`
            each = op(each)
        return each

    return _some(images, step.p, change)


def _normalize(step: Any, images: Images) -> Images:
    mean, std = (_by_channel(tuple(map(float, each)), images.device) for each in (step.mean, step.std))
    return (images - mean) / std


_OPS: dict[str, Callable[[Any, Images], Images]] = {
    "RandomHorizontalFlip": lambda step, images: _flip(step, -1, images),
    "RandomVerticalFlip": lambda step, images: _flip(step, -2, images),
    "ColorJitter": _jitter,
    "RandomGrayscale": lambda step, images: _some(images, step.p, lambda each: _grey(each).expand_as(each)),
    "RandomInvert": lambda step, images: _some(images, step.p, lambda each: 1 - each),
    "RandomSolarize": _solarize,
    "GaussianBlur": _blur,
    "RandomErasing": _erase,
    "RandomApply": _apply,
    "Normalize": _normalize,
}
_FIXED = ("Normalize", "ToPureTensor")


def _op_of(step: Any) -> Op | None:
    """Return the function that applies a transform of torchvision to a batch; None if there is none here."""
    name = type(step).__name__
    if not is_torchvisions(step) or name not in _OPS:
        return None
    if name == "RandomErasing" and not isinstance(step.value, int | float):
        return None
    if name == "RandomApply" and not all(_op_of(inner) for inner in step.transforms):
        return None
    return partial(_OPS[name], step)


class OnDevice:
    """Converts images of bytes to floats, and changes each image of a batch separately, on their device.

    Args:
        steps: Transforms of torchvision, without the one that makes floats.
    """

    def __init__(self, steps: Sequence[Any]) -> None:
        self._ops = [op for step in steps if (op := _op_of(step)) is not None]

    def __call__(self, leaf: Any) -> Any:
        if not isinstance(leaf, torch.Tensor) or leaf.dtype is not torch.uint8 or leaf.dim() != _IMAGES_DIMENSIONS:
            return leaf
        images = leaf.float().div_(255)
        for op in self._ops:
            images = op(images)
        return images


# --- the cut of a composition ----------------------------------------------------------------------------------


def _cut_of(transform: Any) -> tuple[list[Any], list[Any]] | None:
    """Return the transforms that stay in the workers, with bytes as output, and the random ones for the device.

    None if none can be moved.
    """
    if type(transform).__name__ != "Compose" or not is_torchvisions(transform):
        return None
    steps = list(transform.transforms)
    scaling = [at for at, step in enumerate(steps) if type(step).__name__ in _SCALING and is_torchvisions(step)]
    if len(scaling) != 1:
        return None

    def goes(step: Any) -> bool:
        return step is steps[scaling[0]] or type(step).__name__ in _FIXED or _op_of(step) is not None

    first = len(steps)
    while first > 0 and goes(steps[first - 1]):
        first -= 1
    moved = [step for step in steps[first:] if step is not steps[scaling[0]]]
    if first > scaling[0] or all(type(step).__name__ in _FIXED for step in moved):
        return None
    from torchvision.transforms import PILToTensor

    return [*steps[:first], *([PILToTensor()] if type(steps[scaling[0]]).__name__ == "ToTensor" else [])], moved


def _without_random(transform: Any) -> Any:
    """Return the composition without the random transforms that move to the device, so that pixels can be compared."""
    cut = _cut_of(transform)
    assert cut is not None  # checked before
    random = [step for step in cut[1] if type(step).__name__ not in _FIXED]
    return type(transform)([step for step in transform.transforms if not any(step is other for other in random)])


def _why_not(here: Context) -> str | None:
    if here.device.type == "cpu":
        return "the job trains on the CPU, where augmentation would take the cores from the workers"
    dataset = here.pipeline.dataset
    if isinstance(dataset, IterableDataset):
        return STREAM
    if here.given.to_device is not None:
        return "the job moves its batches itself: change it in its to_device"
    if _cut_of(getattr(inside_subsets(dataset), "transform", None)) is None:
        return (
            "the dataset has no `transform` of torchvision that ends in random changes of pixels and in ToTensor or "
            "ToDtype, all of which can be made for each sample of a batch"
        )
    plain = with_transform(dataset, _without_random)
    tail = split(inside_subsets(plain).transform)
    is_same = tail is not None and gives_same_pixels(plain, tail)
    return None if is_same else "the pixels may not be the same: the dataset does more"


def _on_device(pipeline: Pipeline) -> Pipeline:
    cut = _cut_of(inside_subsets(pipeline.dataset).transform)
    assert cut is not None  # checked by `_why_not`
    stays, moved = cut
    changed = pipeline.replace(dataset=with_transform(pipeline.dataset, lambda transform: type(transform)(stays)))
    return after_the_move(changed, partial(trees.map_leaves, OnDevice(moved)))


CHANGES = (
    Change(
        "augment_on_device",
        _on_device,
        on="payload",
        line="# in the transform: PILToTensor() at its end, without the random changes of pixels; after the copy,\n"
        "# with separate draws for each sample (such as those of kornia.augmentation):\n"
        "images = augment(images.float().div_(255))",
        advice=("augment-on-device",),
        why_not=_why_not,
        source="https://docs.pytorch.org/vision/stable/transforms.html#performance-considerations",
    ),
)

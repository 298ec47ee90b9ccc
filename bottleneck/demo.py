"""The job of `bottleneck demo`, and its synthetic JPEG photographs, made once and kept in the user's cache folder.

The time to read a JPEG depends on its detail: one flat colour decodes far too fast, white noise far too slowly. These
pictures resemble photographs: smooth light, sharp edges, and texture whose contrast falls with its frequency. At
500x375 pixels they take 30 to 45 KB each.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from bottleneck.errors import UsageError
from bottleneck.measure.machine.limits import usable_cores
from bottleneck.results.files import cache_folder
from bottleneck.results.records import Result

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    from PIL import Image
    from torch import nn

    from bottleneck.job.pipeline import Pipeline

AnyResult = TypeVar("AnyResult", bound=Result)

BATCH_SIZE = 8
WIDTH = 320
"""Width of the demo's pictures in pixels; small enough for many rounds in the demo's time."""
VERSION = 2
"""Version of the pictures, raised with every change, so that an old folder is not reused."""
CLASSES = ("field", "forest", "harbour", "street")
_COLOURS = ((150, 190, 110), (90, 130, 80), (110, 150, 190), (160, 145, 130))
"""Main colour of each class."""
_SIZES = ((1.0, 0.75), (1.0, 0.75), (1.0, 0.666), (0.75, 1.0))
"""Width and height, relative to the longer side."""
_TEXTURE = ((24, 10.0), (48, 8.0), (96, 6.0), (192, 3.0))
"""Cells across, and contrast in grey levels."""
_JPEG_QUALITY = 90


def require_torchvision() -> None:
    """Import torchvision, which only the demo's job needs.

    Raises:
        UsageError: It is missing or does not work.
    """
    try:
        import torchvision  # noqa: F401 - checks only that it can be imported
    except (ImportError, OSError, RuntimeError) as error:
        raise UsageError(
            f"The demo reads its photographs with torchvision, which cannot be imported: {error}.",
            "Install it: pip install 'torch-bottleneck[demo]', in a checkout pip install '.[demo]'.",
        ) from error


def ensure_photographs(
    images: int = 300,
    *,
    width: int = 500,
    parent: Path | None = None,
    on_progress: Callable[[int, int], None] | None = None,
) -> Path:
    """Return the folder of photographs, which is made if it does not exist.

    Args:
        images: Number of images in all classes together.
        width: Pixels of the longer side.
        parent: Parent folder; None: the user's cache folder.
        on_progress: Called with (done, total) after each new picture.

    Returns:
        A folder with one folder of `.jpg` files per class, as `torchvision.datasets.ImageFolder` reads it.

    Raises:
        UsageError: There are fewer images than classes, or the cache folder cannot be written.
    """
    if images < len(CLASSES):
        raise UsageError(f"{images} images are too few for {len(CLASSES)} classes.", "Write: --images 300")
    parent = cache_folder() if parent is None else parent
    target = parent / f"photographs-v{VERSION}-{width}-{images}"
    try:
        if not is_complete(target, images):
            _make(target, images, width, on_progress)
    except OSError as error:
        raise UsageError(
            f"The photographs cannot be written: {error}.",
            "Set XDG_CACHE_HOME to a folder that can be written and has 50 MiB free.",
        ) from error
    return target


def is_complete(folder: Path, images: int) -> bool:
    """Return True if a folder contains all images for which it was made."""
    return sum(1 for _ in folder.glob("*/*.jpg")) == images


def _make(target: Path, images: int, width: int, on_progress: Callable[[int, int], None] | None) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    # Built in another folder and renamed, so that an interrupted run leaves no incomplete folder.
    building = Path(tempfile.mkdtemp(prefix=f"{target.name}-", dir=target.parent))
    try:
        for index in range(images):
            place = building / CLASSES[index % len(CLASSES)]
            place.mkdir(exist_ok=True)
            draw_photograph(index, width).save(place / f"{index:05d}.jpg", quality=_JPEG_QUALITY)
            if on_progress is not None:
                on_progress(index + 1, images)
        building.chmod(0o755)  # mkdtemp makes folders that only their owner can read
        if target.exists() and not is_complete(target, images):
            shutil.rmtree(target)
        # If another process has meanwhile made the same folder, that one is used.
        with suppress(OSError):
            building.rename(target)
    finally:
        shutil.rmtree(building, ignore_errors=True)
    if not is_complete(target, images):
        raise OSError(f"{target} was changed by another program")


def draw_photograph(index: int, width: int = 500) -> Image.Image:
    """Return a picture with light, edges and texture, which depends on index and width (pixels) only."""
    import numpy as np
    from PIL import Image

    rng = np.random.default_rng(index)
    across, down = _SIZES[int(rng.integers(len(_SIZES)))]
    size = (round(width * across), round(width * down))
    colours = [
        colour + _noise(rng, size, 6, 20.0) + _noise(rng, size, 12, 12.0, sharp=True)
        for colour in _COLOURS[index % len(CLASSES)]
    ]
    texture = sum(_noise(rng, size, cells, contrast) for cells, contrast in _TEXTURE)
    pixels = np.stack(colours, axis=-1) + np.asarray(texture)[:, :, None]
    # Noise of a sensor: fine, weak and different in each colour.
    pixels += rng.normal(0.0, 2.0, pixels.shape)
    return Image.fromarray(np.clip(pixels, 0, 255).astype(np.uint8))


def _noise(
    rng: np.random.Generator, size: tuple[int, int], cells: int, contrast: float, *, sharp: bool = False
) -> npt.NDArray[np.float32]:
    """Return random grey levels around 0, with `cells` along each side, and edges between them if sharp."""
    import numpy as np
    from PIL import Image

    grid = rng.normal(0.0, contrast, (cells, cells)).astype(np.float32)
    between = Image.Resampling.NEAREST if sharp else Image.Resampling.BICUBIC
    return np.asarray(Image.fromarray(grid).resize(size, between))


def build_demo(folder: Path) -> Pipeline:
    """Return the job: random crops, flips, colours and blur of photographs, and a small convolutional network."""
    import torch
    from torch import nn
    from torchvision import datasets, transforms

    from bottleneck.job.pipeline import Pipeline
    from bottleneck.job.step import resolve_device

    augmentation = transforms.Compose(
        [
            transforms.RandomResizedCrop(128),
            transforms.RandomHorizontalFlip(),
            transforms.ColorJitter(brightness=0.4, contrast=0.4, saturation=0.4, hue=0.1),
            transforms.GaussianBlur(kernel_size=5, sigma=(0.1, 2.0)),
            transforms.ToTensor(),
            transforms.Normalize(mean=(0.485, 0.456, 0.406), std=(0.229, 0.224, 0.225)),
        ]
    )
    device = resolve_device(None)
    cores = max(1, int(usable_cores()))
    workers = max(1, min(2, cores - 1))
    if device.type == "cpu":
        # Threads of the train step that share cores with the workers spin at each other's barriers: the duration of a
        # step then changes by factors of two to ten from one moment to the next.
        torch.set_num_threads(max(1, cores - workers))
    model = small_network(len(CLASSES)).to(device)
    return Pipeline(
        dataset=datasets.ImageFolder(str(folder), transform=augmentation),
        model=model,
        loss_fn=nn.CrossEntropyLoss(),
        optimizer=torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9),
        device=device,
        batch_size=BATCH_SIZE,
        shuffle=True,
        num_workers=workers,
        pin_memory=device.type == "cuda",
        drop_last=True,
        persistent_workers=True,
    )


_OF_THE_MACHINE = frozenset(
    (
        "cost-differs-from-clock", "costs-do-not-add-up", "device-clock-differs", "negative-drop", "other-load",
        "step-slow-alone", "stolen-time", "trend", "unsteady-blocks",
    )
)  # fmt: skip
"""Ids of warnings about other load on the machine."""


def without_disturbances(result: AnyResult) -> AnyResult:
    """Return the result without warnings about other load: the demo's numbers are not used to change a job."""
    return replace(result, warnings=tuple(one for one in result.warnings if one.id not in _OF_THE_MACHINE))


def small_network(classes: int) -> nn.Module:
    """Return a convolutional network that a CPU can train within the demo's time."""
    from torch import nn

    return nn.Sequential(
        nn.Conv2d(3, 16, kernel_size=7, stride=4, padding=3),
        nn.BatchNorm2d(16),
        nn.ReLU(),
        nn.Conv2d(16, 32, kernel_size=3, stride=2, padding=1),
        nn.BatchNorm2d(32),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(32, classes),
    )

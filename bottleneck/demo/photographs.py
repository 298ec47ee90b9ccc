"""A folder of synthetic JPEG photographs, made once and kept in the user's cache folder.

What a JPEG costs to read depends on how much detail it holds: one flat colour decodes far too fast, white
noise far too slowly. These pictures have what photographs have: smooth light, shapes with sharp and with soft
edges, and texture whose contrast falls with its frequency. About 500x375 pixels and 30 to 45 KB each.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bottleneck.errors import UsageError

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    from PIL import Image

    Plane = npt.NDArray[np.float32]

RECIPE_VERSION = 1
"""To be raised with every change of the pictures, so that an old folder is not taken for a new one."""

CLASSES = ("field", "forest", "harbour", "street")
SIZES = ((500, 375), (500, 375), (500, 333), (375, 500))
JPEG_QUALITY = 90
MARKER = "photographs.json"


@dataclass(frozen=True)
class Recipe:
    """What decides every byte of the folder; written into it as the mark that it is complete."""

    images: int
    seed: int = 0
    version: int = RECIPE_VERSION
    quality: int = JPEG_QUALITY

    @property
    def folder_name(self) -> str:
        """A name of its own for each recipe, so that two of them live side by side."""
        return f"photographs-v{self.version}-{self.images}-{self.seed}"


def cache_folder() -> Path:
    """The folder for things that can be made again: `$XDG_CACHE_HOME` or `~/.cache`, and our name in it."""
    given = os.environ.get("XDG_CACHE_HOME", "")
    # The XDG base directory specification: a relative path is invalid and to be ignored.
    base = Path(given) if os.path.isabs(given) else Path.home() / ".cache"
    return base / "torch-bottleneck"


def ensure_photographs(
    images: int = 300,
    *,
    seed: int = 0,
    parent: Path | None = None,
    on_progress: Callable[[int, int], None] | None = None,
) -> Path:
    """The folder of photographs, made now if it is not there yet.

    Args:
        images: How many, over all classes.
        seed: The same seed gives the same pictures.
        parent: Where to keep the folder; None: the user's cache folder.
        on_progress: Called with (done, total) after each picture that is made.

    Returns:
        A folder with one folder of `.jpg` files per class, as `torchvision.datasets.ImageFolder` reads it.

    Raises:
        UsageError: There are fewer images than classes, or the cache folder cannot be written.
    """
    if images < len(CLASSES):
        raise UsageError(f"{images} images are too few for {len(CLASSES)} classes.", "Write: --images 300")
    recipe = Recipe(images=images, seed=seed)
    parent = cache_folder() if parent is None else parent
    target = parent / recipe.folder_name
    if is_complete(target, recipe):
        return target / "images"
    try:
        parent.mkdir(parents=True, exist_ok=True)
        # Built aside and renamed, so that an interrupted run leaves no half folder behind.
        building = Path(tempfile.mkdtemp(prefix=f"{recipe.folder_name}-", dir=parent))
        try:
            _write_all(building, recipe, on_progress)
            _move_into_place(building, target, recipe)
        finally:
            shutil.rmtree(building, ignore_errors=True)
    except OSError as error:
        raise UsageError(
            f"The photographs cannot be written: {error}.",
            "Set XDG_CACHE_HOME to a folder that can be written and has 50 MiB free.",
        ) from error
    return target / "images"


def is_complete(folder: Path, recipe: Recipe) -> bool:
    """Whether the folder holds every photograph of the recipe."""
    try:
        marker: Any = json.loads((folder / MARKER).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    return bool(marker == asdict(recipe)) and sum(1 for _ in folder.glob("images/*/*.jpg")) == recipe.images


def _write_all(folder: Path, recipe: Recipe, on_progress: Callable[[int, int], None] | None) -> None:
    for name in CLASSES:
        (folder / "images" / name).mkdir(parents=True)
    for index in range(recipe.images):
        name = CLASSES[index % len(CLASSES)]
        picture = draw_photograph(index, recipe.seed)
        picture.save(folder / "images" / name / f"{index:05d}.jpg", quality=recipe.quality)
        if on_progress is not None:
            on_progress(index + 1, recipe.images)
    folder.chmod(0o755)  # mkdtemp makes folders that only their owner can read
    (folder / MARKER).write_text(json.dumps(asdict(recipe)), encoding="utf-8")


def _move_into_place(building: Path, target: Path, recipe: Recipe) -> None:
    if target.exists() and not is_complete(target, recipe):
        shutil.rmtree(target)
    # Another process may have put the same folder there in the meantime: then theirs is as good.
    with suppress(OSError):
        building.rename(target)
    if not is_complete(target, recipe):
        raise OSError(f"{target} was changed by another program")


def draw_photograph(index: int, seed: int = 0) -> Image.Image:
    """One picture: light, shapes and texture; the same for the same index and seed."""
    import numpy as np
    from PIL import Image

    rng = np.random.default_rng((seed, index))
    width, height = SIZES[int(rng.integers(len(SIZES)))]
    kind = index % len(CLASSES)
    scene = _draw_shapes(rng, _draw_light(rng, width, height, kind), kind)
    pixels = np.asarray(scene, dtype=np.float32)
    # Texture is stronger in some regions than in others, as focus and material make it in a photograph.
    where = 0.35 + 0.65 * _noise(rng, width, height, 3) ** 2
    pixels = pixels + (where * _draw_texture(rng, width, height))[:, :, None]
    # The sensor's own noise: fine, weak and different in each colour.
    pixels = pixels + rng.standard_normal(pixels.shape, dtype=np.float32) * np.float32(2.0)
    return Image.fromarray(np.clip(pixels, 0, 255).astype(np.uint8))


def _draw_light(rng: np.random.Generator, width: int, height: int, kind: int) -> Image.Image:
    """A smooth gradient from sky to ground with soft clouds of colour in it."""
    import numpy as np
    from PIL import Image

    tints = ((150, 190, 110), (90, 130, 80), (110, 150, 190), (160, 145, 130))
    ground = np.array(tints[kind], dtype=np.float32)
    sky = np.array((185, 205, 230), dtype=np.float32) + rng.uniform(-25, 25, 3).astype(np.float32)
    mix = np.linspace(0, 1, 6, dtype=np.float32)[:, None, None]
    grid = sky * (1 - mix) + ground * mix + rng.normal(0, 22, (6, 6, 3)).astype(np.float32)
    small = Image.fromarray(np.clip(grid, 0, 255).astype(np.uint8))
    return small.resize((width, height), Image.Resampling.BICUBIC)


def _draw_shapes(rng: np.random.Generator, scene: Image.Image, kind: int) -> Image.Image:
    """Things in the scene: those far away out of focus, those near with sharp edges."""
    from PIL import ImageDraw, ImageFilter

    width, height = scene.size
    for sharp in (False, True):
        draw = ImageDraw.Draw(scene)
        for _ in range(int(rng.integers(6, 14))):
            x, y = float(rng.uniform(0, width)), float(rng.uniform(height * 0.25, height))
            w, h = float(rng.uniform(15, 130)), float(rng.uniform(15, 130))
            colour = tuple(int(c) for c in rng.integers(20, 230, 3))
            if (kind + int(rng.integers(3))) % 2:
                draw.ellipse((x - w / 2, y - h / 2, x + w / 2, y + h / 2), fill=colour)
            else:
                skew = float(rng.uniform(-0.4, 0.4)) * w
                draw.polygon([(x, y), (x + w, y + skew), (x + w, y + h), (x, y + h - skew)], fill=colour)
            draw.line((x, y, x + w, y - h), fill=colour, width=int(rng.integers(1, 4)))
        if not sharp:
            scene = scene.filter(ImageFilter.GaussianBlur(float(rng.uniform(3, 7))))
    return scene


def _draw_texture(rng: np.random.Generator, width: int, height: int) -> Plane:
    """Noise of several octaves, in grey levels around 0; contrast falls with frequency, as in nature."""
    import numpy as np

    total = np.zeros((height, width), dtype=np.float32)
    strength = float(rng.uniform(55, 90))
    for octave, cells in enumerate((6, 12, 24, 48, 96, 192)):
        total += np.float32(strength * 0.72**octave) * (_noise(rng, width, height, cells) - np.float32(0.5))
    return total


def _noise(rng: np.random.Generator, width: int, height: int, cells: int) -> Plane:
    """Smooth noise from 0 to about 1 with the given number of cells across; shape (height, width)."""
    import numpy as np
    from PIL import Image

    rows = max(2, round(cells * height / width))
    grid = rng.random((rows, max(2, cells)), dtype=np.float32)
    smooth = Image.fromarray(grid).resize((width, height), Image.Resampling.BICUBIC)
    return np.clip(np.asarray(smooth, dtype=np.float32), 0, 1)

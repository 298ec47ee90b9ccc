"""Values that are read or decoded only when they are used: images that are merely opened, memory maps, HDF5, Zarr.

A plain copy would read them, and the work would move from the stage that does it to the one that copies.
"""

from __future__ import annotations

import io
import mmap
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image, ImageFile

_LAZY_PACKAGES = frozenset(
    ("h5py", "zarr", "dask", "tables", "netCDF4", "xarray", "tensorstore", "pyvips", "decord", "torchcodec")
)


def is_lazy_image(leaf: Any) -> bool:
    """Whether a leaf is an image that has been opened and not decoded."""
    return isinstance(leaf, ImageFile.ImageFile) and bool(getattr(leaf, "tile", None))


def is_mapped(leaf: Any) -> bool:
    """Whether a leaf is an array whose data lies in a file that is mapped into memory."""
    base = leaf
    while isinstance(base, np.ndarray):
        base = base.base
    return isinstance(leaf, np.ndarray) and isinstance(base, mmap.mmap)


def is_shared_map(leaf: Any) -> bool:
    """Whether a leaf is such an array and read-only, so that it needs no copy."""
    return is_mapped(leaf) and not leaf.flags.writeable


def name_lazy(leaf: Any) -> str | None:
    """Name what a leaf is, if it is read or decoded only when it is used."""
    if is_lazy_image(leaf):
        return "an image that is opened and not decoded (PIL)"
    if is_mapped(leaf):
        return "an array in a memory-mapped file (NumPy)"
    package = type(leaf).__module__.partition(".")[0]
    return f"{package}.{type(leaf).__name__}" if package in _LAZY_PACKAGES else None


def reopen(image: Any) -> Any | None:
    """Return an image of the same file that has not been decoded either; None where that cannot be done.

    The bytes of the file are kept in memory, so that no descriptor is; what is left to do is the decoding.
    """
    try:
        content = _content(image)
        if content is None or image.tell():
            return None
        fresh = Image.open(io.BytesIO(content))
        same = type(fresh) is type(image) and fresh.mode == image.mode and fresh.size == image.size
        if not same or fresh.tile != image.tile:  # such as after `draft`
            return None
        fresh.filename = image.filename
    except Exception:  # noqa: BLE001 - any file may have gone
        return None
    return fresh


def _content(image: Any) -> bytes | None:
    file = image.fp
    if isinstance(file, io.BytesIO):
        return file.getvalue()
    path = image.filename or getattr(file, "name", None)
    return Path(path).read_bytes() if isinstance(path, str) and path else None


def same_source(a: Any, b: Any) -> bool:
    """Whether two images that have not been decoded are of the same file."""
    return bool(a.mode == b.mode and a.size == b.size and _content(a) == _content(b))


def lazy_nbytes(leaf: Any) -> int | None:
    """Memory that a lazy value takes; None for anything else."""
    if is_shared_map(leaf):
        return 0
    if is_lazy_image(leaf) and isinstance(leaf.fp, io.BytesIO):
        return leaf.fp.getbuffer().nbytes
    return None


READ_BY_COPY = ""
"""In the place of a stage: the recording had to read the value."""


def warn_of_lazy(found: Iterable[tuple[str, str]]) -> Iterator[tuple[str, str]]:
    """Yield (id, message) for each lazy value that was recorded, and the stage that reads it, or `READ_BY_COPY`."""
    for name, stage in sorted(set(found)):
        if stage == READ_BY_COPY:
            yield (
                "lazy-values",
                f"A sample holds {name}, which cannot be recorded without reading it. What is served from the "
                "recording has been read already: reading or decoding counts as loading, and the gain of the stage "
                "that does it in the job leaves it out. Read it where it is loaded, and measure again.",
            )
        else:
            yield (
                "lazy-values",
                f"A sample holds {name}, which is read or decoded where it is first used: in `{stage}`. There it "
                f"counts, in the job as in the measurement, so that `{stage}` contains work that looks like loading; "
                "what has been read once comes from memory. To see it apart, read it where it is loaded: "
                '`.convert("RGB")` for an image, `np.array(...)` for an array.',
            )

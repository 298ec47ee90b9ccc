"""Bytes that libraries read, decompress and decode for a sample: their well-known functions, watched for a few samples.

Only a library that the worker has imported is watched, and its functions are restored. Reading again what was read
before, such as one row group for many samples, shows as samples that touch nothing.
"""

from __future__ import annotations

import math
import os
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial, wraps
from typing import Any, NamedTuple

import numpy as np
import psutil
import torch

from bottleneck.job import containers
from bottleneck.job.replaced import replace_function


class Touch(NamedTuple):
    """Data that one call of a library made available."""

    nbytes: int = 0
    units: int = 0
    """Rows of a table, frames of a video."""
    kept: int | None = None
    """Bytes of it that the caller asked for; None if only the sample shows how much is kept."""
    opened: str | None = None
    """The path or object that it opened."""


Measure = Callable[[tuple[Any, ...], Any], Touch]
"""From the arguments of a call, and what it returned."""


def _opening(args: tuple[Any, ...], _: Any) -> Touch:
    """Return the touch of a constructor, or of a function that gets what it opens first."""
    return Touch(opened=next((os.fspath(one) for one in args[:2] if isinstance(one, (str, os.PathLike))), None))


def _output(_: tuple[Any, ...], output: Any) -> Touch:
    """Return the touch of a call that returns bytes, an array or a table; a mapped array was opened, but not yet
    read."""
    if isinstance(output, np.memmap):
        return Touch(opened=str(output.filename))
    nbytes = len(output) if isinstance(output, (bytes, bytearray)) else getattr(output, "nbytes", 0)
    return Touch(int(nbytes), int(getattr(output, "num_rows", 0)))


def behind(tensors: Iterable[torch.Tensor]) -> tuple[Touch, dict[int, torch.UntypedStorage]]:
    """Return the touch of tensors, and their storages by address: a view that is saved or sent brings all of its
    storage."""
    kept, storages = 0, {}
    for one in tensors:
        storage, kept = one.untyped_storage(), kept + one.nbytes
        storages[storage.data_ptr()] = storage
    return Touch(sum(storage.nbytes() for storage in storages.values()), kept=kept), storages


def _chunks(args: tuple[Any, ...], output: Any) -> Touch:
    """Return the touch of an array in chunks, each of which is read and decompressed as a whole."""
    (array, wanted), kept = args, int(output.nbytes)
    if not array.chunks:
        return Touch(kept, kept=kept)
    chunk_bytes = math.prod(array.chunks) * array.dtype.itemsize
    unfiltered = getattr(array, "compression", True) is None and not array.shuffle and not array.fletcher32
    if unfiltered and chunk_bytes > _CHUNK_CACHE:  # HDF5 reads only the selection
        return Touch(kept, kept=kept)
    axes = list(wanted) if isinstance(wanted, tuple) else [wanted]
    at = next((number for number, part in enumerate(axes) if part is Ellipsis), len(axes))
    axes[at : at + 1] = [slice(None)] * (len(array.chunks) - len(axes) + (at < len(axes)))
    touched = math.prod(_chunks_of(*axis) for axis in zip(axes, array.shape, array.chunks, strict=True))
    return Touch(touched * chunk_bytes, kept=kept)


def _chunks_of(wanted: Any, length: int, chunk: int) -> int:
    """Return the number of chunks that a selection needs along an axis."""
    if isinstance(wanted, slice):
        indices = range(length)[wanted]
        return abs(indices[-1] // chunk - indices[0] // chunk) + 1 if indices else 0
    found = np.atleast_1d(wanted)
    return int(np.unique((np.flatnonzero(found) if found.dtype == bool else found) % length // chunk).size)


def _frame(_: tuple[Any, ...], output: Any) -> Touch:
    """Return the touch of `VideoCapture`, each of whose calls decodes one frame, or of a packet of PyAV, which holds
    some."""
    if isinstance(output, list):
        return Touch(units=sum(type(one).__name__ == "VideoFrame" for one in output))
    return Touch(units=1 if (output[0] if isinstance(output, tuple) else output) else 0)


_CHUNK_CACHE = 1 << 20
"""Bytes of HDF5's cache of a dataset, unless a file is opened with another."""
_PARQUET = "pyarrow.parquet.core:Parquet"
SOURCES: dict[str, tuple[Measure, str]] = {
    "parquet": (
        _output,
        f"{_PARQUET}File.__init__ {_PARQUET}File.read {_PARQUET}File.read_row_group {_PARQUET}File.read_row_groups "
        f"{_PARQUET}Dataset.read",
    ),
    "hdf5": (_chunks, "h5py:File.__init__ h5py:Dataset.__getitem__"),
    "zarr": (_chunks, "zarr:Array.__getitem__"),
    "nifti": (_output, "nibabel.dataobj_images:DataobjImage.get_fdata nibabel.arrayproxy:ArrayProxy.__array__"),
    "video": (
        _frame,
        "cv2:VideoCapture.read cv2:VideoCapture.grab av:open av.packet:Packet.decode "
        "torchcodec.decoders:VideoDecoder.__init__",
    ),
    "saved-tensors": (lambda _, loaded: behind(tensor for _, tensor in containers.tensors(loaded))[0], "torch:load"),
    "archive": (_output, "zipfile:ZipFile.__init__ tarfile:TarFile.__init__ tarfile:TarFile.getmember"),
    "compressed": (
        _output,
        # The readers below also unpack skipped data.
        "gzip:_GzipReader.read _compression:DecompressReader.read compression._common._streams:DecompressReader.read "
        "gzip:GzipFile.read gzip:GzipFile.read1 gzip:decompress zlib:decompress bz2:BZ2File.read lzma:LZMAFile.read "
        "zipfile:ZipExtFile.read",
    ),
    "array-file": (_output, "numpy:load"),
    "image": (_output, "cv2:imread cv2:imdecode torchvision.io.image:decode_image torchvision.io.image:decode_jpeg"),
}
"""Place where advice finds its remedy -> kind of touch, unless the call opens something, and the functions that are
watched. Of several that explain the same time, the first explains it best."""
READ, VIEWS = "read", "views"
"""The source that is all bytes that the process has read; and that which is sent behind the tensors of a batch."""


@dataclass
class Touched:
    """Data that calls of one source touched together; `names` of what `opens` of them opened."""

    calls: int = 0
    nbytes: int = 0
    units: int = 0
    seconds: float = 0.0
    opening_s: float = 0.0
    kept: int | None = None
    opens: int = 0
    names: set[str] = field(default_factory=set)

    def add(self, touch: Touch, seconds: float) -> None:
        self.calls += 1
        self.nbytes += touch.nbytes
        self.units += touch.units
        self.seconds += seconds
        if touch.kept is not None:
            self.kept = (self.kept or 0) + touch.kept
        if touch.opened is not None:
            self.opens += 1
            self.opening_s += seconds
            self.names.add(touch.opened)


class Touches:
    """Counts the data touched while the user's code runs.

    Args:
        stage: Gives the stage that is at work.
    """

    def __init__(self, stage: Callable[[], str], clock: Callable[[], float] = time.perf_counter) -> None:
        self._stage = stage
        self._clock = clock
        self._active = False
        self._within: set[tuple[str, int]] = set()
        """Sources at work, with the thread: what they call of themselves is part of the same."""
        self.found: dict[tuple[str, str], Touched] = {}
        """(Source, stage) -> what was touched."""

    @contextmanager
    def counting(self) -> Iterator[None]:
        """Count inside the block, beginning with nothing."""
        self.found = {}
        with ExitStack() as replaced:
            for source, (measure, places) in SOURCES.items():
                for place in places.split():
                    # Libraries may refuse, and be of versions that have no such function.
                    with suppress(AttributeError, KeyError, TypeError):
                        replaced.callback(self._replace(source, place, measure))
            self._active = True
            try:
                yield
            finally:
                self._active = False

    def _replace(self, source: str, place: str, measure: Measure) -> Callable[[], None]:
        """Replace a function of a library by one that counts; return a function that restores it."""
        module, _, path = place.partition(":")
        owner, name = sys.modules[module], path.rpartition(".")[2]
        for part in path.split(".")[:-1]:
            owner = getattr(owner, part)
        if name not in vars(owner):  # a class in C cannot do without it again
            raise AttributeError(name)
        measure = _opening if name in ("__init__", "open") else measure
        return replace_function(owner, name, partial(self._counted, source, measure))

    def _counted(self, source: str, measure: Measure, original: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(original)
        def counted(*args: Any, **kwargs: Any) -> Any:
            key = source, threading.get_ident()
            if not self._active or key in self._within:  # kept somewhere by the user's code; or called by its like
                return original(*args, **kwargs)
            self._within.add(key)
            try:
                began_s = self._clock()
                output = original(*args, **kwargs)
                passed_s = self._clock() - began_s
            finally:
                self._within.discard(key)
            with suppress(Exception):  # an output of another form than expected
                self.found.setdefault((source, self._stage()), Touched()).add(measure(args, output), passed_s)
            return output

        return counted


def read_bytes() -> int | None:
    """Return how many bytes this process has read so far, of files in memory too; None if that is unknown."""
    try:
        return int(psutil.Process().io_counters().read_chars)
    except (psutil.Error, OSError, AttributeError):
        return None

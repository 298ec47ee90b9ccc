"""What libraries read, decompress and decode for a sample: their well-known functions, watched for a few samples.

Only a library that the worker has imported is watched, and what was replaced is put back. Reading again what was read
before, such as one row group for many samples, shows as samples that touch nothing.
"""

from __future__ import annotations

import math
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import wraps
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from bottleneck.job import containers


class Touch(NamedTuple):
    """What one call of a library made available."""

    nbytes: int = 0
    units: int = 0
    """Rows of a table, frames of a video."""
    kept: int | None = None
    """Bytes of it that the caller asked for; None where only the sample shows what is kept."""
    opened: str | None = None
    """What it opened."""


Measure = Callable[[tuple[Any, ...], dict[str, Any], Any], Touch]
"""From the arguments of a call, and what it returned."""


def _opening(args: tuple[Any, ...], kwargs: dict[str, Any], _: Any) -> Touch:
    """Of a constructor, which gets what it opens first."""
    opened = args[1] if len(args) > 1 else next(iter(kwargs.values()), None)
    return Touch(opened=os.fspath(opened) if isinstance(opened, (str, os.PathLike)) else None)


def _output(_: tuple[Any, ...], __: dict[str, Any], output: Any) -> Touch:
    """Of what returns bytes, an array or a table; a mapped array has read nothing yet."""
    if isinstance(output, np.memmap):
        return Touch()
    nbytes = len(output) if isinstance(output, (bytes, bytearray)) else getattr(output, "nbytes", 0)
    return Touch(int(nbytes), int(getattr(output, "num_rows", 0)))


def _storage(_: tuple[Any, ...], __: dict[str, Any], output: Any) -> Touch:
    """Of loaded tensors: a saved view brings all of its storage."""
    storages, kept = {}, 0
    for _path, tensor in containers.tensors(output):
        storage = tensor.untyped_storage()
        storages[storage.data_ptr()] = storage.nbytes()
        kept += tensor.numel() * tensor.element_size()
    return Touch(sum(storages.values()), kept=kept)


def _chunks(args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> Touch:
    """Of an array in chunks, each of which is read and decompressed as a whole."""
    array, wanted = args[0], args[1] if len(args) > 1 else kwargs.get("selection")
    chunks, kept = array.chunks, int(getattr(output, "nbytes", 0))
    if not chunks or not array.dtype.itemsize:
        return Touch(kept, kept=kept)
    wanted = list(wanted) if isinstance(wanted, tuple) else [wanted]
    if Ellipsis in [part for part in wanted if part is Ellipsis]:
        at = next(number for number, part in enumerate(wanted) if part is Ellipsis)
        wanted[at : at + 1] = [slice(None)] * (len(chunks) - len(wanted) + 1)
    wanted += [slice(None)] * (len(chunks) - len(wanted))
    touched = [_chunks_of(*axis) for axis in zip(wanted, array.shape, chunks, strict=True)]
    return Touch(math.prod(touched) * math.prod(chunks) * array.dtype.itemsize, kept=kept)


def _chunks_of(wanted: Any, length: int, chunk: int) -> int:
    """How many chunks a selection needs along an axis."""
    if isinstance(wanted, slice):
        indices: Any = range(*wanted.indices(length))
        return 0 if not indices else abs(indices[-1] // chunk - indices[0] // chunk) + 1
    indices = np.asarray(wanted)
    indices = np.flatnonzero(indices) if indices.dtype == bool else np.atleast_1d(indices)
    return int(np.unique((indices % length) // chunk).size)


def _frame(_: tuple[Any, ...], __: dict[str, Any], output: Any) -> Touch:
    """Of `VideoCapture`, each of whose calls decodes a frame, if it is one."""
    found = output[0] if isinstance(output, tuple) else output
    return Touch(units=1 if found else 0)


_UNPACK: dict[str, Measure] = {
    "gzip:GzipFile.read": _output,
    "gzip:GzipFile.read1": _output,
    "gzip:decompress": _output,
    "zlib:decompress": _output,
    "bz2:BZ2File.read": _output,
    "lzma:LZMAFile.read": _output,
    "zipfile:ZipExtFile.read": _output,
}
SOURCES: dict[str, dict[str, Measure]] = {
    "parquet": {
        "pyarrow.parquet.core:ParquetFile.__init__": _opening,
        "pyarrow.parquet.core:ParquetFile.read": _output,
        "pyarrow.parquet.core:ParquetFile.read_row_group": _output,
        "pyarrow.parquet.core:ParquetFile.read_row_groups": _output,
        "pyarrow.parquet.core:ParquetDataset.read": _output,
    },
    "hdf5": {"h5py:File.__init__": _opening, "h5py:Dataset.__getitem__": _chunks},
    "zarr": {"zarr:Array.__getitem__": _chunks},
    "nifti": {
        "nibabel.dataobj_images:DataobjImage.get_fdata": _output,
        "nibabel.arrayproxy:ArrayProxy.__array__": _output,
    },
    "video": {
        "cv2:VideoCapture.read": _frame,
        "cv2:VideoCapture.grab": _frame,
        "torchcodec.decoders:VideoDecoder.__init__": _opening,
    },
    "saved-tensors": {"torch:load": _storage},
    "archive": {
        "zipfile:ZipFile.__init__": _opening,
        "tarfile:TarFile.__init__": _opening,
        "tarfile:TarFile.getmember": lambda *_: Touch(),
    },
    "compressed": _UNPACK,
    "array-file": {"numpy:load": _output},
}
"""What is watched: where advice finds its remedy -> module and function -> what a call of it touches. Of several that
explain the same time, the first does it best."""
READ = "read"
"""The source that is all bytes that the process has read."""


@dataclass
class Touched:
    """What calls of one source touched.

    Attributes:
        kept: Bytes of it that the callers asked for; None where only the sample shows what is kept.
        opens: Calls that opened something.
        names: What they opened.
    """

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
    """Counts what is touched while the user's code runs.

    Args:
        stage: Gives the stage that is at work.
    """

    def __init__(self, stage: Callable[[], str], clock: Callable[[], float] = time.perf_counter) -> None:
        self._stage, self._clock = stage, clock
        self._active = False
        self._within: set[tuple[str, int]] = set()
        """Sources at work, with the thread: what they call of themselves is part of the same."""
        self.found: dict[tuple[str, str], Touched] = {}
        """(Source, stage) -> what was touched."""

    @contextmanager
    def counting(self) -> Iterator[None]:
        """Count inside the block, beginning with nothing."""
        self.found = {}
        replaced: list[tuple[Any, str, Any]] = []
        try:
            for source, calls in SOURCES.items():
                for place, measure in calls.items():
                    # Libraries may refuse, and be of versions that have no such function.
                    with suppress(AttributeError, KeyError, TypeError):
                        replaced.append(self._replace(source, place, measure))
            self._active = True
            yield
        finally:
            self._active = False
            for owner, name, original in reversed(replaced):
                setattr(owner, name, original)

    def _replace(self, source: str, place: str, measure: Measure) -> tuple[Any, str, Any]:
        """Put a counting function in front of one of a library; return what puts it back."""
        module, _, path = place.partition(":")
        *outer, name = path.split(".")
        owner: Any = sys.modules[module]
        for part in outer:
            owner = getattr(owner, part)
        original = vars(owner)[name]  # what is inherited cannot be put back as it was
        if not callable(original):
            raise TypeError
        setattr(owner, name, self._counted(source, original, measure))
        return owner, name, original

    def _counted(self, source: str, original: Callable[..., Any], measure: Measure) -> Callable[..., Any]:
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
                self.found.setdefault((source, self._stage()), Touched()).add(measure(args, kwargs, output), passed_s)
            return output

        return counted


def read_bytes(path: Path = Path("/proc/self/io")) -> int | None:
    """Return how many bytes this process has read so far, of files in memory too; None where that is unknown."""
    try:
        fields = dict(line.split(b": ") for line in path.read_bytes().splitlines())
        return int(fields[b"rchar"])
    except (OSError, ValueError, KeyError):
        return None

"""Times that pass in each stage and in each single transform, gathered by the pass of observation.

Wall-clock time and CPU time are taken together. What passes on the wall's clock and on no core of the process is
waiting: for a disk, the network, a lock.
"""

from __future__ import annotations

import gc
import math
import sys
import time
import zlib
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from PIL import Image

from bottleneck.loader import trees
from bottleneck.loader.network import NetworkSpent
from bottleneck.loader.recording.copies import bytes_of

_MAX_LEAVES = 64
MAX_CLOCKED = 256
"""Batches whose stages are kept one by one."""
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


MAX_OUTPUTS, _MAX_DATA_BYTES = 1024, 1 << 26
"""Samples whose data is compared, and the most bytes of one."""


class SampleData(NamedTuple):
    """A checksum of the data that a sample is made of, or consists of."""

    index: Any
    stage: str
    """The stage that gave the data; empty for a sample."""
    nbytes: int
    checksum: int


class OutputNotes:
    """Compares the samples of one worker, in the order in which they are made."""

    def __init__(self) -> None:
        self.begin(None)

    def begin(self, index: Any) -> None:
        """Begin the sample of an index; None for data that has none, which is not compared."""
        self._index = index
        self._loaded: set[tuple[int, int] | None] = set()
        """Size and checksum of all data that was loaded; None for some that is read later."""

    def see_loaded(self, *values: Any) -> None:
        """Note what was loaded, or goes into the augmentation, which often is the same."""
        if isinstance(self._index, (int, str)):
            self._loaded.add(_size_and_checksum(list(values)))

    def end(self, value: Any) -> list[SampleData]:
        """Return the data that the sample was made of; that of the sample itself if none is known."""
        index, found, stage = self._index, self._loaded, "load"
        self.begin(None)
        if not isinstance(index, (int, str)):
            return []
        if not found or None in found:
            found, stage = {_size_and_checksum(value)}, ""
        known = sorted(one for one in found if one is not None)
        return [SampleData(index, stage, sum(size for size, _ in known), hash(tuple(known)))] if known else []


def _size_and_checksum(value: Any) -> tuple[int, int] | None:
    """Return the size of data in bytes, and a checksum; None for much, or for some that is read or decoded later."""
    if trees.nbytes(value) > _MAX_DATA_BYTES:
        return None
    checksum = nbytes = 0
    for leaf in trees.leaves(value):
        content = bytes_of(leaf)
        if not len(content):
            return None
        checksum, nbytes = zlib.crc32(content, checksum), nbytes + len(content)
    return nbytes, checksum


def _leaves(value: Any) -> Iterator[Any]:
    return islice(trees.leaves(value), _MAX_LEAVES)


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


def _is_decoded(leaf: Any) -> bool:
    return isinstance(leaf, Image.Image) or (isinstance(leaf, (torch.Tensor, np.ndarray)) and _is_bytes(leaf))


def _is_bytes(leaf: Any) -> bool:
    return str(leaf.dtype).removeprefix("torch.") == "uint8"


_MAX_OUTPUTS = 16
"""Different sizes of a transform's output that are counted separately."""


@dataclass
class Spent:
    """Time that has passed somewhere."""

    wall_s: float = 0.0
    cpu_s: float = 0.0
    """CPU time of all threads of the process."""

    def add(self, other: Spent) -> None:
        self.wall_s += other.wall_s
        self.cpu_s += other.cpu_s


@dataclass
class TransformSpent(Spent):
    """Time that has passed in a single transform."""

    name: str = ""
    order: int = 0
    """Its place among all of them, in the order in which they are kept."""
    calls: int = 0
    outputs: Counter[str] = field(default_factory=Counter)
    """Size and type of what it returned -> how often."""

    def note_output(self, value: Any) -> None:
        shape = describe_output(value)
        if shape in self.outputs or len(self.outputs) < _MAX_OUTPUTS:
            self.outputs[shape] += 1

    def add(self, other: Spent) -> None:
        super().add(other)
        if isinstance(other, TransformSpent):
            self.calls += other.calls
            self.outputs += other.outputs


_MANY_BLOCKS = 2_000_000
"""A process that has only imported what trains holds some 700,000."""


@dataclass
class Collections:
    """Garbage collections of Python's, of all objects, while batches are made.

    Attributes:
        count: How many.
        shortest_s: What one takes: the first copies the pages that a forked process shares.
        objects: What they go through; 0: there was none. To count them touches each, as a collection does.
        blocks: Pieces of memory that Python holds for objects, which takes no time to know.
    """

    count: int = 0
    shortest_s: float = math.inf
    objects: int = 0
    blocks: int = 0

    def add(self, other: Collections) -> None:
        self.count += other.count
        self.shortest_s = min(self.shortest_s, other.shortest_s)
        self.objects = max(self.objects, other.objects)
        self.blocks = max(self.blocks, other.blocks)

    @property
    def missing(self) -> bool:
        """True if one takes long, because there are many objects, and none was seen."""
        return self.blocks > _MANY_BLOCKS and not self.count


class CollectionWatch:
    """Times garbage collections of all objects of this process between `start` and `stop`.

    Args:
        see: Called after each with the seconds that it took.
    """

    def __init__(self, see: Callable[[float], None], clock: Callable[[], float] = time.perf_counter) -> None:
        self._see = see
        self._clock = clock
        self._began_s = 0.0

    def start(self) -> None:
        self.stop()
        gc.callbacks.append(self._note)

    def stop(self) -> None:
        with suppress(ValueError):
            gc.callbacks.remove(self._note)

    def _note(self, phase: str, info: dict[str, Any]) -> None:
        if info["generation"] >= _OLD and phase == "start":
            self._began_s = self._clock()
        elif info["generation"] >= _OLD:
            self._see(self._clock() - self._began_s)


class CollectionCount:
    """Counts them while everything is real, by Python's own counter: nothing runs but at a switch of the mode."""

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self._clock = clock
        self._begun: tuple[int, float] | None = None
        self.count = 0
        self.seconds = 0.0

    def switch(self, *, real: bool) -> None:
        now = sum(generation["collections"] for generation in gc.get_stats()[_OLD:]), self._clock()
        if self._begun is not None:
            self.count = self.count + now[0] - self._begun[0]
            self.seconds = self.seconds + now[1] - self._begun[1]
        self._begun = now if real else None


_OLD = 1 if sys.version_info[:2] == (3, 14) else 2
"""The youngest generation whose collections go through objects that have lived for long: in 3.14 through some."""


class Line(NamedTuple):
    """A line of the code that makes batches, and what it calls."""

    file: str
    line: int
    function: str
    calls: str | None
    """Module and function right below it; None if that is code in C."""
    library: bool
    """It is not a line of the user's code: none of those is at work."""


class Site(NamedTuple):
    """A line of the user's code that makes an object."""

    file: str
    line: int
    name: str
    """Class of the object, or module and function that makes it."""


@dataclass
class Constructed(Spent):
    """Time in which a line made its object, with all that the constructor calls."""

    parts: int = 0
    """Items, or collations, in which a sample of the thread saw it."""
    same: bool = True
    """True if each sample saw the arguments of the first one."""

    def add(self, other: Spent) -> None:
        super().add(other)
        if isinstance(other, Constructed):
            self.parts += other.parts
            self.same &= other.same


@dataclass
class Observation:
    """Measurements of whole batches.

    Attributes:
        workers: That it comes from; 1 in the main process.
        core_wait_s: Time for which the process was ready to work and had no core; None if unknown.
        stages: Time in each stage, without that of other stages inside it.
        transforms: (stage, place) -> the single transform there.
        lines: (stage, line) -> time of the samples that saw the thread there.
        constructed: (stage, site) -> objects that are made there.
        outputs: Data of some samples, in the order in which a worker made them.
        sampled: Stage -> items, or collations, in which a sample saw the thread there.
        elsewhere: Places whose transforms were called in the user's threads, which are not timed.
        clocked: For each of some batches, the seconds in each stage.
    """

    workers: int = 0
    batches: int = 0
    samples: int = 0
    core_wait_s: float | None = 0.0
    stages: dict[str, Spent] = field(default_factory=dict)
    transforms: dict[tuple[str, str], TransformSpent] = field(default_factory=dict)
    lines: dict[tuple[str, Line], Spent] = field(default_factory=dict)
    constructed: dict[tuple[str, Site], Constructed] = field(default_factory=dict)
    sampled: Counter[str] = field(default_factory=Counter)
    outputs: list[SampleData] = field(default_factory=list)
    elsewhere: set[str] = field(default_factory=set)
    pixels: Pixels = field(default_factory=Pixels)
    collections: Collections = field(default_factory=Collections)
    network: NetworkSpent = field(default_factory=NetworkSpent)
    clocked: list[dict[str, float]] = field(default_factory=list)

    def add(self, other: Observation, named: Callable[[str], str] = str) -> None:
        """Add another one; its stages get the names that a function gives them."""
        self.batches += other.batches
        self.samples += other.samples
        known = self.core_wait_s is not None and other.core_wait_s is not None
        self.core_wait_s = (self.core_wait_s or 0.0) + (other.core_wait_s or 0.0) if known else None
        for stage, spent in other.stages.items():
            self.stages.setdefault(named(stage), Spent()).add(spent)
        for (stage, place), found in other.transforms.items():
            known_as = TransformSpent(name=found.name, order=found.order)
            self.transforms.setdefault((named(stage), place), known_as).add(found)
        for (stage, line), passed in other.lines.items():
            self.lines.setdefault((named(stage), line), Spent()).add(passed)
        for (stage, site), spent_there in other.constructed.items():
            self.constructed.setdefault((named(stage), site), Constructed()).add(spent_there)
        for stage, parts in other.sampled.items():
            self.sampled[named(stage)] += parts
        self.outputs += other.outputs[: max(0, MAX_OUTPUTS - len(self.outputs))]
        self.elsewhere |= other.elsewhere
        self.pixels.add(other.pixels)
        self.collections.add(other.collections)
        self.network.add(other.network, named)
        for batch in other.clocked[: max(0, MAX_CLOCKED - len(self.clocked))]:
            made: Counter[str] = Counter()
            for stage, seconds in batch.items():
                made[named(stage)] += seconds  # type: ignore[assignment]
            self.clocked.append(dict(made))


def _core_wait_s() -> float | None:
    """Return for how long the calling thread has been ready to run and has had no core; None if unknown."""
    try:
        fields = Path("/proc/thread-self/schedstat").read_text().split()
        return int(fields[1]) * 1e-9
    except (OSError, ValueError, IndexError):
        return None


@dataclass(frozen=True)
class Clocks:
    """Sources of the times; each gives seconds from any beginning."""

    wall: Callable[[], float] = time.perf_counter
    cpu: Callable[[], float] = time.process_time
    core_wait: Callable[[], float | None] = _core_wait_s


class Meter:
    """Charges the time that passes to a stage, and within it to a single transform."""

    def __init__(self, clocks: Clocks) -> None:
        self._clocks = clocks
        self._now: tuple[Spent, TransformSpent | None] = Spent(), None
        self._last = Spent()

    def enter(self, stage: Spent, transform: TransformSpent | None = None) -> tuple[Spent, TransformSpent | None]:
        """Charge what has passed so far, and from now on something else; return what was charged until now."""
        self._charge()
        before, self._now = self._now, (stage, transform)
        self._last = self._read()
        return before

    @contextmanager
    def uncharged(self) -> Iterator[None]:
        self._charge()
        yield
        self._last = self._read()

    def note_output(self, value: Any) -> None:
        """Note what a transform returned, in time that is left out."""
        self._charge()
        transform = self._now[1]
        if transform is not None:
            transform.note_output(value)
        self._last = self._read()

    def _read(self) -> Spent:
        return Spent(self._clocks.wall(), self._clocks.cpu())

    def _charge(self) -> None:
        now = self._read()
        passed = Spent(max(0.0, now.wall_s - self._last.wall_s), max(0.0, now.cpu_s - self._last.cpu_s))
        for charged in self._now:
            if charged is not None:
                Spent.add(charged, passed)


def describe_output(value: Any) -> str:
    """Return size and type of what a transform returned: of the first image or array in it, or else of the whole."""
    for leaf in islice(trees.leaves(value), _MAX_LEAVES):
        if isinstance(leaf, Image.Image):
            return f"{leaf.width}x{leaf.height} {leaf.mode}"
        if isinstance(leaf, (torch.Tensor, np.ndarray)):
            shape = "x".join(str(size) for size in leaf.shape)
            return f"{shape} {str(leaf.dtype).removeprefix('torch.')}".strip()
    return type(value).__name__

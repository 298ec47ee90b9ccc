"""Make batches for real, and see where the time goes: in which stage, and in which single transform.

Wall-clock time and CPU time are taken together. What passes on the wall's clock and on no core of the process is
waiting: for a disk, the network, a lock.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

import numpy as np
import torch
from PIL import Image

from bottleneck.job.marks import is_mark, name_of
from bottleneck.loader import trees
from bottleneck.loader.calls import Function, Tape, read_core_wait_s
from bottleneck.loader.control import Control
from bottleneck.loader.cut import Timers, find_places
from bottleneck.loader.plan import Plan
from bottleneck.loader.user_code import SKIPPED, UserCode, Work

_MOST_LEAVES = 64
_CHANNELS = (1, 3, 4)


@dataclass
class Pixels:
    """What was found of the images of some samples.

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
        """Return what was found in an item of that many samples."""
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


_MOST_OUTPUTS = 16
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
        if shape in self.outputs or len(self.outputs) < _MOST_OUTPUTS:
            self.outputs[shape] += 1

    def add(self, other: Spent) -> None:
        super().add(other)
        if isinstance(other, TransformSpent):
            self.calls += other.calls
            self.outputs += other.outputs


@dataclass
class Observation:
    """What was measured of whole batches.

    Attributes:
        workers: That it comes from; 1 in the main process.
        core_wait_s: Time for which the process was ready to work and had no core; None where that is unknown.
        stages: Time in each stage, without that of other stages inside it.
        transforms: (stage, place) -> the single transform there.
        elsewhere: Places whose transforms were called in threads of the user's, where they are not timed.
    """

    workers: int = 0
    batches: int = 0
    samples: int = 0
    core_wait_s: float | None = 0.0
    stages: dict[str, Spent] = field(default_factory=dict)
    transforms: dict[tuple[str, str], TransformSpent] = field(default_factory=dict)
    elsewhere: set[str] = field(default_factory=set)
    pixels: Pixels = field(default_factory=Pixels)

    def add(self, other: Observation) -> None:
        self.batches += other.batches
        self.samples += other.samples
        known = self.core_wait_s is not None and other.core_wait_s is not None
        self.core_wait_s = (self.core_wait_s or 0.0) + (other.core_wait_s or 0.0) if known else None
        for stage, spent in other.stages.items():
            self.stages.setdefault(stage, Spent()).add(spent)
        for key, found in other.transforms.items():
            self.transforms.setdefault(key, TransformSpent(name=found.name, order=found.order)).add(found)
        self.elsewhere |= other.elsewhere
        self.pixels.add(other.pixels)


@dataclass(frozen=True)
class Clocks:
    """Where the times come from; each gives seconds from any beginning."""

    wall: Callable[[], float] = time.perf_counter
    cpu: Callable[[], float] = time.process_time
    core_wait: Callable[[], float | None] = read_core_wait_s


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
    for leaf in islice(trees.leaves(value), _MOST_LEAVES):
        if isinstance(leaf, Image.Image):
            return f"{leaf.width}x{leaf.height} {leaf.mode}"
        if isinstance(leaf, (torch.Tensor, np.ndarray)):
            shape = "x".join(str(size) for size in leaf.shape)
            return f"{shape} {str(leaf.dtype).removeprefix('torch.')}".strip()
    return type(value).__name__


RunIn = Callable[[str, Function, tuple[Any, ...], dict[str, Any]], Any]
"""Calls a function in a stage."""
_BASE_STAGES = {"template": "load", "marks": "other", "fetch": "fetch"}


class StageCalls:
    """The calls of one piece of work, such as an item, in the thread that does it; of marks, only those given count."""

    def __init__(self, tape: Tape, plan: Plan, marked: Iterable[str] = ()) -> None:
        self._tape, self._plan, self._marked = tape, plan, frozenset(marked)
        self._thread = threading.get_ident()
        self.inside_cut = False
        """A cut that is no marked stage is at work; what it calls belongs to it."""

    @property
    def elsewhere(self) -> bool:
        """Whether this is another thread: what it does cannot be separated from the rest."""
        return threading.get_ident() != self._thread

    def run(self, site: str, run_in: RunIn, function: Function, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Call what stands at a site, in the stage that it belongs to."""
        stage = self.stage_of(site)
        if stage is None:
            return function(*args, **kwargs)
        if is_mark(site):
            return run_in(stage, function, args, kwargs)
        self.inside_cut = True
        try:
            return run_in(stage, function, args, kwargs)
        finally:
            self.inside_cut = False

    def stage_of(self, site: str) -> str | None:
        """The stage that a call belongs to; None if it belongs to the one at work."""
        if self.elsewhere:
            return None
        if is_mark(site):
            return name_of(site) if site in self._marked else None
        return None if self.inside_cut or site not in self._plan.sites else self._tape.stage(site)


def base_stage(plan: Plan) -> str:
    """Return the stage of the code outside all cuts."""
    return _BASE_STAGES.get(plan.strategy, plan.within_sample[0])


ENOUGH_S = 2.0
"""Time of whole batches after which a worker observes no more."""

Roots = Callable[[], list[tuple[str, Any]]]
"""Gives the callables at which the dataset could be cut, by name."""


class Observer(Work):
    """Observes the batches of one worker; nothing of it is timed by the main process."""

    def __init__(
        self, user_code: UserCode, tape: Tape, control: Control, roots: Roots, clocks: Clocks | None = None
    ) -> None:
        self._user_code, self._tape, self._control, self._roots = user_code, tape, control, roots
        self._clocks = clocks or Clocks()
        self._meter = Meter(self._clocks)
        self._members = Tape()
        self._timers: Timers | None = None
        self._single: dict[str, str] = {}
        self._names: dict[str, str] = {}
        self._order: dict[str, int] = {}
        self._total = Observation(workers=1)
        self._open = Observation()
        """The batch that is being made."""
        self._core_wait_s: float | None = None
        self.plan = Plan("fetch")
        """How the dataset is cut."""
        self._stage = ""
        """The stage that is at work."""
        self._calls = StageCalls(tape, self.plan)
        self._pixels = PixelNotes()

    # --- batches -------------------------------------------------------------------------------------------

    @property
    def has_seen_enough(self) -> bool:
        """Whether a further batch is not worth its time; where one takes many seconds, a single one has to do."""
        return sum(spent.wall_s for spent in self._total.stages.values()) >= ENOUGH_S

    def fetch(self, request: Any) -> Any:
        """Fetch as the loader does, as long as more is to be measured; it begins a batch."""
        user_code = self._user_code
        if self.has_seen_enough:
            return SKIPPED
        self._begin()
        if not user_code.batched:
            return self._item(user_code.item, request)
        if user_code.fetches_batches:
            return self._item(user_code.batch, request, samples=len(request))
        return [self._item(user_code.item, index) for index in request]

    def next_items(self) -> list[Any]:
        if self.has_seen_enough:
            return [SKIPPED]
        if not self._open.samples:
            self._begin()
        return [self._item(self._user_code.next_item, None)]

    def collate(self, samples: Any) -> Any:
        """Collate the samples that were just fetched, and keep what was measured of the batch."""
        # A stream's batch may have been begun before the observation was.
        whole = not self._user_code.iterable or self._open.samples == (len(samples) if self._user_code.batched else 1)
        with self._observing("collate", self.plan.marks.collate):
            batch = self._user_code.collate(samples)
        if whole and self._open.samples:
            self._open.batches = 1
            ended_s = self._clocks.core_wait()
            begun_s = self._core_wait_s
            self._open.core_wait_s = None if ended_s is None or begun_s is None else ended_s - begun_s
            self._total.add(self._open)
            self._control.observations.write(self._user_code.number, self._total)
        self.drop()
        return batch

    def drop(self) -> None:
        self._open = Observation()

    def _begin(self) -> None:
        if self._timers is None:
            places, self._single = find_places(self._roots())
            self._names = {place.place: place.name for place in places} | self._single
            self._order = {place: number for number, place in enumerate(self._names)}
            self._timers = Timers(places, self._members)
        self.drop()
        self._core_wait_s = self._clocks.core_wait()

    def _item(self, run: Callable[[Any], Any], request: Any, samples: int = 1) -> Any:
        with self._observing(base_stage(self.plan), self.plan.marks.sample):
            self._pixels.begin()
            value = run(request)
        self._open.samples += samples
        self._open.pixels.add(self._pixels.end(value, samples))
        return value

    # --- while the user's code runs ------------------------------------------------------------------------

    @contextmanager
    def _observing(self, stage: str, marked: tuple[str, ...]) -> Iterator[None]:
        """Charge what passes inside the block to a stage and those inside it."""
        assert self._timers is not None
        self._stage, self._calls = stage, StageCalls(self._tape, self.plan, marked)
        with self._timers.installed(), self._tape.answered_by(self._answer):
            self._members.handler = self._answer_transform
            before = self._meter.enter(self._spent(stage))
            try:
                yield
            finally:
                self._meter.enter(*before)
                self._members.handler = None

    def _spent(self, stage: str) -> Spent:
        return self._open.stages.setdefault(stage, Spent())

    def _answer(self, site: str, function: Function, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        calls = self._calls
        if not (is_mark(site) or calls.elsewhere):
            if self._tape.stage(site) == "augment" and not calls.inside_cut:
                with self._meter.uncharged():
                    self._pixels.see_loaded(args, kwargs)
            if site in self._single:
                function, args, kwargs = self._answer_transform, (site, function, args, kwargs), {}
        return calls.run(site, self._run_in, function, args, kwargs)

    def _run_in(self, stage: str, function: Function, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        outer, self._stage = self._stage, stage
        before = self._meter.enter(self._spent(stage))
        try:
            return function(*args, **kwargs)
        finally:
            self._meter.enter(*before)
            self._stage = outer

    def _answer_transform(self, place: str, function: Function, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if self._calls.elsewhere:
            self._open.elsewhere.add(place)
            return function(*args, **kwargs)
        spent = self._open.transforms.get((self._stage, place))
        if spent is None:
            spent = TransformSpent(name=self._names[place], order=self._order[place])
            self._open.transforms[self._stage, place] = spent
        spent.calls += 1
        with self._meter.uncharged():
            self._pixels.see_transformed(args, kwargs)
        before = self._meter.enter(self._spent(self._stage), spent)
        try:
            output = function(*args, **kwargs)
            self._meter.note_output(output)
            return output
        finally:
            self._meter.enter(*before)

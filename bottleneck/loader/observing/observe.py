"""Make batches for real, and see in which stage the time goes: by clocks, or by frames that a profiler sees."""

from __future__ import annotations

import gc
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from types import FrameType, FunctionType
from typing import Any
from urllib.parse import quote, unquote

from bottleneck.job.marks import is_mark, name_of
from bottleneck.loader.calls import Function, Tape
from bottleneck.loader.control import Control
from bottleneck.loader.cut import Timers, find_places
from bottleneck.loader.observing import images, meter, outputs
from bottleneck.loader.observing.constructions import Constructions, stack_below
from bottleneck.loader.observing.garbage import Collections, CollectionWatch
from bottleneck.loader.observing.images import PixelNotes
from bottleneck.loader.observing.lines import LineSampler, line_of
from bottleneck.loader.observing.meter import Clocks, Meter, Spent, TransformSpent
from bottleneck.loader.observing.network import NetworkWatch
from bottleneck.loader.observing.observation import Observation
from bottleneck.loader.observing.outputs import OutputNotes
from bottleneck.loader.recording.plan import Plan
from bottleneck.loader.user_code import SKIPPED, UserCode, Work

_BASE_STAGES = {"template": "load", "marks": "other", "fetch": "fetch"}


class Watching(Work):
    """Runs the user's code, and each call of a cut or mark in the stage that it belongs to."""

    def __init__(self, user_code: UserCode, tape: Tape) -> None:
        self._user_code = user_code
        self._tape = tape
        self.plan = Plan("fetch")
        """The way in which the dataset is cut."""
        self._begin_part(())

    def _begin_part(self, marked: tuple[str, ...]) -> None:
        """Begin an item, or the collation, in the thread that does it; of marks, only those given count there."""
        self._marked = marked
        self._thread = threading.get_ident()
        self._inside_cut = False
        """A cut that is no marked stage is at work; what it calls belongs to it."""

    @property
    def _base_stage(self) -> str:
        """The stage of the code outside all cuts."""
        return _BASE_STAGES.get(self.plan.strategy, self.plan.within_sample[0])

    @property
    def _elsewhere(self) -> bool:
        """Return True in another thread: its work cannot be separated from the rest."""
        return threading.get_ident() != self._thread

    def _stage_of(self, site: str) -> str | None:
        """The stage that a call belongs to; None if it belongs to the one at work."""
        if self._elsewhere:
            return None
        if is_mark(site):
            return name_of(site) if site in self._marked else None
        return None if self._inside_cut or site not in self.plan.sites else self._tape.stage(site)

    def _answer(self, site: str, function: Function, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        stage = self._stage_of(site)
        if stage is None:
            return function(*args, **kwargs)
        if is_mark(site):
            return self._run_in(stage, function, args, kwargs)
        self._inside_cut = True
        try:
            return self._run_in(stage, function, args, kwargs)
        finally:
            self._inside_cut = False

    def _run_in(self, stage: str, function: Function, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        raise NotImplementedError


ENOUGH_S = 1.0
"""Time of whole batches after which a worker observes no more."""
LONGER = 4
"""Times as long where a collection of garbage takes long, and none was seen yet."""

Roots = Callable[[], list[tuple[str, Any]]]
"""Gives the callables at which the dataset could be cut, by name."""


class Observer(Watching):
    """Observes the batches of one worker; nothing of it is timed by the main process."""

    def __init__(
        self, user_code: UserCode, tape: Tape, control: Control, roots: Roots, clocks: Clocks | None = None
    ) -> None:
        super().__init__(user_code, tape)
        self._control = control
        self._roots = roots
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
        self._stage = ""
        """The stage that is at work; empty while time is charged to none."""
        self._pixels = PixelNotes()
        self._outputs = OutputNotes()
        self._part = 0
        """Number of the item, or of the collation, at work."""
        self._constructions = Constructions()
        self._sampler = LineSampler(self._see_line)
        self._garbage = CollectionWatch(self._see_collection)
        self._network = NetworkWatch(lambda: (self._clocks.wall(), self._clocks.cpu()), lambda: self._stage)

    # --- batches -------------------------------------------------------------------------------------------

    @property
    def has_seen_enough(self) -> bool:
        """True if a further batch is not worth its time; if one takes many seconds, a single one has to do."""
        enough_s = ENOUGH_S * (LONGER if self._total.collections.missing else 1)
        return sum(spent.wall_s for spent in self._total.stages.values()) >= enough_s

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
        self._stop_watching()
        if whole and self._open.samples:
            self._open.batches = 1
            self._open.clocked = [{stage: spent.wall_s for stage, spent in self._open.stages.items()}]
            ended_s = self._clocks.core_wait()
            begun_s = self._core_wait_s
            self._open.core_wait_s = None if ended_s is None or begun_s is None else ended_s - begun_s
            self._open.collections.blocks = sys.getallocatedblocks()
            if self._open.collections.count and not self._total.collections.objects:
                self._open.collections.objects = len(gc.get_objects())
            self._total.add(self._open)
            self._control.observations.write(self._user_code.number, self._total)
        self.drop()
        return batch

    def drop(self) -> None:
        self._stop_watching()
        self._open = Observation()

    def _stop_watching(self) -> None:
        self._sampler.stop()
        self._garbage.stop()
        self._open.network = self._network.stop()

    def _begin(self) -> None:
        if self._timers is None:
            places, self._single = find_places(self._roots())
            self._names = {place.place: place.name for place in places} | self._single
            self._order = {place: number for number, place in enumerate(self._names)}
            self._timers = Timers(places, self._members)
        self.drop()
        self._sampler.start()
        self._garbage.start()
        self._network.start()
        self._core_wait_s = self._clocks.core_wait()

    def _item(self, run: Callable[[Any], Any], request: Any, samples: int = 1) -> Any:
        with self._observing(self._base_stage, self.plan.marks.sample):
            self._pixels.begin()
            self._outputs.begin(None if self._user_code.fetches_batches else request)
            value = run(request)
        self._open.samples += samples
        self._open.pixels.add(self._pixels.end(value, samples))
        self._open.outputs += self._outputs.end(value)
        return value

    # --- while the user's code runs ------------------------------------------------------------------------

    @contextmanager
    def _observing(self, stage: str, marked: tuple[str, ...]) -> Iterator[None]:
        """Charge what passes inside the block to a stage and those inside it."""
        assert self._timers is not None
        self._begin_part(marked)
        self._part += 1
        with self._timers.installed(), self._tape.answered_by(self._answer):
            self._members.handler = self._answer_transform
            before = self._meter.enter(self._spent(stage))
            self._stage = stage
            try:
                yield
            except BaseException:
                self._stop_watching()
                raise
            finally:
                self._stage = ""
                self._meter.enter(*before)
                self._members.handler = None

    def _spent(self, stage: str) -> Spent:
        return self._open.stages.setdefault(stage, Spent())

    def _answer(self, site: str, function: Function, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if not (is_mark(site) or self._elsewhere):
            if self._tape.stage(site) == "augment" and not self._inside_cut:
                with self._meter.uncharged():
                    self._pixels.see_loaded(args, kwargs)
                    self._outputs.see_loaded(*args, *kwargs.values())
            if site in self._single:
                function, args, kwargs = self._answer_transform, (site, function, args, kwargs), {}
        loads = not is_mark(site) and self._stage_of(site) == "load"
        output = super()._answer(site, function, args, kwargs)
        if loads:
            with self._meter.uncharged():
                self._outputs.see_loaded(output)
        return output

    def _run_in(self, stage: str, function: Function, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        outer, self._stage = self._stage, stage
        before = self._meter.enter(self._spent(stage))
        try:
            return function(*args, **kwargs)
        finally:
            self._meter.enter(*before)
            self._stage = outer

    def _answer_transform(self, place: str, function: Function, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if self._elsewhere:
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

    def _see_line(self, frame: FrameType, passed: Spent) -> None:
        """Charge a line with the time since the last sample; in the thread of the sampler."""
        stage, part, stack = self._stage, self._part, stack_below(frame, _ENTRIES)
        line = line_of(frame, _ENTRIES, _UNCHARGED) if stage else None
        if line is not None:
            self._open.lines.setdefault((stage, line), Spent()).add(passed)
            self._constructions.see(self._open, stage, part, passed, stack)

    def _see_collection(self, seconds: float) -> None:
        if self._stage:
            self._open.collections.add(Collections(1, seconds))


_ENTRIES = (Observer._item.__code__, Observer.collate.__code__)
_UNCHARGED = (images.__file__, meter.__file__, outputs.__file__)
"""Files of ours whose time is charged to nothing."""

STAGE_PREFIX = "stage:"
"""A frame whose function is called so, in this file, stands for a stage."""


class StageFrames(Watching):
    """Runs the user's code of one worker, each stage under a separate frame."""

    def fetch(self, request: Any) -> Any:
        return self._run(self._base_stage, self.plan.marks.sample, self._user_code.fetch, request)

    def next_items(self) -> list[Any]:
        return [self._run(self._base_stage, self.plan.marks.sample, self._user_code.next_item)]

    def collate(self, samples: Any) -> Any:
        return self._run("collate", self.plan.marks.collate, self._user_code.collate, samples)

    def _run(self, stage: str, marked: tuple[str, ...], function: Function, *args: Any) -> Any:
        self._begin_part(marked)
        with self._tape.answered_by(self._answer):
            return self._run_in(stage, function, args, {})

    def _run_in(self, stage: str, function: Function, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return runner(stage)(function, args, kwargs)


def stage_of_frame(function: str, file: str) -> str | None:
    """The stage that a frame stands for; None for any other frame."""
    if not function.startswith(STAGE_PREFIX) or file != __file__:
        return None
    return unquote(function[len(STAGE_PREFIX) :])


def _run(function: Function, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    return function(*args, **kwargs)


@lru_cache(maxsize=256)
def runner(stage: str) -> Callable[..., Any]:
    """Return what calls a function, with its arguments, from a frame that is named after a stage."""
    # Quoted, because profilers write stacks as lines, with semicolons and spaces between their parts.
    name = STAGE_PREFIX + quote(stage, safe="")
    code = _run.__code__.replace(co_name=name)
    if sys.version_info >= (3, 11):
        code = code.replace(co_qualname=name)
    return FunctionType(code, globals(), name)

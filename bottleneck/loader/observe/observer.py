"""Make batches for real, and see where the time goes: in which stage, and in which single transform."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from bottleneck.job.marks import is_mark
from bottleneck.loader.observe.observation import Clocks, Meter, Observation, Spent, TransformSpent
from bottleneck.loader.observe.pixels import PixelNotes
from bottleneck.loader.observe.stage_calls import StageCalls, base_stage
from bottleneck.loader.observe.timers import Timers, find_places
from bottleneck.loader.record.plan import Plan
from bottleneck.loader.record.tape import Function, Tape
from bottleneck.loader.worker.control import Control
from bottleneck.loader.worker.user_code import UserCode
from bottleneck.loader.worker.work import SKIPPED, Work

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

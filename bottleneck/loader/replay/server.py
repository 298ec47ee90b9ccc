"""Serve recorded data in the place of some stages, while the others work for real."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import cycle, islice
from typing import Any

from bottleneck.loader import modes, trees
from bottleneck.loader.record.plan import Plan
from bottleneck.loader.record.store import Pool, RecordedBatch, Unit
from bottleneck.loader.record.tape import Call, Tape
from bottleneck.loader.replay.replay import Replay, ReplayConfig, StopAfterCut, recorded_arguments
from bottleneck.loader.replay.tail import copy_locals
from bottleneck.loader.replay.template import Hole, make_fill
from bottleneck.loader.worker.user_code import Source


class Cached:
    """What a fetch returns when the collated batch itself is served from a cache."""

    def __init__(self, size: int) -> None:
        self.size = size


class Server:
    """Serves the recorded batches of one worker.

    Args:
        source: The user's code, for the stages that work for real.
        tape: The tape of the dataset's cuts.
        pool: The recorded batches.
        iterable: The dataset is an iterable one.
    """

    def __init__(self, source: Source, tape: Tape, pool: Pool, *, iterable: bool) -> None:
        self._source, self._tape, self._pool, self._iterable = source, tape, pool, iterable
        self.plan = Plan("fetch")
        self._replayed: list[Unit] = []
        self._spare: dict[str, list[Call]] = {}
        """Calls of marked stages, for items that did not call them while they were recorded."""
        self._served: RecordedBatch | None = None
        """Where the samples of the present batch come from; None if they were all made for real."""
        self._latest: RecordedBatch | None = None
        """What was served last."""
        self._sample_bits = self._collate_bits = 0
        self._configs: dict[int, ReplayConfig] = {}
        """Mode -> how samples are replayed in it, once asked for."""

    @property
    def has_batches(self) -> bool:
        """Whether anything has been recorded."""
        return bool(self._pool.batches)

    def use_plan(self, plan: Plan) -> None:
        """Serve by another plan, and drop what it does not need."""
        self.plan = plan
        self._configs.clear()
        found = plan.marks
        self._sample_bits = modes.SKIP_OTHER | found.bits(found.sample)
        self._collate_bits = modes.SKIP_COLLATE_REST | found.bits(found.collate)
        for batch in self._pool.batches:
            for unit in batch.units:
                self._keep_what_is_needed(unit)
            batch.calls = [call for call in batch.calls if call.site in found.collate]
            _forget_rng(batch.calls)
        self._spare = {}
        if found.sample or found.collate:
            batches = self._pool.batches
            for call in [call for batch in batches for unit in batch.units for call in unit.calls]:
                self._spare.setdefault(call.site, []).append(call)
            for call in [call for batch in batches for call in batch.calls]:
                self._spare.setdefault(call.site, []).append(call)

    def forget_order(self) -> None:
        """Begin anew with what is left of the recording."""
        self._replayed, self._served = [], None

    def makes_samples_for_real(self, mode: int) -> bool:
        """Whether samples of a mode are the user's code alone."""
        return mode & modes.WITHIN_SAMPLE == modes.WITHIN_SAMPLE and not mode & (self._sample_bits | modes.PAY_SERVING)

    def collates_for_real(self, mode: int) -> bool:
        """Whether the collation of a mode is the user's code alone."""
        return not mode & self._collate_bits

    def _keep_what_is_needed(self, unit: Unit) -> None:
        strategy = self.plan.strategy
        kept: list[int] = []  # numbers of calls
        if strategy != "fetch":
            wanted = self._wanted_sites(strategy)
            kept = [n for n, call in enumerate(unit.calls) if wanted is None or call.site in wanted]
        place = {number: position for position, number in enumerate(kept)}
        unit.holes = [Hole(place[call], inner, outer) for call, inner, outer in unit.holes if call in place]
        unit.calls = [unit.calls[number] for number in kept]
        unit.fill = make_fill(unit.value, unit.holes)
        unit.replays.clear()
        if strategy != "tail":
            unit.locals = None
        _forget_rng(unit.calls)

    def _wanted_sites(self, strategy: str) -> frozenset[str] | None:
        """Sites whose calls are needed; None: all."""
        if strategy == "marks":
            return frozenset(self.plan.marks.sample)
        if strategy == "template":
            return frozenset(site for site, stage in self._tape.stages.items() if stage == "augment")
        return None

    def next_unit(self) -> Unit:
        """Return the next recorded unit, batch after batch."""
        if not self._replayed:
            self._replayed = list(self._pool.next_batch(None).units)
        return self._replayed.pop(0)

    def samples(self, mode: int, size: int | None, request: Any) -> Any:
        """Return samples of which some stages come from the cache.

        Args:
            mode: The stages that work for real; not all of those within a sample.
            size: Samples wanted; None: as many as the next recorded batch has.
            request: The indices, where loading is real.
        """
        if not mode & (modes.WITHIN_SAMPLE | modes.COLLATE):
            return Cached(size or 0)
        batch = self._served = self._latest = self._pool.next_batch(size if self._source.batched else None)
        beside = mode & modes.PAY_SERVING and self.plan.strategy == "fetch"
        if not self._source.batched or (self._source.fetches_batches and not self._iterable):
            unit = batch.units[0]
            return self._fetch_beside([unit], request) if beside else self._serve_unit(mode, unit, request)
        wanted = batch.size if size is None else size
        units = batch.units if wanted == len(batch.units) else list(islice(cycle(batch.units), wanted))
        if beside:
            return self._fetch_beside(units, request)
        if request is None:
            serve = self._way_to_serve(mode)
            return [serve(unit) for unit in self._source.while_wanted(units)]
        pairs = self._source.while_wanted(zip(units, request, strict=False))
        return [self._serve_unit(mode, unit, index) for unit, index in pairs]

    def recorded_request(self) -> Any:
        """What the batch was asked for with that was served last."""
        assert self._latest is not None
        requests = [unit.request for unit in self._latest.units]
        return requests[0] if not self._source.batched or self._source.fetches_batches else requests

    def _fetch_beside(self, units: list[Unit], request: Any) -> Any:
        """Make samples for real beside serving them: whole ones are all that there is to serve."""
        for unit in units:
            self._sample(unit)
        return self._source.fetch(request)

    def _serve_unit(self, mode: int, unit: Unit, index: Any) -> Any:
        """Return the sample of a unit, with loading for real where a mode says so."""
        if mode & modes.LOAD:
            return self._replay_unit(mode, unit, index)
        return self._way_to_serve(mode)(unit)

    def _way_to_serve(self, mode: int) -> Callable[[Unit], Any]:
        """Return what serves a unit in a mode in which nothing is loaded."""
        if not mode & modes.WITHIN_SAMPLE:
            return self._sample
        if self.plan.strategy == "replay":
            return lambda unit: self._replay_unit(mode, unit, None)
        if self.plan.strategy == "tail":
            return lambda unit: self._run_tail(mode, unit)
        return self._fill_template

    def _sample(self, unit: Unit) -> Any:
        return trees.copy_deep(unit.value) if self.plan.copy_samples else unit.value

    def _fill_template(self, unit: Unit) -> Any:
        """Run the augmentation with its recorded arguments and put its output where it was in the sample."""
        assert unit.fill is not None
        copied = self.plan.copy_arguments
        try:
            if copied:
                given = [(call.function, *recorded_arguments(call, copied)) for call in unit.calls]
                outputs = [function(*args, **kwargs) for function, args, kwargs in given]
            else:
                outputs = [call.function(*call.args, **call.kwargs) for call in unit.calls]
        except BaseException as error:
            raise self._source.failure(error, unit.request) from None
        return unit.fill(self._sample(unit), outputs)

    def _replay_unit(self, mode: int, unit: Unit, index: Any) -> Any:
        """Run `__getitem__` with the recorded outputs of some of its cuts."""
        real = mode & modes.LOAD
        request = index if real else unit.request
        run = self._source.batch if self._source.fetches_batches else self._source.item
        if self.plan.strategy == "marks":
            return self._replay_marks(mode, unit, request, run)
        try:
            return self.replay_of(unit, mode).run(run, request)
        except StopAfterCut:
            return self._sample(unit)

    def _replay_marks(self, mode: int, unit: Unit, request: Any, run: Callable[[Any], Any]) -> Any:
        """Run the dataset's code with the recorded outputs of some marked stages, or the stages without that code."""
        replay = self.replay_of(unit, mode)
        if mode & modes.SKIP_OTHER:
            return self._run_marks_alone(replay, unit)
        return replay.run(run, unit.request if mode & modes.OWN_ITEMS else request)

    def _run_marks_alone(self, replay: Replay, unit: Unit) -> Any:
        try:
            replay.run_calls(unit.calls)
        except BaseException as error:
            raise self._source.failure(error, unit.request) from None
        return self._sample(unit)

    def stream_item(self, mode: int) -> Any:
        """Return the next item of a stream, with what a mode leaves out served from the recording."""
        unit = self.next_unit()
        if self.plan.strategy == "marks":
            return self._replay_marks(mode, unit, None, self._source.next_item)
        return self.replay_of(unit, mode).run(self._source.next_item)

    def _run_tail(self, mode: int, unit: Unit) -> Any:
        """Run `__getitem__` from its augmentation on."""
        tail, local_variables = self._tape.tail, unit.locals
        if tail is None or local_variables is None:
            return self._replay_unit(mode, unit, None)
        if self.plan.copy_locals:
            local_variables = copy_locals(local_variables, tail.self_name)
        try:
            return self.replay_of(unit, mode).run(tail.function, local_variables)
        except StopAfterCut:
            return self._sample(unit)
        except BaseException as error:
            raise self._source.failure(error, unit.request) from None

    def collate(self, mode: int, samples: Any) -> Any:
        """Collate samples with some of the marked stages inside served, or those stages without the code around."""
        size = len(samples) if self._source.batched else None
        batch, self._served = self._served or self._pool.next_batch(size), None
        replay = batch.replays.get(mode)
        if replay is None:
            replay = batch.replays[mode] = self._replay(batch.calls, self._mark_config(self.plan.marks.collate, mode))
        if mode & modes.SKIP_COLLATE_REST:
            try:
                replay.run_calls(batch.calls)
            except BaseException as error:
                raise self._source.failure(error, None, "collate_fn") from None
            return batch.collated.serve() if batch.collated is not None else None
        if mode & modes.OWN_ITEMS:
            recorded = [self._sample(unit) for unit in batch.units]
            samples = recorded if self._source.batched else recorded[0]
        return replay.run(self._source.collate, samples)

    def replay_of(self, unit: Unit, mode: int) -> Replay:
        """Return what makes a unit's item again in a mode."""
        replay = unit.replays.get(mode)
        if replay is None:
            if mode not in self._configs:
                marked = self.plan.strategy == "marks"
                self._configs[mode] = self._mark_config(self.plan.marks.sample, mode) if marked else self._config(mode)
            replay = unit.replays[mode] = self._replay(unit.calls, self._configs[mode])
        return replay

    def _replay(self, calls: list[Call], config: ReplayConfig) -> Replay:
        """Return a replay of some calls, with spare ones of marked stages that are served and were not called."""
        missing = (config.served - {call.site for call in calls}) & self._spare.keys()
        return Replay(self._tape, [*calls, *(call for site in missing for call in self._spare[site])], config)

    def _mark_config(self, sites: Iterable[str], mode: int) -> ReplayConfig:
        return ReplayConfig(
            served=self.plan.marks.skipped(sites, mode),
            copy_outputs=self.plan.copy_outputs,
            copy_arguments=self.plan.copy_arguments,
        )

    def _config(self, mode: int) -> ReplayConfig:
        served = frozenset(
            site
            for site in self.plan.sites
            if not mode & (modes.AUGMENT if self._tape.stage(site) == "augment" else modes.LOAD)
        )
        return ReplayConfig(
            served=served,
            real=self.plan.sites - served,
            stop_after_augment=not mode & modes.FINISH and "finish" in self.plan.within_sample,
            copy_outputs=self.plan.copy_outputs,
            recorded_arguments=self.plan.strategy == "tail" and not mode & modes.LOAD,
            copy_arguments=self.plan.copy_arguments,
        )

    def collated(self, size: int | None) -> Any:
        """Return a fresh copy of the next recorded batch; of the wanted size if there is one."""
        self._served = None
        batch = self._pool.next_batch(size or None)
        return batch.collated.serve() if batch.collated is not None else None


def _forget_rng(calls: list[Call]) -> None:
    for call in calls:
        call.rng_before = call.rng_after = None

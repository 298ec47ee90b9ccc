"""Serve recorded data in the place of some stages, while the others work for real."""

from __future__ import annotations

from typing import Any

from bottleneck.staging import stages, trees
from bottleneck.staging.plan import Plan
from bottleneck.staging.recording import Pool, Unit
from bottleneck.staging.replay import Playback, Replay, StopAfterCut, recorded_arguments
from bottleneck.staging.source import Source
from bottleneck.staging.tail import copy_locals
from bottleneck.staging.tape import Tape
from bottleneck.staging.template import Hole, make_fill


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
        self._playbacks: dict[int, Playback] = {}
        """Mode -> how its replays are done, once asked for."""

    @property
    def has_batches(self) -> bool:
        """Whether anything has been recorded."""
        return bool(self._pool.batches)

    def use_plan(self, plan: Plan) -> None:
        """Serve by another plan, and drop what it does not need."""
        self.plan = plan
        self._playbacks.clear()
        for batch in self._pool.batches:
            for unit in batch.units:
                self._keep_what_is_needed(unit)

    def _keep_what_is_needed(self, unit: Unit) -> None:
        strategy = self.plan.strategy
        kept: list[int] = []  # numbers of calls
        if strategy != "fetch":
            every = strategy in ("replay", "tail")
            kept = [n for n, call in enumerate(unit.calls) if every or self._tape.stage(call.site) == "augment"]
        place = {number: position for position, number in enumerate(kept)}
        unit.holes = [Hole(place[call], inner, outer) for call, inner, outer in unit.holes if call in place]
        unit.calls = [unit.calls[number] for number in kept]
        unit.fill = make_fill(unit.value, unit.holes)
        unit.replays.clear()
        if strategy != "tail":
            unit.locals = None
        for call in unit.calls:
            call.rng_before = call.rng_after = None

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
        if not mode & (stages.WITHIN_SAMPLE | stages.COLLATE):
            return Cached(size or 0)
        batch = self._pool.next_batch(size if self._source.batched else None)
        if not self._source.batched or (self._source.fetches_batches and not self._iterable):
            return self._serve_unit(mode, batch.units[0], request)
        wanted = batch.size if size is None else size
        units = [batch.units[n % len(batch.units)] for n in range(wanted)]
        indices = [None] * wanted if request is None else request
        return [self._serve_unit(mode, unit, index) for unit, index in zip(units, indices, strict=False)]

    def _serve_unit(self, mode: int, unit: Unit, index: Any) -> Any:
        within = mode & stages.WITHIN_SAMPLE
        if not within:
            return self._sample(unit)
        if within & stages.LOAD or self.plan.strategy == "replay":
            return self._replay_unit(mode, unit, index)
        if self.plan.strategy == "tail":
            return self._run_tail(mode, unit)
        return self._fill_template(unit)

    def _sample(self, unit: Unit) -> Any:
        return trees.copy_deep(unit.value) if self.plan.copy_samples else unit.value

    def _fill_template(self, unit: Unit) -> Any:
        """Run the augmentation with its recorded arguments and put its output where it was in the sample."""
        outputs = []
        copied = self.plan.copy_arguments
        for call in unit.calls:
            args, kwargs = recorded_arguments(call, copied) if copied else (call.args, call.kwargs)
            try:
                outputs.append(call.function(*args, **kwargs))
            except Exception as error:
                raise self._source.failure(error, unit.request) from None
        assert unit.fill is not None
        return unit.fill(self._sample(unit), outputs)

    def _replay_unit(self, mode: int, unit: Unit, index: Any) -> Any:
        """Run `__getitem__` with the recorded outputs of some of its cuts."""
        real = mode & stages.LOAD
        request = index if real else unit.request
        run = self._source.batch if self._source.fetches_batches else self._source.item
        try:
            return self.replay_of(unit, mode).run(run, request)
        except StopAfterCut:
            return self._sample(unit)

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
        except Exception as error:
            raise self._source.failure(error, unit.request) from None

    def replay_of(self, unit: Unit, mode: int) -> Replay:
        """Return what makes a unit's item again in a mode."""
        replay = unit.replays.get(mode)
        if replay is None:
            if mode not in self._playbacks:
                self._playbacks[mode] = self._playback(mode)
            replay = unit.replays[mode] = Replay(self._tape, unit.calls, self._playbacks[mode])
        return replay

    def _playback(self, mode: int) -> Playback:
        """Return how a replay is done in a mode."""
        replayed = frozenset(
            site
            for site in self.plan.sites
            if not mode & (stages.AUGMENT if self._tape.stage(site) == "augment" else stages.LOAD)
        )
        return Playback(
            replayed=replayed,
            real=self.plan.sites - replayed,
            stop_after_augment=not mode & stages.FINISH and "finish" in self.plan.within_sample,
            copy_outputs=self.plan.copy_outputs,
            recorded_arguments=self.plan.strategy == "tail" and not mode & stages.LOAD,
            copy_arguments=self.plan.copy_arguments,
        )

    def collated(self, size: int | None) -> Any:
        """Return a fresh copy of the next recorded batch; of the wanted size if there is one."""
        batch = self._pool.next_batch(size or None)
        return batch.collated.serve() if batch.collated is not None else None

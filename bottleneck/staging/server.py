"""Serve recorded data in the place of some stages, while the others work for real."""

from __future__ import annotations

from typing import Any

from bottleneck.staging import stages, trees
from bottleneck.staging.cutting import Playback, StopAfterCut, Tape
from bottleneck.staging.plan import Plan
from bottleneck.staging.recording import Pool, Unit, fill, follow
from bottleneck.staging.source import Source
from bottleneck.staging.tail import copy_locals


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

    @property
    def has_batches(self) -> bool:
        """Whether anything has been recorded."""
        return bool(self._pool.batches)

    def use_plan(self, plan: Plan) -> None:
        """Serve by another plan, and drop what it does not need."""
        self.plan = plan
        for batch in self._pool.batches:
            for unit in batch.units:
                keep = unit.calls if self.plan.strategy in ("replay", "tail") else [
                    call for call in unit.calls if self._tape.stage(call.site) == "augment"
                ]  # fmt: skip
                kept = {id(call): number for number, call in enumerate(keep)}
                unit.holes = [
                    (kept[id(unit.calls[number])], inner, outer)
                    for number, inner, outer in unit.holes
                    if id(unit.calls[number]) in kept
                ]
                unit.calls = keep if self.plan.strategy != "fetch" else []
                if not unit.calls:
                    unit.holes = []
                if self.plan.strategy != "tail":
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
        for call in unit.calls:
            args, kwargs = call.args, call.kwargs
            if call.site in self.plan.copy_arguments:
                args, kwargs = trees.copy_deep(args), trees.copy_deep(kwargs)
            try:
                outputs.append(self._tape.call_really(call, args, kwargs))
            except Exception as error:
                raise self._source.failure(error, unit.request) from None
        fresh = [(outer, follow(outputs[number], inner)) for number, inner, outer in unit.holes]
        return fill(self._sample(unit), fresh)

    def _replay_unit(self, mode: int, unit: Unit, index: Any) -> Any:
        """Run `__getitem__` with the recorded outputs of some of its cuts."""
        real = mode & stages.LOAD
        request = index if real else unit.request
        run = self._source.batch if self._source.fetches_batches else self._source.item
        try:
            with self._tape.replaying(unit.calls, self.playback(mode)):
                return run(request)
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
            with self._tape.replaying(unit.calls, self.playback(mode)):
                return tail.function(local_variables)
        except StopAfterCut:
            return self._sample(unit)
        except Exception as error:
            raise self._source.failure(error, unit.request) from None

    def playback(self, mode: int) -> Playback:
        """Return how a replay is done in a mode."""
        return Playback(
            replayed=stages.WITHIN_SAMPLE & ~mode,
            sites=self.plan.sites,
            stop_after_augment=not mode & stages.FINISH and "finish" in self.plan.within_sample,
            copy_outputs=self.plan.copy_outputs,
            recorded_arguments=self.plan.strategy == "tail" and not mode & stages.LOAD,
            copy_arguments=self.plan.copy_arguments,
        )

    def collated(self, size: int | None) -> Any:
        """Return a fresh copy of the next recorded batch; of the wanted size if there is one."""
        batch = self._pool.next_batch(size or None)
        return batch.collated.serve() if batch.collated is not None else None

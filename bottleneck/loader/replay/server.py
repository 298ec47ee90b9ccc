"""Serve recorded data in the place of some stages, while the others work for real."""

from __future__ import annotations

from itertools import cycle, islice
from typing import Any

from bottleneck.loader import modes
from bottleneck.loader.record.plan import Plan
from bottleneck.loader.record.store import RecordedBatch, RecordedItem, RecordingStore
from bottleneck.loader.record.tape import Call, Tape
from bottleneck.loader.replay.strategies import STRATEGIES, MarkReplays
from bottleneck.loader.replay.template import OutputSlot, make_fill
from bottleneck.loader.worker.user_code import UserCode
from bottleneck.loader.worker.work import Placeholder


class Server:
    """Serves the recorded batches of one worker.

    Args:
        user_code: The user's code, for the stages that work for real.
        tape: The tape of the dataset's cuts.
        store: The recorded batches.
        iterable: The dataset is an iterable one.
    """

    def __init__(self, user_code: UserCode, tape: Tape, store: RecordingStore, *, iterable: bool) -> None:
        self._user_code, self._tape, self._store, self._iterable = user_code, tape, store, iterable
        self._left: list[RecordedItem] = []
        """Samples of the present batch that a stream has not been served yet."""
        self._served: RecordedBatch | None = None
        """Where the samples of the present batch come from; None if they were all made for real."""
        self._latest: RecordedBatch | None = None
        """What was served last."""
        self._adopt(Plan("fetch"))

    def _adopt(self, plan: Plan) -> None:
        self.plan, marks = plan, plan.marks
        self._sample_bits = modes.SKIP_OTHER | marks.bits(marks.sample)
        self._collate_bits = modes.SKIP_COLLATE_REST | marks.bits(marks.collate)
        in_samples = [call for batch in self._store.batches for item in batch.items for call in item.calls]
        recorded = [*in_samples, *(call for batch in self._store.batches for call in batch.calls)]
        self._marks = MarkReplays(self._tape, plan, [call for call in recorded if call.site in marks.sites])
        self._strategy = STRATEGIES[plan.strategy](self._user_code, self._tape, plan, self._marks)

    def use_plan(self, plan: Plan) -> None:
        """Serve by another plan, and drop what it does not need."""
        self._adopt(plan)
        for batch in self._store.batches:
            for item in batch.items:
                self._keep_what_is_needed(item)
            batch.calls = [call for call in batch.calls if call.site in plan.marks.collate]
            batch.replays.clear()
            _forget_rng(batch.calls)

    def _keep_what_is_needed(self, item: RecordedItem) -> None:
        kept = [number for number, call in enumerate(item.calls) if self._strategy.keeps(call)]
        place = {number: position for position, number in enumerate(kept)}
        item.slots = [OutputSlot(place[call], inner, outer) for call, inner, outer in item.slots if call in place]
        item.calls = [item.calls[number] for number in kept]
        item.fill = make_fill(item.value, item.slots)
        item.replays.clear()
        if not self._strategy.keeps_locals:
            item.locals = None
        _forget_rng(item.calls)

    @property
    def has_batches(self) -> bool:
        """Whether anything has been recorded."""
        return bool(self._store.batches)

    @property
    def has_parts(self) -> bool:
        """Whether stages within a sample can be served one by one."""
        return self._strategy.has_parts

    def forget_order(self) -> None:
        """Begin anew with what is left of the recording."""
        self._left, self._served = [], None

    def makes_samples_for_real(self, mode: int) -> bool:
        """Whether samples of a mode are the user's code alone."""
        return mode & modes.WITHIN_SAMPLE == modes.WITHIN_SAMPLE and not mode & (self._sample_bits | modes.PAY_SERVING)

    def collates_for_real(self, mode: int) -> bool:
        """Whether the collation of a mode is the user's code alone."""
        return bool(mode & modes.COLLATE) and not mode & self._collate_bits

    def samples(self, mode: int, size: int | None, request: Any) -> Any:
        """Return samples of which some stages come from the cache.

        Args:
            mode: The stages that work for real; not all of those within a sample.
            size: Samples wanted; None: as many as the next recorded batch has.
            request: The indices, where loading is real.
        """
        if not mode & (modes.WITHIN_SAMPLE | modes.COLLATE):
            return Placeholder(size or 0)
        user_code, strategy = self._user_code, self._strategy
        batch = self._served = self._latest = self._store.next_batch(size if user_code.batched else None)
        wanted = batch.size if size is None else size
        single = not user_code.batched or (user_code.fetches_batches and not self._iterable)
        if single:
            items = batch.items[:1]
        else:
            items = batch.items if wanted == len(batch.items) else list(islice(cycle(batch.items), wanted))
        if mode & modes.PAY_SERVING and not strategy.has_parts:
            # Whole samples are all that there is to serve: they are served beside those that are made.
            for item in items:
                strategy.sample(item)
            return user_code.fetch(request)
        if not mode & modes.LOAD:
            serve = strategy.way_to_serve(mode)
            return serve(items[0]) if single else [serve(item) for item in user_code.while_wanted(items)]
        if single:
            return strategy.load(mode, items[0], request)
        pairs = user_code.while_wanted(zip(items, request, strict=False))
        return [strategy.load(mode, item, index) for item, index in pairs]

    def recorded_request(self) -> Any:
        """What the batch was asked for with that was served last."""
        assert self._latest is not None
        requests = [item.request for item in self._latest.items]
        return requests[0] if not self._user_code.batched or self._user_code.fetches_batches else requests

    def stream_item(self, mode: int) -> Any:
        """Return the next item of a stream, with what a mode leaves out served from the recording."""
        if not self._left:
            self._left = list(self._store.next_batch(None).items)
        return self._strategy.next_item(mode, self._left.pop(0))

    def collate(self, mode: int, samples: Any) -> Any:
        """Collate samples with some of the marked stages inside served, or those stages without the code around."""
        size = len(samples) if self._user_code.batched else None
        batch, self._served = self._served or self._store.next_batch(size), None
        replay = batch.replays.get(mode)
        if replay is None:
            replay = batch.replays[mode] = self._marks.make(self.plan.marks.collate, batch.calls, mode)
        if mode & modes.SKIP_COLLATE_REST:
            try:
                replay.run_calls(batch.calls)
            except BaseException as error:
                raise self._user_code.failure(error, None, "collate_fn") from None
            return batch.collated.serve() if batch.collated is not None else None
        if mode & modes.OWN_ITEMS:
            recorded = [self._strategy.sample(item) for item in batch.items]
            samples = recorded if self._user_code.batched else recorded[0]
        return replay.run(self._user_code.collate, samples)

    def collated(self, size: int | None) -> Any:
        """Return a fresh copy of the next recorded batch; of the wanted size if there is one."""
        self._served = None
        batch = self._store.next_batch(size or None)
        return batch.collated.serve() if batch.collated is not None else None


def _forget_rng(calls: list[Call]) -> None:
    for call in calls:
        call.rng_before = call.rng_after = None

"""Make batches with some stages served from recordings; where that fails, make them for real and report it.

All of this runs in timed blocks, once or more for each sample; what can be prepared is prepared once per mode.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import cycle, islice
from typing import Any

from bottleneck.job import containers
from bottleneck.loader import modes, trees
from bottleneck.loader.calls import Call, Tape
from bottleneck.loader.control import Blank, Control, Fault
from bottleneck.loader.recording.copies import checksum, copy_on_pickle, storages
from bottleneck.loader.recording.plan import Plan
from bottleneck.loader.recording.replay import Replay, recorded_arguments
from bottleneck.loader.recording.store import (
    RecordedBatch,
    RecordedItem,
    RecordingStore,
    keep_calls,
    make_fill,
    without_outputs,
)
from bottleneck.loader.user_code import Placeholder, UserCode, UserCodeError, Work, find_failure


class Server(Work):
    """Serves the recorded batches of one worker, while some stages work for real."""

    def __init__(self, user_code: UserCode, tape: Tape, store: RecordingStore, control: Control) -> None:
        self._user_code = user_code
        self._tape = tape
        self._store = store
        self._control = control
        self._run = user_code.batch if user_code.fetches_batches else user_code.item
        self._iterable = user_code.iterable
        self._batched = user_code.batched
        self._single = not self._batched or (user_code.fetches_batches and not self._iterable)
        """A recorded batch is one item."""
        self._checksums: list[tuple[str, list[Any], int]] = []
        """Name, content and checksum of recorded data."""
        self._faults: list[Fault] = []
        self._left: list[RecordedItem] = []
        """Items of the present batch that a stream has not been served yet."""
        self._served: RecordedBatch | None = None
        """The recording that the samples of the present batch come from; None if they were all made for real."""
        self._latest: RecordedBatch | None = None
        """The recording that was served last."""
        self._request: Any = None
        """The request for the samples of the present batch; None for a blank."""
        self.mode = modes.ALL
        """The stages that work for real."""
        self._recorded: frozenset[int] = frozenset()
        """Storages of recorded data that may come into a batch."""
        self._adopt(Plan("fetch"))

    # --- the plan ------------------------------------------------------------------------------------------

    def _adopt(self, plan: Plan) -> None:
        self._plan, marks = plan, plan.marks
        self._sample_bits = modes.SKIP_OTHER | modes.PAY_SERVING | marks.bits(marks.sample)
        self._collate_bits = modes.SKIP_COLLATE_REST | marks.bits(marks.collate)
        in_samples = [call for batch in self._store.batches for item in batch.items for call in item.calls]
        recorded = [*in_samples, *(call for batch in self._store.batches for call in batch.calls)]
        self._has_parts = plan.strategy != "fetch"
        """True if stages within a sample can be served one by one."""
        self._spare: dict[str, list[Call]] = {site: [] for site in marks.sites}
        """Recorded calls of marked stages, for samples that did not call them while they were recorded."""
        for call in recorded:
            if call.site in marks.sites:
                self._spare[call.site].append(call)

    def use_plan(self, plan: Plan) -> None:
        """Serve by another plan, and drop what it does not need."""
        self._adopt(plan)
        for batch in self._store.batches:
            for item in batch.items:
                item.calls, item.slots = keep_calls(item.calls, item.slots, self._keeps)
                item.fill = make_fill(item.value, item.slots)
                item.rest = without_outputs(item.value, item.slots) if plan.copy_samples else item.value
                item.replays.clear()
                _forget_rng(item.calls)
            batch.calls, batch.slots = keep_calls(
                batch.calls, batch.slots, lambda call: call.site in plan.marks.collate
            )
            # What the code around the stages changes in place is no output of theirs.
            batch.slots = [slot for slot in batch.slots if batch.calls[slot.call].site not in plan.copy_outputs]
            batch.around = None
            batch.replays.clear()
            _forget_rng(batch.calls)
        self._recorded = frozenset(storages(self._may_be_kept(plan)))
        self._checksums = [(what, data, checksum(data)) for what, data in self._served_as_is(plan)]

    def _may_be_kept(self, plan: Plan) -> list[Any]:
        """Return what of the recorded data the collation may put into a batch."""
        batches = self._store.batches
        calls = [call for batch in batches for call in batch.calls]
        if plan.keeps_samples:
            items = [item for batch in batches for item in batch.items]
            calls += [call for item in items for call in item.calls]
            return [item.value for item in items] + [_data_of(call) for call in calls]
        return [_data_of(call) for call in calls]

    def is_needed(self, mode: int) -> bool:
        """Return True if anything is served in a mode, or the replay overhead paid."""
        return not (self._makes_samples(mode) and self._collates(mode))

    def _makes_samples(self, mode: int) -> bool:
        return mode & modes.WITHIN_SAMPLE == modes.WITHIN_SAMPLE and not mode & self._sample_bits

    def _collates(self, mode: int) -> bool:
        return bool(mode & modes.COLLATE) and not mode & self._collate_bits

    # --- samples -------------------------------------------------------------------------------------------

    def fetch(self, request: Any) -> Any:
        self._request = None if isinstance(request, Blank) else request
        if self._request is not None and self._makes_samples(self.mode):
            return self._user_code.fetch(request)
        try:
            return self._samples(self.mode, len(request) if self._batched else 1, self._request)
        except UserCodeError as error:
            return self._make_instead(error)

    def next_items(self) -> list[Any]:
        mode = self.mode
        if mode & modes.LOAD and (self._makes_samples(mode) or not self._has_parts):
            return [self._user_code.next_item()]
        try:
            if mode & modes.LOAD:
                return [self._next_item(mode)]
            served = self._samples(mode, None if self._batched else 1, None)
        except UserCodeError as error:
            return [self._make_instead(error)]
        return served if isinstance(served, list) and self._batched else [served]

    def _samples(self, mode: int, size: int | None, request: Any) -> Any:
        """Return samples with some of their stages from the cache.

        Args:
            size: Samples wanted; None: as many as the next recorded batch has.
            request: The indices, where loading is real.
        """
        if not mode & (modes.WITHIN_SAMPLE | modes.COLLATE):
            return Placeholder(size or 0)
        user_code, single = self._user_code, self._single
        batch = self._served = self._latest = self._store.next_batch(size if self._batched else None)
        wanted = batch.size if size is None else size
        if single:
            items = batch.items[:1]
        else:
            items = batch.items if wanted == len(batch.items) else list(islice(cycle(batch.items), wanted))
        if mode & modes.PAY_SERVING and (self._plan.copy_samples or not self._has_parts):
            # As samples are made, the recorded ones are copied; or served, if there is no part to serve.
            for item in items:
                self._sample(item)
            if not self._has_parts:
                return user_code.fetch(request)
        if not mode & modes.LOAD:
            serve = self._way_to_serve(mode)
            return serve(items[0]) if single else [serve(item) for item in user_code.while_wanted(items)]
        if single:
            return self._load(mode, items[0], request)
        pairs = user_code.while_wanted(zip(items, request, strict=False))
        return [self._load(mode, item, index) for item, index in pairs]

    # --- one sample, by the strategy of the plan ------------------------------------------------------------

    def _keeps(self, call: Call) -> bool:
        """Return True if a recorded call within a sample is needed."""
        strategy = self._plan.strategy
        if strategy == "template":
            return self._tape.stage(call.site) == "augment"
        return strategy == "replay" or call.site in self._plan.marks.sample

    def _sample(self, item: RecordedItem) -> Any:
        return trees.copy_deep(item.value) if self._plan.copy_samples else item.value

    def _way_to_serve(self, mode: int) -> Callable[[RecordedItem], Any]:
        """Return what serves a sample in a mode in which nothing is loaded."""
        if not (self._has_parts and mode & modes.WITHIN_SAMPLE):
            return self._sample
        return self._fill if self._plan.strategy == "template" else lambda item: self._load(mode, item, item.request)

    def _load(self, mode: int, item: RecordedItem, index: Any) -> Any:
        """Return the sample of an index, which is loaded for real; other stages come from a recorded one."""
        if mode & modes.SKIP_OTHER:
            return self._run_alone(mode, item)
        return self._replay_of(item, mode).run(self._run, item.request if mode & modes.OWN_ITEMS else index)

    def _next_item(self, mode: int) -> Any:
        """Return the next item of a stream, the same way."""
        if not self._left:
            self._left = list(self._store.next_batch(None).items)
        item = self._left.pop(0)
        if mode & modes.SKIP_OTHER:
            return self._run_alone(mode, item)
        return self._replay_of(item, mode).run(self._user_code.next_item)

    def _replay_marks(self, sites: Iterable[str], calls: list[Call], mode: int) -> Replay:
        """Return a replay that serves those of some marked stages that a mode skips."""
        served = self._plan.marks.skipped(sites, mode)
        missing = (served - {call.site for call in calls}) & self._spare.keys()
        spare = [call for site in missing for call in self._spare[site]]
        return Replay(self._tape, [*calls, *spare], served, copied=self._plan.copy_outputs)

    def _fill(self, item: RecordedItem) -> Any:
        """Call the augmentation on what it was called with, and put what it gives into the recorded sample."""
        assert item.fill is not None
        copied = self._plan.copy_arguments
        try:
            if copied:
                given = [(call.function, *recorded_arguments(call, copied)) for call in item.calls]
                outputs = [function(*args, **kwargs) for function, args, kwargs in given]
            else:
                outputs = [call.function(*call.args, **call.kwargs) for call in item.calls]
        except BaseException as error:
            raise self._user_code.failure(error, item.request) from None
        rest = trees.copy_deep(item.rest) if self._plan.copy_samples else item.rest
        return item.fill(rest, outputs)

    def _run_alone(self, mode: int, item: RecordedItem) -> Any:
        """Let the marked stages of a recorded sample work without the code around them."""
        try:
            self._replay_of(item, mode).run_calls(item.calls, self._plan.copy_arguments)
        except BaseException as error:
            raise self._user_code.failure(error, item.request) from None
        return self._sample(item)

    def _replay_of(self, item: RecordedItem, mode: int) -> Replay:
        replay = item.replays.get(mode)
        if replay is None:
            replay = item.replays[mode] = self._make_replay(item, mode)
        return replay

    def _make_replay(self, item: RecordedItem, mode: int) -> Replay:
        plan, stage = self._plan, self._tape.stage
        if plan.strategy == "marks":
            return self._replay_marks(plan.marks.sample, item.calls, mode)
        real = frozenset(
            site for site in plan.sites if mode & (modes.AUGMENT if stage(site) == "augment" else modes.LOAD)
        )
        return Replay(self._tape, item.calls, plan.sites - real, real, copied=plan.copy_outputs)

    # --- batches -------------------------------------------------------------------------------------------

    def collate(self, samples: Any) -> Any:
        if not self.mode & modes.COLLATE:
            return self.collated(0)
        try:
            if self._collates(self.mode):
                return self._without_recorded(self._user_code.collate(samples))
            return self._collate(self.mode, samples)
        except UserCodeError as error:
            return self._user_code.collate(self._make_instead(error, len(samples) if self._batched else None))

    def _collate(self, mode: int, samples: Any) -> Any:
        """Collate samples with some of the marked stages inside served, or those stages without the code around."""
        size = len(samples) if self._batched else None
        batch, self._served = self._served or self._store.next_batch(size), None
        replay = batch.replays.get(mode)
        if replay is None:
            replay = batch.replays[mode] = self._replay_marks(self._plan.marks.collate, batch.calls, mode)
        if mode & modes.SKIP_COLLATE_REST:
            try:
                outputs = replay.run_calls(batch.calls, self._plan.copy_arguments)
            except BaseException as error:
                raise self._user_code.failure(error, None, "collate_fn") from None
            return batch.serve_around(outputs)
        if mode & modes.OWN_ITEMS:
            recorded = [self._sample(item) for item in batch.items]
            samples = recorded if self._batched else recorded[0]
        return self._without_recorded(replay.run(self._user_code.collate, samples))

    def _without_recorded(self, batch: Any) -> Any:
        """Return a batch without recorded tensors: copies replace them when it is handed on."""
        in_worker = self._user_code.in_worker
        if not (self._recorded and self.mode & modes.HANDOFF and (in_worker or self._plan.copy_batches)):
            return batch
        copy, within = (copy_on_pickle, containers.takes_anything) if in_worker else (trees.copy_leaf, None)

        def copy_recorded(leaf: Any) -> Any:
            is_recorded = not trees.is_primitive(leaf) and not storages(leaf).isdisjoint(self._recorded)
            return copy(leaf) if is_recorded else leaf

        return trees.map_leaves(copy_recorded, batch, within=within)

    def collated(self, size: int) -> Any:
        """Return a fresh copy of the next recorded batch, if there is any; of the wanted size if there is one."""
        self._served = None
        if not self._store.batches:
            return None
        batch = self._store.next_batch(size or None)
        # A batch that is let go needs no copy either; where it travels, the copy is what hands it over.
        copies = self._user_code.in_worker or bool(self._plan.copy_batches and self.mode & modes.HANDOFF)
        return batch.collated.serve(copies=copies) if batch.collated is not None else None

    # --- what cannot be served -----------------------------------------------------------------------------

    def _served_as_is(self, plan: Plan) -> Iterator[tuple[str, list[Any]]]:
        """Yield name and content of data that is served without a copy."""
        batches = self._store.batches
        items = [item for batch in batches for item in batch.items]
        if not plan.copy_samples:
            yield "samples", [item.value for item in items]
        if not plan.copy_batches:
            yield "batches", [batch.collated.value for batch in batches if batch.collated is not None]
        calls: dict[str, list[Call]] = {}
        for each in (*(item.calls for item in items), *(batch.calls for batch in batches)):
            for call in each:
                calls.setdefault(call.site, []).append(call)
        for site, found in calls.items():
            if site not in plan.copy_outputs:
                yield f"outputs of `{site}`", [call.output for call in found]
            if site not in plan.copy_arguments:
                given = [value for call in found for value in (*call.args, *call.kwargs.values())]
                yield f"arguments of `{site}`", [value for value in given if trees.is_data(value)]

    def changed(self) -> list[str]:
        """Return what of the recorded data is no longer what was recorded."""
        return [what for what, data, before in self._checksums if checksum(data) != before]

    def _make_instead(self, error: UserCodeError, size: int | None = None) -> Any:
        """Make samples for real where the job's code raised on what was served, and report that.

        What was recorded of one item may not fit another, or may have been changed. Where the code raises as well when
        everything is real, it is the job that fails. Of a stream, `size` None is a single sample, not in a list.
        """
        user_code = self._user_code
        if self._iterable:
            samples = user_code.next_item() if size is None else [user_code.next_item() for _ in range(size)]
        else:
            request = self._request
            if request is None and self._latest is not None:
                recorded = [item.request for item in self._latest.items]
                request = recorded[0] if self._single else recorded
            samples = user_code.fetch(request)
        if self.mode not in [known.mode for known in self._faults]:
            failure = find_failure(error)
            self._faults.append(Fault(self.mode, failure.error if failure is not None else str(error)))
            self._control.write_faults(self._user_code.number, self._faults)
        return samples


def _data_of(call: Call) -> tuple[Any, ...]:
    return call.output, call.args, call.kwargs


def _forget_rng(calls: list[Call]) -> None:
    for call in calls:
        call.rng_before = call.rng_after = None

"""Fetch and collate for real while recording the data needed to serve the same again."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import astuple, dataclass, field
from typing import Any

from bottleneck.job import marks
from bottleneck.loader import trees
from bottleneck.loader.calls import Call, Sites, Tape
from bottleneck.loader.control import Control
from bottleneck.loader.recording.copies import ServedBatch, storages
from bottleneck.loader.recording.replay import (
    BRIEF_FETCHES,
    FETCHES,
    THOROUGH_FETCHES,
    UNCHECKED,
    Verification,
    check_marks,
    time_copy,
    verify,
    work_alone,
)
from bottleneck.loader.recording.store import OutputSlot, RecordedBatch, RecordedItem, RecordingStore, find_slots
from bottleneck.loader.user_code import UserCode, Work

_ENOUGH_ITEMS = 4


@dataclass(frozen=True)
class ItemTimes:
    """Parts of the time of one recorded item, without the time for copying; they need not add up to it."""

    total_s: float = 0.0
    head_s: float = 0.0
    """Before the first call of the augmentation."""
    augment_s: float = 0.0
    load_s: float = 0.0
    """In calls of load sites, within the head."""
    rest_s: float = 0.0
    """After the last call of the augmentation: time between two calls may be loading."""

    @staticmethod
    def sum(items: list[ItemTimes]) -> ItemTimes:
        """Add up the times of items."""
        columns = zip(*(astuple(item) for item in items), strict=True)
        return ItemTimes(*(sum(column) for column in columns))


def undisturbed(items: list[ItemTimes]) -> list[ItemTimes]:
    """Return the items that show where the time goes, the quicker half: where one was interrupted is chance."""
    if len(items) < _ENOUGH_ITEMS:
        return items
    return sorted(items, key=lambda item: item.total_s)[: (len(items) + 1) // 2]


def _item_times(tape: Tape, calls: list[Call], started_s: float, ended_s: float, samples: int) -> ItemTimes:
    augment = [call for call in calls if tape.stage(call.site) == "augment"]
    load = [call for call in calls if tape.stage(call.site) == "load"]
    total_s = max(0.0, ended_s - started_s - tape.copying_s())
    augment_s = _spent_s(augment)
    rest_s = 0.0
    if augment:
        # Of several samples, what runs between two calls is the end of one and the beginning of the next; only behind
        # the last call it is known to be an end. Where one call augments the whole batch, there is one end.
        copying_s = tape.copying_s() - tape.copying_s(augment[-1].ended_s)
        rest_s = min(samples, len(augment)) * max(0.0, ended_s - augment[-1].ended_s - copying_s)
    if samples > 1 and augment:
        return ItemTimes(total_s, max(0.0, total_s - augment_s - rest_s), augment_s, _spent_s(load), rest_s)
    first = augment[0].started_s if augment else ended_s
    # Copies of arguments were made in between; only those before the first augmentation count here.
    head_s = min(total_s, max(0.0, first - started_s - tape.copying_s(first)))
    load_s = _spent_s([call for call in load if call.ended_s <= first])
    return ItemTimes(total_s, head_s, augment_s, load_s, rest_s)


def _spent_s(calls: list[Call]) -> float:
    return sum(call.ended_s - call.started_s for call in calls)


_SLOW_ITEM_S = 0.5
_NO_ROOM = "what it was given for a batch does not fit into the memory for caches"
_LOOKED_AT = 8
_CHECKED = 2
"""Items, or batches, that are checked during the recording, if an item cannot be fetched again."""


@dataclass
class Report:
    """A worker's findings while it recorded."""

    sites: Sites
    items: list[ItemTimes] = field(default_factory=list)
    orders: set[tuple[str, ...]] = field(default_factory=set)
    """The orders in which sites were called within items, one entry for each different one."""
    collate_orders: set[tuple[str, ...]] = field(default_factory=set)
    """The same of marked stages within the collate function."""
    verification: Verification | None = None
    """None if items cannot be fetched twice (iterable datasets)."""
    sample_alone: bool = True
    """The recorded calls of the augmentation, or of the marked stages, work without the code around them."""
    collate_alone: bool = True
    """The same for marked stages within the collate function."""
    changes_samples: bool = False
    """The collate function changes the samples, so that each serving needs a copy."""
    keeps_samples: bool = False
    """The collate function puts the samples themselves into the batch, or parts of them."""
    batch_sizes: tuple[int, ...] = ()
    """Samples in each recorded batch."""
    has_samples: bool = False
    has_collated: bool = False
    recorded_bytes: int = 0
    """Bytes of a batch that is recorded whole, the largest so far."""
    mark_names: dict[str, frozenset[str]] = field(default_factory=dict)
    """Names of all stages that the user has marked, called or not."""
    lazy: set[tuple[str, str]] = field(default_factory=set)
    """Values that are read when they are used, and the stages that do; see `READ_BY_COPY`."""

    def add_item(self, tape: Tape, calls: list[Call], started_s: float, ended_s: float, samples: int = 1) -> None:
        """Note the times of one recorded item, or of the items of one `__getitems__`."""
        self.orders.add(tuple(call.site for call in calls))
        self.items.append(_item_times(tape, calls, started_s, ended_s, samples))


READ_BY_COPY = ""
"""Instead of a stage: the recording had to read the value."""


class Recorder(Work):
    """Records the batches of one worker, and reports to the main process.

    Args:
        checking_s: What it may take to check that recordings replay, beyond a first item.
    """

    def __init__(
        self,
        user_code: UserCode,
        tape: Tape,
        store: RecordingStore,
        control: Control,
        seed: int,
        checking_s: float = math.inf,
    ) -> None:
        self._user_code = user_code
        self._tape = tape
        self._store = store
        self._control = control
        self._worker = user_code.number
        self._seed = seed
        self._checking_s = checking_s
        self._in_worker = user_code.in_worker
        self._iterable = user_code.iterable
        self._report = Report(tape.sites)
        self._pending: list[RecordedItem] = []
        self._pending_bytes = self._left_out = 0
        """Bytes of the pending items, and items of the same batch for whose recording there was no room."""
        self._spoiled = False
        self._collated = self._looked_at = 0

    def fetch(self, request: Any) -> Any:
        """Fetch for real and remember it; the first time, check first that it replays."""
        self.drop()
        self._user_code.indices = request
        one_by_one = self._user_code.batched and not self._user_code.fetches_batches
        run = self._user_code.batch if self._user_code.fetches_batches else self._user_code.item
        requests = list(request) if one_by_one else [request]
        if not requests:
            return []  # an empty batch
        if self._report.verification is None:
            self._report.verification = self._verify(run, requests)
        values = [self.fetch_item(item, run) for item in self._user_code.while_wanted(requests)]
        return values if one_by_one else values[0]

    def _verify(self, run: Callable[[Any], Any], requests: list[Any]) -> Verification:
        clock = self._tape.clock
        started = clock()
        with self._tape.listening() as called:
            run(requests[0])
        took_s = clock() - started
        self._tape.sites.marked |= any(map(marks.is_mark, called))
        self._user_code.note_time(took_s * len(requests), len(requests))
        if BRIEF_FETCHES * took_s > self._checking_s:
            return UNCHECKED
        slow = took_s > _SLOW_ITEM_S or THOROUGH_FETCHES * took_s > self._checking_s
        fetches = 1 if slow else FETCHES
        results = [verify(run, item, self._tape, self._seed, fetches) for item in requests[: 1 if slow else 2]]
        found = Verification.of_all(results)
        self._report.sample_alone = found.alone
        return found

    def next_items(self) -> list[Any]:
        return [self.fetch_item()]

    def fetch_item(self, request: Any = None, run: Callable[[Any], Any] | None = None) -> Any:
        """Return one item, by default the next of a stream, and remember it as long as there is room."""
        if self._store.nbytes + self._pending_bytes > self._control.worker_cache_bytes:
            self._left_out += 1
            return (run or self._user_code.next_item)(request)
        clock = self._tape.clock
        with self._tape.recording(keep_rng=self._checks_alone) as calls:
            started_s = clock()
            value = (run or self._user_code.next_item)(request)
            ended_s = clock()
        calls = [call for call in calls if call.site not in self._tape.sites.unusable]
        item = RecordedItem(request, self._tape.copier.copy(value), calls)
        self._pending.append(item)
        if self._tape.restarted:
            # Marked stages are the only cuts: forget what was recorded before the first one was called.
            self._tape.restarted = False
            self._spoiled = True
            self._store.clear()
            self._report = Report(self._tape.sites, lazy=self._report.lazy)
            return value
        whole = self._user_code.fetches_batches and run is not None
        self._report.add_item(self._tape, calls, started_s, ended_s, samples=len(request) if whole else 1)
        self._note_item(item, value)
        self._pending_bytes += item.nbytes
        for call in calls:
            call.original = None  # only copies are kept of the user's objects
        return value

    @property
    def _checks_alone(self) -> bool:
        """True if items cannot be fetched again for a check, so that only their recorded calls are made again."""
        return self._iterable or self._report.verification is UNCHECKED

    def _note_item(self, item: RecordedItem, value: Any) -> None:
        """Find out what a recorded item says about the cuts."""
        calls = item.calls
        self._note_lazy(item)
        tape = self._tape
        if not tape.sites.marked:
            item.slots = find_slots(value, calls)
        item.nbytes = trees.nbytes((item.value, [(c.args, c.kwargs, c.output) for c in calls]))
        checked = _CHECKED if self._iterable else 1
        if not calls or len(self._report.items) > checked or not self._checks_alone:
            return
        if not tape.sites.marked:
            self._report.sample_alone &= work_alone(calls, tape, trees.similar)
        elif self._iterable:
            self._report.sample_alone &= check_marks(calls, tape, item.value, self._user_code.next_item, trees.similar)

    def _note_lazy(self, item: RecordedItem) -> None:
        """Note values that are read only when they are used, and what uses them; the first items show it."""
        if self._looked_at >= _LOOKED_AT:
            return
        self._looked_at += 1
        self._report.lazy |= {(name, READ_BY_COPY) for name in self._tape.copier.read}
        self._report.changes_samples |= self._notes_lazy(item.value, "collate")
        tape = self._tape
        for call in item.calls:
            if marks.is_mark(call.site):
                if self._notes_lazy(call.output, f"what follows {marks.name_of(call.site)}"):
                    tape.sites.changed_outputs[call.site] = time_copy(call.output, tape)
            elif tape.stage(call.site) == "augment" and self._notes_lazy((call.args, call.kwargs), "augment"):
                # What gave the argument gave it out lazy, too.
                copy_s = time_copy((call.args, call.kwargs), tape)
                tape.sites.changes_arguments[call.site] = tape.sites.changed_outputs[call.site] = copy_s

    def _notes_lazy(self, value: Any, stage: str) -> bool:
        """Note what of a recorded value is read whenever it is used, so that each serving needs a copy."""
        names = {name for leaf in trees.leaves(value) if (name := trees.name_lazy(leaf)) is not None}
        self._report.lazy |= {(name, stage) for name in names}
        return any(trees.is_lazy_image(leaf) for leaf in trees.leaves(value))

    def drop(self) -> None:
        self._pending = []
        self._pending_bytes = 0
        self._left_out = 0

    def collate(self, samples: Any) -> Any:
        """Collate the samples that were just recorded, and keep everything that fits."""
        items, left_out = self._pending, self._left_out
        self.drop()
        if not items:
            return None  # a left-over of the mode before
        whole = self._user_code.fetches_batches and not self._iterable
        # A dataset that fetches whole batches may give them as it likes: stacked, as a pair of tensors.
        size = len(items[0].request if whole else samples) if self._user_code.batched else 1
        with self._tape.recording(keep_rng=True, collating=True) as calls:
            batch = self._user_code.collate(samples)
        if self._spoiled:
            self._spoiled = False
            return batch
        if self._iterable and len(items) + left_out != size:
            return batch  # begun in the mode before; it will be discarded
        values = items[0].value if len(items) == 1 and not self._user_code.batched else [item.value for item in items]
        if whole:
            values = items[0].value
        seen = samples[: len(items)] if left_out else samples
        self._report.changes_samples |= not trees.equal(values, seen)
        self._report.keeps_samples |= bool(storages(samples) & storages(batch))
        calls, slots = self._without_originals(batch, calls)
        self._report.collate_orders.add(tuple(call.site for call in calls))
        self._collated += 1
        if calls and not left_out and self._collated <= _CHECKED:
            direct, collate = trees.copy_deep(batch), self._user_code.collate
            self._report.collate_alone &= check_marks(
                calls, self._tape, direct, lambda: collate(trees.copy_deep(values)), trees.equal
            )
        recorded = RecordedBatch(items, size, calls=calls, slots=slots)
        self._keep(recorded, batch, all_items=(len(items) + left_out) / len(items))
        self._control.reports.write(self._worker, self.report())
        return batch

    def _without_originals(self, batch: Any, recorded: list[Call]) -> tuple[list[Call], list[OutputSlot]]:
        """Return the calls of a batch that may be served, and where what they gave stands in it, which is let go."""
        calls = [call for call in recorded if call.site not in self._tape.sites.unusable]
        nested = {id(inner) for call in calls for inner in call.inner}
        slots = [slot for slot in find_slots(batch, calls) if id(calls[slot.call]) not in nested]
        for call in recorded:
            call.original = None
        return calls, slots

    def _keep(self, recorded: RecordedBatch, batch: Any, all_items: float) -> None:
        """Keep what fits of a batch that has `all_items` times the recorded items."""
        items, calls = recorded.items, recorded.calls
        self._store.budget_bytes = self._control.worker_cache_bytes
        nbytes = trees.nbytes(batch)
        inside = trees.nbytes([(call.args, call.kwargs, call.output) for call in calls])
        whole = nbytes + inside + int(all_items * sum(item.nbytes for item in items))
        self._report.recorded_bytes = max(self._report.recorded_bytes, whole)
        if self._store.nbytes + whole <= self._store.budget_bytes:
            recorded.collated = ServedBatch(batch, travels=self._in_worker)
            self._store.add(recorded, whole)
        elif not self._store.batches:
            # Not even one batch fits: keep the batch if it does, and as many of its samples as do.
            kept: list[RecordedItem] = []
            fits = nbytes <= self._store.budget_bytes
            taken = nbytes if fits else 0
            for item in items:
                if taken + item.nbytes > self._store.budget_bytes:
                    break
                kept.append(item)
                taken += item.nbytes
            collated = ServedBatch(batch, travels=self._in_worker) if fits else None
            self._tape.sites.unusable |= dict.fromkeys((call.site for call in calls), _NO_ROOM)
            self._store.add(RecordedBatch(kept, recorded.size, collated), taken)
        self._control.set_cache_bytes(self._worker, self._store.nbytes)

    def report(self) -> Report:
        batches, report = self._store.batches, self._report
        report.batch_sizes = tuple(batch.size for batch in batches)
        report.has_samples = bool(batches) and all(batch.items for batch in batches)
        report.has_collated = bool(batches) and all(batch.collated is not None for batch in batches)
        report.mark_names = {name: frozenset(modules) for name, modules in marks.names.items()}
        return report

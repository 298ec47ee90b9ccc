"""What runs inside a worker: fetch and collate a batch in the present mode.

One engine serves the dataset's proxy and the collate function's; in a worker both are the worker's own copies.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

from torch.utils.data import Subset, get_worker_info

from bottleneck.pipeline.cuts import CutSite
from bottleneck.staging import stages, trees
from bottleneck.staging.control import Control
from bottleneck.staging.cutting import Call, Playback, StopAfterCut, Tape, install
from bottleneck.staging.failures import UserCodeError, describe_failure
from bottleneck.staging.plan import Plan, Report
from bottleneck.staging.recording import (
    Pool,
    RecordedBatch,
    Served,
    Unit,
    fill,
    find_holes,
    follow,
    forget_originals,
    private_copy,
    shared_copy,
    storages,
)
from bottleneck.staging.tail import copy_locals, make_tail
from bottleneck.staging.verification import Facts, Verification, check_augment_alone, verify

_SLOW_ITEM_S = 0.5


class Blank:
    """Stands for the indices of a batch that needs none; remembers how many there would be."""

    def __init__(self, size: int) -> None:
        self.size = size

    def __len__(self) -> int:
        return self.size


class Cached:
    """What a fetch returns when the collated batch itself is served from a cache."""

    def __init__(self, size: int) -> None:
        self.size = size


class NoShareError(Exception):
    """An iterable dataset gave not a single item: this worker has no share of the data."""


class Engine:
    """Fetches and collates in the present mode.

    Args:
        dataset: The user's dataset.
        collate_fn: The user's collate function.
        control: The shared integers.
        sites: Where the dataset could be cut.
        cache_bytes: What the caches of this engine may take.
        seed: Seed for checking recordings.
        batched: Whether the loader collates lists of samples (`batch_size` is not None).
        iterable: Whether the dataset is an iterable one.
        passes_tokens: Whether nothing may be sent in the place of a batch that will be discarded; a loader with an
            iterator of its own works on every batch.
    """

    def __init__(
        self,
        dataset: Any,
        collate_fn: Callable[[Any], Any],
        control: Control,
        sites: tuple[CutSite, ...],
        cache_bytes: int,
        seed: int,
        *,
        batched: bool,
        iterable: bool,
        passes_tokens: bool = True,
    ) -> None:
        self.user_dataset = dataset
        self._collate_fn = collate_fn
        self._control = control
        self._sites = sites
        self._cache_bytes = cache_bytes
        self._seed = seed
        self._batched = batched
        self._iterable = iterable
        self._passes_tokens = passes_tokens
        self._started = False
        self._plan = Plan("fetch")
        self._plan_version = 0
        self._mode = stages.ALL

    # --- start -------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Cut the dataset, once per process: in a worker after the user's `worker_init_fn` has run."""
        if self._started:
            return
        self._started = True
        info = get_worker_info()
        self._worker = info.id if info is not None else 0
        self._in_worker = info is not None
        self._make_tensor = shared_copy if self._in_worker else private_copy
        self._tape = Tape()
        self._dataset = install(self.user_dataset, self._sites, self._tape, in_place=self._in_worker)
        if not self._iterable:
            chosen = tuple(site for site in self._sites if site.stage == "augment")
            self._tape.tail = make_tail(self._dataset, chosen)
        self._pool = Pool(self._cache_bytes)
        self._facts = Facts()
        self._verification: Verification | None = None
        self._augment_alone = True
        self._changing: set[int] = set()
        self._changes_samples = False
        self._pending: list[Unit] = []
        self._replayed: list[Unit] = []
        self._batch_nbytes = 0
        self._has_getitems = _fetches_batches(self._dataset)
        self._source: Iterator[Any] | None = None

    def latch_mode(self) -> int:
        """Read the mode for one batch, and pick up a new plan if there is one."""
        self.start()
        mode = self._control.mode
        if self._control.plan_version != self._plan_version:
            self._plan_version = self._control.plan_version
            self._plan = self._control.read_plan()
            self._drop_what_is_not_needed()
        self._mode = mode
        return mode

    def _drop_what_is_not_needed(self) -> None:
        for batch in self._pool.batches:
            for unit in batch.units:
                keep = unit.calls if self._plan.strategy in ("replay", "tail") else [
                    call for call in unit.calls if self._tape.stage(call.site) == "augment"
                ]  # fmt: skip
                kept = {id(call): number for number, call in enumerate(keep)}
                unit.holes = [
                    (kept[id(unit.calls[number])], inner, outer)
                    for number, inner, outer in unit.holes
                    if id(unit.calls[number]) in kept
                ]
                unit.calls = keep if self._plan.strategy != "fetch" else []
                if not unit.calls:
                    unit.holes = []
                if self._plan.strategy != "tail":
                    unit.locals = None
                for call in unit.calls:
                    call.rng_before = call.rng_after = None

    # --- map-style fetching --------------------------------------------------------------------------------

    def fetch(self, request: Any) -> Any:
        """Return the samples of a batch (or one item, when the loader does not batch) in the present mode.

        Raises:
            UserCodeError: If the user's dataset raised.
        """
        mode = self.latch_mode()
        if isinstance(request, Blank):
            if mode & (stages.LOAD | stages.RECORD):
                return Cached(0)  # a left-over of the mode before; it will be discarded
            return self._serve(mode, request.size, None)
        if mode & stages.RECORD:
            return self._record(request)
        if mode & stages.WITHIN_SAMPLE == stages.WITHIN_SAMPLE:
            return self._fetch_directly(request)
        return self._serve(mode, len(request) if self._batched else 1, request)

    def _fetch_directly(self, request: Any) -> Any:
        if not self._batched:
            return self._run(request)
        if self._has_getitems:
            return self._run_batch(request)
        dataset, index = self._dataset, None
        try:
            samples = []
            for index in request:
                samples.append(dataset[index])
        except Exception as error:
            raise self._failure(error, index) from None
        return samples

    def _run(self, index: Any) -> Any:
        try:
            return self._dataset[index]
        except Exception as error:
            raise self._failure(error, index) from None

    def _run_batch(self, indices: Any) -> Any:
        try:
            return self._dataset.__getitems__(indices)
        except Exception as error:
            raise self._failure(error, list(indices)) from None

    def _failure(self, error: Exception, index: Any, where: str = "dataset") -> UserCodeError:
        worker = self._worker if self._in_worker else None
        return UserCodeError(describe_failure(error, where, index=index, worker=worker, mode=self._mode))

    # --- iterable fetching ---------------------------------------------------------------------------------

    def iterate(self) -> Iterator[Any]:
        """Yield samples for ever, each in the mode that is present when it is asked for."""
        self.start()
        while True:
            mode = self.latch_mode()
            try:
                if mode & stages.RECORD:
                    samples = [self._record_unit(None)]
                elif mode & stages.LOAD:
                    samples = [self._iterate_really(mode)]
                elif not mode & (stages.WITHIN_SAMPLE | stages.COLLATE):
                    samples = [Cached(0)]
                else:
                    samples = self._serve(mode, None, None) if self._batched else [self._serve(mode, 1, None)]
            except NoShareError:
                return
            yield from samples

    def _iterate_really(self, mode: int) -> Any:
        if mode & stages.WITHIN_SAMPLE == stages.WITHIN_SAMPLE or self._plan.strategy == "fetch":
            return self._next_item(None)
        unit = self._next_unit()
        with self._tape.replaying(unit.calls, self._playback(mode)):
            return self._next_item(None)

    def _next_item(self, _: Any) -> Any:
        """Return the user's next item; start over when the stream ends, as the next epoch would."""
        try:
            if self._source is not None:
                try:
                    return next(self._source)
                except StopIteration:
                    self._source = None
            self._source = iter(self._dataset)
            return next(self._source)
        except StopIteration:
            raise NoShareError from None
        except Exception as error:
            raise self._failure(error, None) from None

    # --- recording -----------------------------------------------------------------------------------------

    def _record(self, request: Any) -> Any:
        self._pending = []
        one_by_one = self._batched and not self._has_getitems
        run = self._run_batch if self._batched and self._has_getitems else self._run
        requests = list(request) if one_by_one else [request]
        if self._verification is None:
            self._verification = self._verify(run, requests)
        values = [self._record_unit(item, run) for item in requests]
        return values if one_by_one else values[0]

    def _verify(self, run: Callable[[Any], Any], requests: list[Any]) -> Verification:
        started = time.perf_counter()
        run(requests[0])
        slow = time.perf_counter() - started > _SLOW_ITEM_S
        results = [verify(run, item, self._tape, self._seed) for item in requests[: 1 if slow else 2]]
        self._changing.update(*(result.changes_arguments for result in results))
        self._augment_alone = all(result.augment for result in results)
        return Verification(
            reproducible=all(result.reproducible for result in results),
            recorded=all(result.recorded for result in results),
            augment=self._augment_alone,
            replay=all(result.replay for result in results),
            stop=all(result.stop for result in results),
            tail=all(result.tail for result in results),
            changes_locals=any(result.changes_locals for result in results),
            changes_arguments=frozenset(self._changing),
            changes_outputs=any(result.changes_outputs for result in results),
        )

    def _record_unit(self, request: Any, run: Callable[[Any], Any] | None = None) -> Any:
        clock = self._tape.clock
        with self._tape.recording(keep_rng=self._iterable) as calls:
            started = clock()
            value = (run or self._next_item)(request)
            ended = clock()
        calls = [call for call in calls if call.site not in self._tape.unusable]
        unit = Unit(request, self._tape.copier.copy(value), calls)
        unit.locals = self._tape.locals
        unit.holes = find_holes(value, calls)
        last_augment = [n for n, call in enumerate(calls) if self._tape.stage(call.site) == "augment"][-1:]
        filled = all(any(hole[0] == number for hole in unit.holes) for number in last_augment)
        self._facts.add(self._tape, calls, started, ended, filled)
        kept = self._tape.tail.copies(unit.locals) if self._tape.tail is not None and unit.locals else []
        unit.nbytes = trees.nbytes((unit.value, kept, [(c.args, c.kwargs, c.output) for c in calls]))
        if self._iterable and calls and self._facts.items <= 2:
            self._check_iterable_item(calls)
        forget_originals(unit)
        self._pending.append(unit)
        return value

    def _check_iterable_item(self, calls: list[Call]) -> None:
        held, changing = check_augment_alone(calls, self._tape, trees.similar)
        self._augment_alone = self._augment_alone and held
        self._changing |= changing

    def _record_batch(self, samples: Any) -> Any:
        """Collate the samples that were just recorded, and keep everything that fits."""
        units, self._pending = self._pending, []
        size = len(samples) if self._batched else 1
        batch = self._collate_really(samples)
        if self._iterable and len(units) != size:
            return batch  # begun in the mode before; it will be discarded
        values = units[0].value if len(units) == 1 and not self._batched else [unit.value for unit in units]
        if self._batched and self._has_getitems and not self._iterable:
            values = units[0].value
        if not trees.equal(values, samples) or storages(samples) & storages(batch):
            self._changes_samples = True
        self._keep(units, size, batch)
        self._control.write_report(self._worker, self.report())
        return batch

    def _keep(self, units: list[Unit], size: int, batch: Any) -> None:
        served = Served(batch, self._make_tensor, travels=self._in_worker)
        self._batch_nbytes = served.nbytes
        whole = served.nbytes + sum(unit.nbytes for unit in units)
        if self._pool.has_room(whole):
            self._pool.add(RecordedBatch(units, size, served), whole)
        elif not self._pool.batches:
            # Not even one batch fits: keep the batch if it does, and as many of its samples as do.
            kept: list[Unit] = []
            taken = served.nbytes if served.nbytes <= self._cache_bytes else 0
            for unit in units:
                if taken + unit.nbytes > self._cache_bytes:
                    break
                kept.append(unit)
                taken += unit.nbytes
            collated = served if served.nbytes <= self._cache_bytes else None
            self._pool.add(RecordedBatch(kept, size, collated), taken)
        self._control.set_cache_bytes(self._worker, self._pool.nbytes)

    def report(self) -> Report:
        """Tell the main process what recording has found out."""
        batches = self._pool.batches
        return Report(
            facts=self._facts,
            verification=self._verification,
            augment_alone=self._augment_alone,
            site_stages={site: self._tape.stage(site) for site in self._tape.cuts},
            unusable=dict(self._tape.unusable),
            changes_arguments=frozenset(self._changing),
            changes_samples=self._changes_samples,
            batch_sizes=tuple(batch.size for batch in batches),
            has_samples=bool(batches) and all(batch.units for batch in batches),
            has_collated=bool(batches) and all(batch.collated is not None for batch in batches),
            batch_nbytes=self._batch_nbytes,
        )

    # --- serving -------------------------------------------------------------------------------------------

    def _next_unit(self) -> Unit:
        if not self._replayed:
            self._replayed = list(self._pool.next_batch(None).units)
        return self._replayed.pop(0)

    def _serve(self, mode: int, size: int | None, request: Any) -> Any:
        """Return samples of which some stages come from the cache.

        Args:
            mode: The stages that work for real; not all of those within a sample.
            size: Samples wanted; None: as many as the next recorded batch has.
            request: The indices, where loading is real.
        """
        if not mode & (stages.WITHIN_SAMPLE | stages.COLLATE):
            return Cached(size or 0)
        batch = self._pool.next_batch(size if self._batched else None)
        if not self._batched or (self._has_getitems and not self._iterable):
            return self._serve_unit(mode, batch.units[0], request)
        wanted = batch.size if size is None else size
        units = [batch.units[n % len(batch.units)] for n in range(wanted)]
        indices = [None] * wanted if request is None else request
        return [self._serve_unit(mode, unit, index) for unit, index in zip(units, indices, strict=False)]

    def _serve_unit(self, mode: int, unit: Unit, index: Any) -> Any:
        within = mode & stages.WITHIN_SAMPLE
        if not within:
            return self._sample(unit)
        if within & stages.LOAD or self._plan.strategy == "replay":
            return self._replay_unit(mode, unit, index)
        if self._plan.strategy == "tail":
            return self._run_tail(mode, unit)
        return self._fill_template(unit)

    def _sample(self, unit: Unit) -> Any:
        return trees.copy_deep(unit.value) if self._plan.copy_samples else unit.value

    def _fill_template(self, unit: Unit) -> Any:
        """Run the augmentation with its recorded arguments and put its output where it was in the sample."""
        outputs = []
        for call in unit.calls:
            args, kwargs = call.args, call.kwargs
            if call.site in self._plan.copy_arguments:
                args, kwargs = trees.copy_deep(args), trees.copy_deep(kwargs)
            try:
                outputs.append(self._tape.call_really(call, args, kwargs))
            except Exception as error:
                raise self._failure(error, unit.request) from None
        fresh = [(outer, follow(outputs[number], inner)) for number, inner, outer in unit.holes]
        return fill(self._sample(unit), fresh)

    def _replay_unit(self, mode: int, unit: Unit, index: Any) -> Any:
        """Run `__getitem__` with the recorded outputs of some of its cuts."""
        real = mode & stages.LOAD
        request = index if real else unit.request
        run = self._run_batch if self._batched and self._has_getitems else self._run
        try:
            with self._tape.replaying(unit.calls, self._playback(mode)):
                return run(request)
        except StopAfterCut:
            return self._sample(unit)

    def _run_tail(self, mode: int, unit: Unit) -> Any:
        """Run `__getitem__` from its augmentation on."""
        tail, local_variables = self._tape.tail, unit.locals
        if tail is None or local_variables is None:
            return self._replay_unit(mode, unit, None)
        if self._plan.copy_locals:
            local_variables = copy_locals(local_variables, tail.self_name)
        try:
            with self._tape.replaying(unit.calls, self._playback(mode)):
                return tail.function(local_variables)
        except StopAfterCut:
            return self._sample(unit)
        except Exception as error:
            raise self._failure(error, unit.request) from None

    def _playback(self, mode: int) -> Playback:
        return Playback(
            replayed=stages.WITHIN_SAMPLE & ~mode,
            sites=self._plan.sites,
            stop_after_augment=not mode & stages.FINISH and "finish" in self._plan.within_sample,
            copy_outputs=self._plan.copy_outputs,
            recorded_arguments=self._plan.strategy == "tail" and not mode & stages.LOAD,
            copy_arguments=self._plan.copy_arguments,
        )

    # --- collation -----------------------------------------------------------------------------------------

    def collate(self, samples: Any) -> Any:
        """Return the batch of the samples that were just fetched, in the mode they were fetched in.

        Raises:
            UserCodeError: If the user's collate function raised.
        """
        mode = self._mode
        if mode & stages.STOP:
            return None
        if mode & stages.RECORD:
            return self._record_batch(samples) if self._pending else None
        blank = _is_blank(samples)
        if blank or not mode & stages.COLLATE:
            if mode & (stages.LOAD | stages.RECORD) and blank:
                spare = not self._passes_tokens and self._pool.batches
                return self._serve_collated(None) if spare else None
            batch = self._serve_collated(samples.size if isinstance(samples, Cached) else None)
        else:
            batch = self._collate_really(samples)
        # Without the hand-off the batch is made, in shared memory as ever, and then not sent.
        return batch if mode & stages.HANDOFF else None

    def _collate_really(self, samples: Any) -> Any:
        try:
            return self._collate_fn(samples)
        except Exception as error:
            raise self._failure(error, None, "collate_fn") from None

    def _serve_collated(self, size: int | None) -> Any:
        batch = self._pool.next_batch(size or None)
        return batch.collated.serve() if batch.collated is not None else None


def _is_blank(samples: Any) -> bool:
    """Whether samples are left-overs or placeholders; a list that spans a switch of the mode counts as one."""
    if isinstance(samples, list) and samples:
        return isinstance(samples[0], Cached) or isinstance(samples[-1], Cached)
    return isinstance(samples, Cached)


def _fetches_batches(dataset: Any) -> bool:
    """Whether a dataset fetches whole batches in its own way; a plain `Subset` only asks the one inside."""
    while type(dataset) is Subset:
        dataset = dataset.dataset
    return bool(getattr(dataset, "__getitems__", None))

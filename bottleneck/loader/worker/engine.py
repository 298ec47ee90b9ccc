"""What runs inside a worker: fetch and collate a batch in the present mode.

One engine serves the dataset's proxy and the collate function's; in a worker both are the worker's own copies.
"""

from __future__ import annotations

import gc
import math
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from torch.utils.data import get_worker_info

from bottleneck.job.cuts import CutSite
from bottleneck.job.handles import Handle
from bottleneck.loader import modes, requests
from bottleneck.loader.observe.file_watch import FileWatch
from bottleneck.loader.observe.observer import Observer
from bottleneck.loader.observe.stack_sampler import StackSampler
from bottleneck.loader.observe.stage_frames import StageFrames
from bottleneck.loader.record.change_watch import Change, Watch
from bottleneck.loader.record.cutting import callables_at, install
from bottleneck.loader.record.faults import Fault
from bottleneck.loader.record.plan import Report
from bottleneck.loader.record.recorder import Recorder
from bottleneck.loader.record.store import Pool
from bottleneck.loader.record.tape import Tape
from bottleneck.loader.replay.server import Cached, Server
from bottleneck.loader.replay.tail import make_tail
from bottleneck.loader.requests import Blank, Request, Single
from bottleneck.loader.worker.mailbox import Control
from bottleneck.loader.worker.user_code import GivenUp, NoShareError, Source
from bottleneck.loader.worker.worker_facts import look_at_worker
from bottleneck.loader.worker_errors import UserCodeError, find_failure


class Engine:
    """Fetches and collates in the present mode.

    Args:
        dataset: The user's dataset.
        collate_fn: The user's collate function.
        control: The shared integers.
        sites: Where the dataset could be cut.
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
        self._seed = seed
        self._batched = batched
        self._iterable = iterable
        self._passes_tokens = passes_tokens
        self.checking_s = math.inf
        """What it may take to check that recordings replay."""
        self.sample_rate_hz: float | None = None
        """How often stacks are sampled while that is asked for; None: there will be no profile."""
        self._sampler: StackSampler | None = None
        self.handles: tuple[Handle, ...] = ()
        """What the dataset held open before the workers were started."""
        self._told_facts = False
        self.notes_files = False
        """Whether the files that are opened will be asked for; in workers only."""
        self._file_watch: FileWatch | None = None
        self._started = False
        self._plan_version = 0
        self._generation: int | None = None
        """When the present batch was asked for; None: not known."""
        self._request: Any = None
        """What the samples of the present batch were asked for with; None for a blank."""
        self._faults: list[Fault | Change] = []
        self._skips = False
        self._mode = modes.ALL

    # --- start -------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Cut the dataset, once per process: in a worker after the user's `worker_init_fn` has run."""
        if self._started:
            return
        self._started = True
        info = get_worker_info()
        worker, in_worker = (0, False) if info is None else (info.id, True)
        self._worker, self._in_worker = worker, in_worker
        self._tape = Tape()
        dataset = install(self.user_dataset, self._sites, self._tape, in_place=in_worker)
        if not self._iterable:
            self._tape.tail = make_tail(dataset, tuple(site for site in self._sites if site.stage == "augment"))
        self._pool = Pool()
        self._source = Source(dataset, self._collate_fn, worker if in_worker else None, batched=self._batched)
        self._source.is_stale = self._is_stale
        self._recorder = Recorder(
            self._source, self._tape, self._pool, self._control, worker, self._seed,
            in_worker=in_worker, iterable=self._iterable, checking_s=self.checking_s,
        )  # fmt: skip
        self._server = Server(self._source, self._tape, self._pool, iterable=self._iterable)
        self._watch = Watch(self._pool, self._tape)
        self._observer = Observer(
            self._source, self._tape, self._control, worker,
            lambda: [*callables_at(dataset, self._sites), ("collate_fn", self._collate_fn)],
            iterable=self._iterable,
        )  # fmt: skip
        self._stage_frames = StageFrames(self._source, self._tape)

    def latch_mode(self) -> int:
        """Read the mode for one batch, and pick up a new plan if there is one."""
        self.start()
        # The plan first: whoever knows it has been told before to record no more.
        if self._control.plan_version != self._plan_version:
            self._plan_version = self._control.plan_version
            self._server.use_plan(self._control.read_plan())
            self._watch.begin(self._server.plan)
            if self._in_worker:
                # Else the user's own collections of garbage would go through what is recorded here.
                gc.freeze()
        mode = self._control.mode
        if mode != self._mode:
            changes = self._watch.look(self._mode, whole=bool(mode & modes.CHECK))
            if changes:
                self._server.forget_order()
                self._report_faults(changes)
        self._mode = self._source.mode = mode
        if bool(mode & modes.SAMPLE_STACKS) != (self._sampler is not None):
            self._switch_sampler()
        if self.notes_files and bool(mode & modes.NOTE_FILES) != (self._file_watch is not None):
            self._switch_file_watch()
        return mode

    def _switch_sampler(self) -> None:
        if self._sampler is None:
            assert self.sample_rate_hz is not None
            self._sampler = StackSampler(self.sample_rate_hz)
            self._sampler.start()
        else:
            self._control.write_stacks(self._worker, self._sampler.stop())
            self._sampler = None

    def _switch_file_watch(self) -> None:
        if self._file_watch is None:
            self._file_watch = FileWatch()
            self._file_watch.start()
        else:
            self._control.write_files(self._worker, self._file_watch.stop())
            self._file_watch = None

    def close(self) -> None:
        """Stop what runs beside the loader."""
        if self._sampler is not None:
            self._sampler.stop()
            self._sampler = None

    def _tell_facts(self) -> None:
        """Tell once what this process has become by making a batch: libraries are imported late."""
        if not self._told_facts:
            self._told_facts = True
            self._control.write_facts(self._worker, look_at_worker(self.user_dataset, self.handles))

    # --- map-style fetching --------------------------------------------------------------------------------

    def fetch(self, request: Any) -> Any:
        """Return the samples of a batch (or one item, when the loader does not batch) in the present mode.

        Raises:
            UserCodeError: If the user's dataset raised.
        """
        mode = self.latch_mode()
        self._generation = getattr(request, "generation", None)
        self._skips = self._is_stale()
        if self._skips:
            return Cached(0)
        if isinstance(request, Request):
            request = list(request)
        elif isinstance(request, Single):
            request = request.index
        try:
            return self._fetch(mode, request)
        except GivenUp:
            self._skips = True
            return Cached(0)

    def _fetch(self, mode: int, request: Any) -> Any:
        self._request = None if isinstance(request, Blank) else request
        if isinstance(request, Blank):
            if mode & (modes.LOAD | modes.RECORD | modes.REST):
                return Cached(0)  # a left-over of the mode before, which will be discarded, or nothing is wanted
            return self._serve(mode, request.size, None)
        if mode & modes.RECORD:
            return self._recorder.fetch(request)
        if mode & modes.OBSERVE:
            return Cached(0) if self._observer.has_seen_enough else self._observer.fetch(self._server.plan, request)
        if mode & modes.NAME_FRAMES:
            return self._stage_frames.fetch(self._server.plan, request)
        if self._server.makes_samples_for_real(mode):
            return self._source.fetch(request)
        return self._serve(mode, len(request) if self._batched else 1, request)

    def _serve(self, mode: int, size: int, request: Any) -> Any:
        try:
            return self._server.samples(mode, size, request)
        except UserCodeError as error:
            return self._make_instead(mode, error)

    def _make_instead(self, mode: int, error: UserCodeError, size: int | None = None) -> Any:
        """Make samples for real where the job's code raised on what was served, and report that.

        What was recorded of one item may not fit to another, or may have been changed. Where the code raises as well
        when everything is real, it is the job that fails.

        Args:
            mode: What was served.
            error: What was raised.
            size: Samples wanted of a stream.

        Raises:
            UserCodeError: If the user's dataset raised again.
        """
        if self._iterable:
            samples = self._source.next_item() if size is None else [self._source.next_item() for _ in range(size)]
        else:
            wanted = self._request if self._request is not None else self._server.recorded_request()
            samples = self._source.fetch(wanted)
        changes = self._watch.look(mode, whole=True)
        if changes:  # which explains the error; what is left is as it was recorded
            self._server.forget_order()
            self._report_faults(changes)
        elif mode not in [known.mode for known in self._faults if isinstance(known, Fault)]:
            failure = find_failure(error)
            self._report_faults([Fault(mode, failure.error if failure is not None else str(error))])
        return samples

    def _report_faults(self, faults: Iterable[Fault | Change]) -> None:
        self._faults.extend(faults)
        self._control.write_faults(self._worker, self._faults)

    def _is_stale(self) -> bool:
        """Whether the present batch was asked for before a switch: it will be thrown away, and need not be made."""
        generation = self._generation
        return self._passes_tokens and generation is not None and generation < self._control.generation

    # --- iterable fetching ---------------------------------------------------------------------------------

    def iterate(self) -> Iterator[Any]:
        """Yield samples for ever, each in the mode that is present when it is asked for."""
        self.start()
        while True:
            mode = self.latch_mode()
            self._generation = requests.arrived_generation
            self._skips = self._is_stale()
            try:
                if self._skips:
                    self._recorder.drop()
                    self._observer.drop()
                    samples = [Cached(0)]
                elif mode & modes.RECORD:
                    samples = [self._recorder.fetch_unit()]
                elif mode & modes.OBSERVE:
                    seen = self._observer
                    samples = [Cached(0) if seen.has_seen_enough else seen.next_item(self._server.plan)]
                elif mode & modes.NAME_FRAMES:
                    samples = [self._stage_frames.next_item(self._server.plan)]
                elif mode & modes.LOAD:
                    samples = [self._iterate_really(mode)]
                elif not mode & (modes.WITHIN_SAMPLE | modes.COLLATE):
                    samples = [Cached(0)]
                else:
                    samples = self._serve_stream(mode)
            except NoShareError:
                return
            yield from samples

    def _iterate_really(self, mode: int) -> Any:
        if self._server.makes_samples_for_real(mode) or self._server.plan.strategy == "fetch":
            return self._source.next_item()
        try:
            return self._server.stream_item(mode)
        except UserCodeError as error:
            return self._make_instead(mode, error)

    def _serve_stream(self, mode: int) -> list[Any]:
        try:
            served = self._server.samples(mode, None if self._batched else 1, None)
        except UserCodeError as error:
            served = self._make_instead(mode, error, 1)
            return served if self._batched else [served[0]]
        return served if self._batched else [served]

    def report(self) -> Report:
        """What recording has found out so far."""
        return self._recorder.report()

    # --- collation -----------------------------------------------------------------------------------------

    def collate(self, samples: Any) -> Any:
        """Return the batch of the samples that were just fetched, in the mode they were fetched in.

        Raises:
            UserCodeError: If the user's collate function raised.
        """
        mode = self._mode
        skips, self._skips = self._skips, False
        if mode & (modes.STOP | modes.REST) or skips:
            return None
        if mode & modes.RECORD:
            return self._recorder.collate(samples)
        blank = _is_blank(samples)
        if blank or not mode & modes.COLLATE:
            if mode & modes.OBSERVE:
                self._observer.drop()
            if mode & (modes.LOAD | modes.RECORD) and blank:
                spare = not self._passes_tokens and self._server.has_batches
                return self._server.collated(None) if spare else None
            batch = self._server.collated(samples.size if isinstance(samples, Cached) else None)
        elif mode & modes.OBSERVE:
            batch = self._observer.collate(samples)
            self._tell_facts()
        elif mode & modes.NAME_FRAMES:
            batch = self._stage_frames.collate(self._server.plan, samples)
        else:
            batch = self._collate(mode, samples)
        # Without the hand-off the batch is made, in shared memory as ever, and then not sent.
        return batch if mode & modes.HANDOFF else None

    def _collate(self, mode: int, samples: Any) -> Any:
        collates = self._server.collates_for_real(mode)
        if collates and self._server.makes_samples_for_real(mode):
            return self._source.collate(samples)
        size = len(samples) if self._batched else None
        try:
            return self._source.collate(samples) if collates else self._server.collate(mode, samples)
        except UserCodeError as error:
            return self._source.collate(self._make_instead(mode, error, size))


def _is_blank(samples: Any) -> bool:
    """Whether samples are left-overs or placeholders; a list that spans a switch of the mode counts as one."""
    if isinstance(samples, list) and samples:
        return isinstance(samples[0], Cached) or isinstance(samples[-1], Cached)
    return isinstance(samples, Cached)

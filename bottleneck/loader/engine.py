"""The work of a worker: fetch and collate a batch in the present mode.

One engine serves the dataset's proxy and the collate function's; in a worker both are the worker's own copies.
"""

from __future__ import annotations

import gc
import math
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import wraps
from typing import Any

from torch.utils.data import get_worker_info

from bottleneck.job.cuts import CutSite
from bottleneck.job.inspect import Handle, is_file, is_inherited, walk
from bottleneck.job.replaced import replace_function
from bottleneck.loader import control as control_module
from bottleneck.loader import modes
from bottleneck.loader.calls import Tape
from bottleneck.loader.control import Blank, Control, Request, Single
from bottleneck.loader.cut import Undo, callables_at, install, put_back, step_aside
from bottleneck.loader.examining.examine import Examiner
from bottleneck.loader.observing.garbage import CollectionCount
from bottleneck.loader.observing.observe import Observer, StageFrames
from bottleneck.loader.recording.record import Recorder, Report
from bottleneck.loader.recording.serve import Server
from bottleneck.loader.recording.store import RecordingStore
from bottleneck.loader.snapshots import Snapshots
from bottleneck.loader.threads import OneThread, library_threads
from bottleneck.loader.user_code import SKIPPED, GivenUp, NoShareError, Placeholder, UserCode, Work, is_placeholder

_GREW_BY = 4
"""Entries that a container got since the first batch, from which on it grows with the samples."""


@dataclass(frozen=True)
class WorkerFacts:
    """A worker's report after it has made a batch.

    Attributes:
        inherited: Names of what the dataset held open before this process was forked, and still uses.
        growing: Names of dicts in the dataset that grew from batch to batch, such as a cache of samples.
        first_samples: Checksums of the first samples of its stream.
        made: How many samples were made for each of them.
        library_threads: What `library_threads` returns there.
    """

    inherited: tuple[str, ...] = ()
    growing: tuple[str, ...] = ()
    first_samples: tuple[int, ...] = ()
    made: tuple[int, ...] = ()
    library_threads: int = 1


def sizes_in(dataset: Any) -> dict[str, int]:
    """Return the lengths of the dicts of samples that a dataset may hold, by their names, without what was cut into it.

    A list that grows is mostly a log, and the files in a dict are opened again in no time.
    """
    held = walk(dataset, "self", stop_at=lambda value: isinstance(value, Tape))
    return {
        each.name: len(each.value)
        for each in held
        if isinstance(each.value, dict) and not is_file(next(iter(each.value.values()), None))
    }


_MAX_FILES = 50_000
"""Files that are noted in one worker; of a pool that opens more, the others stay in memory, which is noticed."""
_READERS_IN_C = (("cv2", "imread"), ("torchvision.io.image", "read_file"))


@dataclass(frozen=True)
class NotedFiles:
    """Files that one worker opened."""

    opened: tuple[str, ...]
    """Absolute paths, in the order of opening, each once."""
    opens: int


class FileWatch:
    """Notes which files the user's code opens inside a worker, while that is asked for.

    An audit hook sees every `open` of Python's. It cannot be taken away again, so that it is only ever installed in a
    worker, and only for a diagnosis with cold files. Files that code in C opens are found if it stays open or
    mapped; two readers of images that open and close a file in one call are noted by their Python functions.
    """

    def __init__(self) -> None:
        self._active = self._installed = False
        self._opened: dict[str, None] = {}
        self._opens = 0
        self._replaced = ExitStack()

    def start(self) -> None:
        if not self._installed:
            self._installed = True
            sys.addaudithook(self._hook)
        for module, name in _READERS_IN_C:
            if hasattr(sys.modules.get(module), name):
                self._replaced.callback(replace_function(sys.modules[module], name, self._noting))
        self._active = True

    def stop(self) -> NotedFiles:
        self._active = False
        self._replaced.close()
        return NotedFiles(tuple(self._opened), self._opens)

    def _hook(self, event: str, args: tuple[Any, ...]) -> None:
        if self._active and event == "open":
            path, _, flags = args
            self._note(path, flags)

    def _note(self, path: Any, flags: int = os.O_RDONLY) -> None:
        """Note one file, unless it is opened for writing alone."""
        if not isinstance(path, (str, bytes, os.PathLike)) or flags & (os.O_WRONLY | os.O_RDWR) == os.O_WRONLY:
            return
        self._opens += 1
        name = os.fsdecode(path)
        if name not in self._opened and len(self._opened) < _MAX_FILES:
            self._opened[name if os.path.isabs(name) else os.path.abspath(name)] = None

    def _noting(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """Return a reader in C that notes its file."""

        @wraps(original)
        def noting(path: Any, *args: Any, **kwargs: Any) -> Any:
            self._note(path)
            return original(path, *args, **kwargs)

        return noting


_IDLE = Work()


@dataclass(eq=False, repr=False)
class Engine:
    """Fetches and collates in the present mode."""

    user_dataset: Any
    collate_fn: Callable[[Any], Any]
    control: Control
    sites: tuple[CutSite, ...]
    seed: int
    """For checking recordings."""
    batched: bool = field(kw_only=True)
    """The loader collates lists of samples (`batch_size` is not None)."""
    iterable: bool = field(kw_only=True)
    can_skip_batches: bool = True
    """A batch that will be discarded need not be sent."""
    checking_s: float = math.inf
    """Seconds that checking whether recordings replay may take."""
    at_start: Callable[[], object] | None = None
    """Called in each worker when it starts."""
    handles: tuple[Handle, ...] = ()
    """Handles that the dataset held open before the workers were started."""
    notes_files: bool = False
    """True if the files that are opened will be asked for; in workers only."""

    def __post_init__(self) -> None:
        self._file_watch: FileWatch | None = None
        self._one_thread = OneThread()
        self._reported_facts = self._started = False
        self._undo: list[Undo] = []
        self._first_sizes: dict[str, int] | None = None
        self._plan_version = 0
        self._generation: int | None = None
        """When the present batch was asked for; None: not known."""
        self._skips = False
        """The present batch will be thrown away, and was not made."""
        self._hands_over = True
        """The present batch is sent; at the start of a worker, nothing but its state."""
        self._mode = modes.ALL
        self._began_s = 0.0

    # --- start -------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Cut the dataset, once per process: in a worker after the user's `worker_init_fn` has run."""
        if self._started:
            return
        self._started = True
        self._blocks_before = sys.getallocatedblocks()
        self._collected = CollectionCount()
        info = get_worker_info()
        worker = None if info is None else info.id
        # A stream does not say when one of its batches begins.
        self._tally = None if worker is None or self.iterable else self.control.tally(worker)
        self._tape = tape = Tape()
        dataset = self.user_dataset
        self._undo = install(dataset, self.sites, tape)
        self._store = RecordingStore()
        self._user_code = user_code = UserCode(
            dataset, self.collate_fn, worker, batched=self.batched, iterable=self.iterable
        )
        user_code.is_stale = self._is_stale
        self._recorder = Recorder(user_code, tape, self._store, self.control, self.seed, self.checking_s)
        self._server = Server(user_code, tape, self._store, self.control)
        self._observer = Observer(
            user_code,
            tape,
            self.control,
            lambda: [*callables_at(dataset, self.sites), ("collate_fn", self.collate_fn)],
        )
        self._examiner = Examiner(user_code, tape, self.control)
        self._stage_frames = StageFrames(user_code, tape)
        self._snapshots = Snapshots(lambda: {"dataset": dataset} | user_code.stream_apart)
        self._work: Work = user_code
        step_aside(tape.cuts, aside=True)

    def stop(self) -> None:
        """Take the cuts out of the dataset again; in a worker they end with it."""
        put_back(self._undo)

    def _work_for(self, mode: int) -> Work:
        for bits, work in (
            (modes.STOP | modes.REST, _IDLE),
            (modes.RECORD, self._recorder),
            (modes.OBSERVE, self._observer),
            (modes.EXAMINE, self._examiner),
            (modes.NAME_FRAMES, self._stage_frames),
        ):
            if mode & bits:
                return work
        return self._server if self._server.is_needed(mode) else self._user_code

    def refresh_mode(self) -> int:
        """Read the mode for one batch, and pick up a new plan if there is one."""
        self.start()
        # The plan first: a worker that knows it must not record any more, and the mode said so before.
        new_plan = self.control.plan_version != self._plan_version
        if new_plan:
            self._use_new_plan()
        mode, before = self.control.mode, self._mode
        if mode != before:
            self._collected.switch(real=mode == modes.ALL and self._plan_version > 0)
            if before == modes.ALL and self._user_code.in_worker:
                made = (self._collected.count, self._collected.seconds)
                self.control.made.write(self._user_code.number, made)
            if mode & modes.CHECK:
                self.control.changed.write(self._user_code.number, self._server.changed())
            if before & modes.OBSERVE:
                self._snapshots.forget()
            if mode & modes.RECORD:
                self._blocks_before = sys.getallocatedblocks()
            if (mode ^ before) & modes.ONE_THREAD and self._user_code.in_worker:
                (self._one_thread.begin if mode & modes.ONE_THREAD else self._one_thread.end)()
            self._switch_file_watch(mode)
        if new_plan or mode != before:
            self._mode = self._user_code.mode = self._server.mode = mode
            work = self._work_for(mode)
            if work is not self._work:
                self._work.drop()
                self._work = work
                step_aside(self._tape.cuts, aside=work is self._user_code)
        return mode

    def _use_new_plan(self) -> None:
        self._plan_version = self.control.plan_version
        plan = self.control.read_plan()
        self._server.use_plan(plan)
        self._observer.plan = self._examiner.plan = self._stage_frames.plan = plan
        if self._user_code.in_worker and sys.getallocatedblocks() > 2 * self._blocks_before:
            # Else collections of garbage would go through more objects of bottleneck than of the user. With fewer of
            # them, none of the heap is frozen: a job that collections slow would be measured too fast.
            gc.freeze()

    def _switch_file_watch(self, mode: int) -> None:
        """Start noting which files are opened, or leave what was noted for the main process."""
        if self.notes_files and bool(mode & modes.NOTE_FILES) != (self._file_watch is not None):
            if self._file_watch is None:
                self._file_watch = FileWatch()
                self._file_watch.start()
            else:
                self.control.files.write(self._user_code.number, self._file_watch.stop())
                self._file_watch = None

    def _report_facts(self) -> None:
        """Report once what this process has become by making a batch: libraries are imported late."""
        if self._reported_facts:
            return
        self._reported_facts = True
        dataset, before = self.user_dataset, self._first_sizes or {}
        sizes = sizes_in(dataset).items()
        facts = WorkerFacts(
            inherited=tuple(handle.name for handle in self.handles if is_inherited(handle, dataset)),
            growing=tuple(name for name, size in sizes if size >= before.get(name, size) + _GREW_BY),
            first_samples=tuple(self._user_code.first_samples),
            made=tuple(self._user_code.made),
            library_threads=library_threads(),
        )
        self.control.facts.write(self._user_code.number, facts)

    # --- batches -------------------------------------------------------------------------------------------

    def fetch(self, request: Any) -> Any:
        """Return the samples of a batch (or one item, when the loader does not batch) in the present mode."""
        mode = self.refresh_mode()
        self._generation = getattr(request, "generation", None)
        self._skips = self._is_stale()
        if self._skips:
            return SKIPPED
        if isinstance(request, Request):
            request = list(request)
        elif isinstance(request, Single):
            request = request.content
        elif isinstance(request, Blank) and modes.reads_indices(mode):
            return SKIPPED  # a left-over of the mode before, which will be discarded
        self._user_code.indices = None
        self._began_s = self._tape.clock()
        try:
            samples = self._work.fetch(request)
        except GivenUp:
            self._skips = True
            return SKIPPED
        if self._first_sizes is None and self._user_code.in_worker:  # the first batch
            self._user_code.note_time(self._tape.clock() - self._began_s, len(request) if self.batched else 1)
        return samples

    def iterate(self) -> Iterator[Any]:
        """Yield samples of a stream for ever, each in the mode that is present when it is asked for."""
        while True:
            self.refresh_mode()
            self._generation = control_module.arrived_generation
            self._skips = self._is_stale()
            if self._skips:
                self._work.drop()
                yield SKIPPED
                continue
            try:
                items = self._work.next_items()
            except NoShareError:
                return
            yield from items

    def collate(self, samples: Any) -> Any:
        """Return the batch of the samples that were just fetched, in the mode they were fetched in."""
        mode, work = self._mode, self._work
        skips, self._skips = self._skips, False
        self._hands_over = not skips and bool(mode & modes.HANDOFF)
        if skips:
            return None
        if is_placeholder(samples):
            batch = self._collate_placeholder(mode, samples)
        else:
            batch = work.collate(samples)
            tally = self._tally
            if tally is not None and mode == modes.ALL:
                took_s = self._tape.clock() - self._began_s
                if tally[0]:
                    tally[1], tally[2], tally[3] = tally[1] + 1, tally[2] + took_s, tally[3] + took_s * took_s
                else:
                    tally[0] = took_s
            if self._first_sizes is None:
                self._first_sizes = sizes_in(self.user_dataset) if self._user_code.in_worker else {}
            if mode & modes.OBSERVE:
                self._report_facts()
        # Without the hand-off the batch is made, in shared memory as ever, and then not sent.
        return batch if mode & (modes.HANDOFF | modes.RECORD) else None

    def _collate_placeholder(self, mode: int, samples: Any) -> Any:
        if self._work is self._server and not mode & modes.LOAD:
            return self._server.collated(samples.size if isinstance(samples, Placeholder) else 0)
        self._work.drop()
        return self._server.collated(0) if mode & modes.HANDOFF and not self.can_skip_batches else None

    def _is_stale(self) -> bool:
        """Return True if the present batch was asked for before a switch: it need not be made."""
        generation = self._generation
        return self.can_skip_batches and generation is not None and generation < self.control.generation

    def state_dict(self) -> dict[str, Any]:
        """Return the state of the user's dataset if the batch that was just made is sent; otherwise an empty one."""
        self.start()
        try:
            if self._mode & modes.OBSERVE and self._user_code.in_worker:
                self.control.snapshots.write(self._user_code.number, self._snapshots.time_one())
            return self._snapshots.take() if self._hands_over else {}
        except BaseException as error:  # noqa: BLE001 - anything the user's code raises is described
            raise self._user_code.failure(error, None) from None

    def report(self) -> Report:
        return self._recorder.report()

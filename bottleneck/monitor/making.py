"""The clock of a process that makes batches: the time in each stage, the slowest sample, the line at work.

It runs for every batch of a run that may take days: it keeps facts on one batch, and its errors never reach the job.
"""

from __future__ import annotations

import gc
import os
import sys
import threading
import time
import weakref
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from types import FrameType
from typing import TYPE_CHECKING, Any, NamedTuple

from bottleneck.job import marks
from bottleneck.job.replaced import replace_function
from bottleneck.job.torch_loading import QUEUE, WORKER, DatasetKind, run_worker_loop
from bottleneck.loader.observing.lines import line_of
from bottleneck.loader.observing.observation import Line
from bottleneck.monitor.memory import MemoryWatch

if TYPE_CHECKING:
    from bottleneck.monitor.channel import Sender

LOOK_EVERY_S = 0.05
"""Seconds between two looks at the line at work."""
MAX_INDICES = 512
_LINES_KEPT = 64
FETCH, OTHER, COLLATE = "fetch", "other", "collate"


class Made(NamedTuple):
    """The making of a batch, in plain values that `marshal` accepts.

    Attributes:
        pid, worker: The process; the number of the worker, or None in the main process.
        began_s, ended_s: Times on the clock of `time.perf_counter`, which the processes of a machine share.
        stages: Seconds in each stage, without those in stages inside it.
        slowest, slowest_s: The index of the sample that was seen at work most often, and its approximate time; None
            and 0 if none was seen, or samples are not fetched one by one.
        line: File, line, function, and the called function.
        indices: Indices from the sampler, made plain if necessary; None for a batch of a stream.
    """

    pid: int
    worker: int | None
    began_s: float
    ended_s: float
    stages: dict[str, float]
    slowest: Any
    slowest_s: float
    line: tuple[str, int, str, str | None] | None
    indices: Any


class Indices(list[Any]):
    """The indices of a batch, which show the sample that is being fetched during an iteration over them."""

    _iterator: Any = None

    def __iter__(self) -> Iterator[Any]:
        self._iterator = super().__iter__()
        return self._iterator  # type: ignore[no-any-return]

    @property
    def at(self) -> int | None:
        """Position of the last index that was taken; None before the first and after the last sample."""
        left = 0 if self._iterator is None else self._iterator.__length_hint__()
        return len(self) - left - 1 if 0 <= left < len(self) else None


class _Making(NamedTuple):
    """Raw facts on a batch, which become `Made` on request."""

    began_s: float
    ended_s: float
    stages: dict[str, float]
    request: Any
    lines: Counter[Line]
    samples: Counter[int]


class BatchClock:
    """A timer of the batches that this process makes, in one thread.

    Args:
        worker: The number of this worker; None in the main process.
        done: Called after each batch.
        clock: Monotonic time in seconds.
        look_every_s: Seconds between two looks.
    """

    def __init__(
        self,
        worker: int | None,
        done: Callable[[], None] | None = None,
        clock: Callable[[], float] = time.perf_counter,
        look_every_s: float = LOOK_EVERY_S,
    ) -> None:
        self._worker, self._done, self._clock, self._look_every_s = worker, done, clock, look_every_s
        self.number: int | None = None
        """Number of the last requested batch."""
        self.last: _Making | None = None
        self.dataset: Callable[[], Any] = lambda: None
        """Return the dataset that the batches are made of; None once it is gone, or if it is a list."""
        self._stages: dict[str, float] = {}
        self._stage = ""
        self._began_s = self._since_s = 0.0
        self._request: Any = None
        self._lines: Counter[Line] = Counter()
        self._samples: Counter[int] = Counter()
        self._thread: int | None = None
        """Identifier of the thread that is making a batch; None if no batch is being made."""

    def make(self, fetch: Callable[..., Any], request: Any, *owner: Any) -> Any:
        """Make a batch with a function or, given its owner, a method; note the times. Errors in it are raised."""
        if self._thread is not None:  # a loader within a dataset, or a second loop in another thread
            return fetch(*owner, request)
        self._stages, self._stage, self._request = {}, FETCH, request
        if self._lines:
            self._lines, self._samples = Counter(), Counter()
        began_s = self._began_s = self._since_s = self._clock()
        before, marks.handler = marks.handler, self._answer_mark
        self._thread = threading.get_ident()
        try:
            return fetch(*owner, request)
        finally:
            self._thread, marks.handler = None, before
            self._enter("")
            self.last = _Making(began_s, self._since_s, self._stages, request, self._lines, self._samples)
            if self._done is not None:
                self._done()

    def run_in(self, stage: str, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Call a function as a stage of the batch that is being made."""
        if threading.get_ident() != self._thread:
            return function(*args, **kwargs)
        outer = self._enter(stage)
        try:
            return function(*args, **kwargs)
        finally:
            self._enter(outer)

    def look(self) -> float:
        """Note the line and the sample at work, in another thread; return the age of the batch [s], 0 without one."""
        thread, request = self._thread, self._request
        if thread is None:
            return 0.0
        frame = sys._current_frames().get(thread)
        line = None if frame is None else _line_of(frame)
        if line is not None and (line in self._lines or len(self._lines) < _LINES_KEPT):
            self._lines[line] += 1
        at = request.at if isinstance(request, Indices) and self._stage != COLLATE else None
        if at is not None:
            self._samples[at] += 1
        return self._clock() - self._began_s

    def made(self, making: _Making) -> Made:
        """Return the facts on a batch in plain values."""
        stages = making.stages
        if stages.keys() - {FETCH, COLLATE}:
            stages = {OTHER if stage == FETCH else stage: seconds for stage, seconds in stages.items()}
        line, slowest, looks = None, None, 0
        if making.lines:
            seen = making.lines.most_common(1)[0][0]
            line = (seen.file, seen.line, seen.function, seen.calls) if seen.line else None
        if making.samples:
            at, looks = making.samples.most_common(1)[0]
            slowest = plain_index(making.request[at])
        indices = _indices(making.request)
        slowest_s = looks * self._look_every_s
        return Made(
            os.getpid(), self._worker, making.began_s, making.ended_s, stages, slowest, slowest_s, line, indices
        )

    def _answer_mark(self, site: str, function: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        return self.run_in(marks.name_of(site), function, *args, **kwargs)

    def _enter(self, stage: str) -> str:
        """Charge the time so far to the current stage, and enter another one; return the former."""
        now_s, before = self._clock(), self._stage
        self._stages[before] = self._stages.get(before, 0.0) + now_s - self._since_s
        self._since_s, self._stage = now_s, stage
        return before


def _line_of(frame: FrameType) -> Line | None:
    collects = gc.isenabled()
    gc.disable()  # a collection may let the other thread leave this frame: see `LineSampler`
    try:
        return line_of(frame, _ENTRIES, (__file__,))
    finally:
        if collects:
            gc.enable()


_ENTRIES = (BatchClock.make.__code__,)


def plain_index(index: Any) -> Any:
    """Return an index for JSON: None, an integer, or a text, which is cut to 40 characters unless it was a string."""
    if index is None or type(index) in (int, str):
        return index
    try:
        return int(index)
    except (TypeError, ValueError):
        return str(index)[:40]


def _indices(request: Any) -> Any:
    """Return the first indices of a request, unchanged; None for a stream, whose request is a list of None."""
    if not isinstance(request, (list, tuple)):
        return None if request is None else [request]
    return list(request[:MAX_INDICES]) if request and request[0] is not None else None


# --- PyTorch's fetchers ------------------------------------------------------------------------------------

_create_fetcher: Callable[..., Any] = DatasetKind.create_fetcher


def timed_fetchers(clock: BatchClock) -> Callable[..., Any]:
    """Return a function that makes PyTorch's fetchers, each of them timed."""

    def create(kind: Any, *args: Any, **kwargs: Any) -> Any:
        fetcher = _create_fetcher(kind, *args, **kwargs)
        with suppress(Exception):  # of an unknown class: it stays unchanged
            collate = fetcher.collate_fn
            fetcher.collate_fn = lambda samples: clock.run_in(COLLATE, collate, samples)
            by_sample = kind == DatasetKind.Map and not getattr(fetcher.dataset, "__getitems__", None)
            kind_of_fetcher: Any = type(fetcher)
            fetcher.bottleneck_clock = clock
            with suppress(TypeError):  # such as a list
                clock.dataset = weakref.ref(fetcher.dataset)
            fetcher.__class__ = _timed_kind(kind_of_fetcher, by_sample)
        return fetcher

    return create


@cache
def _timed_kind(kind: Any, by_sample: bool) -> Any:
    """Return a subclass of a fetcher's class, with a clock around each batch."""

    # Not an attribute of the fetcher: in a reference cycle, its dataset would live longer.
    def fetch(self: Any, request: Any) -> Any:
        asked = Indices(request) if by_sample and type(request) is list else request
        return self.bottleneck_clock.make(kind.fetch, asked, self)

    return type(kind.__name__, (kind,), {"fetch": fetch})


# --- workers -----------------------------------------------------------------------------------------------


class _Requests:
    """A worker's queue of requests, which passes the number of each request to the clock."""

    def __init__(self, queue: Any, clock: BatchClock) -> None:
        self._queue, self._clock = queue, clock

    def get(self, *args: Any, **kwargs: Any) -> Any:
        request = self._queue.get(*args, **kwargs)
        if isinstance(request, tuple) and len(request) == 2:
            self._clock.number = request[0]
        return request

    def __getattr__(self, name: str) -> Any:
        return getattr(self._queue, name)


@contextmanager
def looking(clock: BatchClock, every_s: float = LOOK_EVERY_S) -> Iterator[None]:
    """Look at the line at work at intervals, while the context is entered."""
    over = threading.Event()

    def look() -> None:
        with suppress(Exception):  # the batches continue
            while not over.wait(every_s):
                clock.look()

    thread = threading.Thread(target=look, name="bottleneck-monitor-lines", daemon=True)
    with suppress(RuntimeError):  # no further thread is possible
        thread.start()
    try:
        yield
    finally:
        over.set()


def run_worker(send: Sender, of_torchdata: bool, *args: Any) -> None:
    """Run a worker of PyTorch, or of torchdata, and send the facts on each of its batches, and on its memory."""
    memory = MemoryWatch(args[WORKER])

    def done() -> None:
        with suppress(Exception):  # such as an index whose `str` fails
            send(clock.made(clock.last), clock.number)  # type: ignore[arg-type]  # there is one now
            look = memory.look(clock.dataset())
            if look is not None:
                send.send_memory(look)

    clock = BatchClock(args[WORKER], done)
    replace_function(DatasetKind, "create_fetcher", lambda _: staticmethod(timed_fetchers(clock)))
    with looking(clock):
        requests = _Requests(args[QUEUE], clock)
        run_worker_loop(*args[:QUEUE], requests, *args[QUEUE + 1 :], of_torchdata=of_torchdata)

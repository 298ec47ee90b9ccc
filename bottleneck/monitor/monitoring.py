"""The hooks of a monitored process, and the thread that writes their observations."""

from __future__ import annotations

import functools
import os
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook
from torch.utils.data import DataLoader

from bottleneck.errors import UsageError
from bottleneck.job.replaced import replace_function
from bottleneck.job.torch_loading import (
    WORKER_LOOP,
    BaseIterator,
    DatasetKind,
    dataset_of,
    given_by,
    number_of_last,
    number_of_workers,
    worker_loops,
    workers_of,
)
from bottleneck.job.users_code import is_users
from bottleneck.job.world import find_place, world_size
from bottleneck.measure.machine.environment import free_memory_bytes
from bottleneck.monitor.channel import Channel
from bottleneck.monitor.file import EventFile, path_of_rank
from bottleneck.monitor.making import LOOK_EVERY_S, BatchClock, Made, plain_index, run_worker, timed_fetchers
from bottleneck.monitor.memory import MemoryWatch
from bottleneck.monitor.recorder import Pass, Recorder
from bottleneck.results.monitor import Start
from bottleneck.script import batches as wrapped
from bottleneck.script.seen import Saved

FLUSH_EVERY_S = 0.8
"""Seconds between two writes: with the interval of the looks at most one second."""
SUMMARY_EVERY_S = 60.0
LOOK_SELDOM_S = 0.2
"""Seconds between two looks while no batch takes long: waking the thread takes half a millisecond from the loop."""
_PATIENCE_S = 5.0
"""Maximum seconds for which the end waits for a file that blocks."""
_PASS, _BEGAN = "_bottleneck_pass", "_bottleneck_began_s"
"""Names of our attributes on PyTorch's iterators."""


class Monitor:
    """A context that watches a process; its failures do not affect the job.

    Args:
        path: The file of events; every rank but the first has its number in the file's name.
        tell: Gets sentences for people, in another thread.
        command: The monitored command.

    Raises:
        UsageError: The file cannot be opened, or the process is monitored already.
    """

    _is_entered: ClassVar[bool] = False

    def __init__(self, path: str | os.PathLike[str], tell: Callable[[str], None], command: Sequence[str] = ()) -> None:
        place = find_place()
        rank, self._world = (place.rank or 0, place.world) if place else _own_rank()
        self.path = path_of_rank(os.path.abspath(path), rank)
        self._tell, self._command = tell, list(command)
        self._recorder = Recorder(rank)
        self._process = os.getpid()
        self._clock = BatchClock(None)
        self._memory = MemoryWatch(None)
        self._hooked: set[str] = set()
        """Modules whose workers send facts."""
        self._saved = Saved(self._see_saved)
        self._over = False
        self._wake = threading.Event()
        self._makes_batches = False
        """True once this process makes batches, whose lines are looked at: workers make those of most loops."""
        self._look_in_s = LOOK_EVERY_S
        self._thread = threading.Thread(target=self._run, name="bottleneck-monitor", daemon=True)
        self._ends = ExitStack()
        self._flushed_s = self._summed_s = self._recorder.clock()
        self._told_due = False

    def __enter__(self) -> Monitor:
        if Monitor._is_entered:
            raise UsageError("This process is monitored already.", "End one before you begin the next.")
        self._file, self._channel = EventFile(self.path, self._tell), Channel()
        Monitor._is_entered = True
        self._ends.callback(setattr, Monitor, "_is_entered", False)
        self._file.append([self._start()])
        self._hook()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._is_elsewhere:  # a forked child at the end of the same block
            return
        self._stop()
        self._ends.close()
        self._thread.join(_PATIENCE_S)
        if self._thread.is_alive():
            return
        with suppress(Exception):  # the job's own end counts
            self.flush(ended=True)
        self._file.close()
        self._channel.close()

    def _start(self) -> Start:
        return Start(
            at=time.time(),
            rank=self._recorder.rank,
            world=self._world,
            host=socket.gethostname(),
            pid=self._process,
            command=self._command,
        )

    # --- hooks ---------------------------------------------------------------------------------------------

    def _hook(self) -> None:
        replaced: tuple[tuple[Any, str, Callable[[Any], Any]], ...] = (
            (BaseIterator, "__init__", self._init),
            (BaseIterator, "__next__", self._next),
            (DataLoader, "__iter__", self._iter),
            (DatasetKind, "create_fetcher", self._create_fetcher),
            (wrapped, "open_watched", lambda _: self._open_watched),
        )
        for owner, name, wrap in replaced:
            self._ends.callback(replace_function(owner, name, wrap))
        self._ends.callback(register_optimizer_step_post_hook(self._stepped).remove)
        self._saved.begin()
        self._ends.callback(self._saved.end)

    def _init(self, original: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(original)
        def make(*args: Any, **kwargs: Any) -> None:
            if not self._is_elsewhere:
                with suppress(Exception):  # the loop gets its batches
                    self._hook_workers()
            original(*args, **kwargs)

        return make

    def _hook_workers(self) -> None:
        """Let the next workers send their facts; torchdata may have been imported since the last ones were started."""
        for module, of_torchdata in worker_loops():
            if module.__name__ not in self._hooked and not self._over:
                wrap = partial(self._sending, of_torchdata)
                self._ends.callback(replace_function(module, WORKER_LOOP, wrap))
                self._hooked.add(module.__name__)

    def _sending(self, of_torchdata: bool, _: Any) -> Callable[..., None]:
        return partial(run_worker, self._channel.sender, of_torchdata)

    @property
    def _is_elsewhere(self) -> bool:
        """True in a forked child, which inherits our hooks."""
        return os.getpid() != self._process

    def _iter(self, original: Callable[[Any], Any]) -> Callable[[Any], Any]:
        @functools.wraps(original)
        def begin(loader: Any) -> Any:
            began_s = self._recorder.clock()
            found = original(loader)
            with suppress(AttributeError, TypeError):  # an iterator of another class
                vars(found)[_BEGAN] = began_s
            return found

        return begin

    def _next(self, original: Callable[[Any], Any]) -> Callable[[Any], Any]:
        clock, process, getpid = self._recorder.clock, self._process, os.getpid

        @functools.wraps(original)
        def give(batches: Any) -> Any:
            if getpid() != process:
                return original(batches)
            began_s = clock()
            try:
                batch = original(batches)
            except StopIteration:
                with suppress(Exception):
                    self._ended(batches)
                raise
            try:
                self._gave(batches, began_s, clock())
            except Exception:  # noqa: BLE001 - the loop gets its batch
                self._give_up()
            return batch

        return give

    def _gave(self, batches: Any, began_s: float, ended_s: float) -> None:
        known = batches.__dict__
        at: Pass | None = known.get(_PASS)
        if at is None or given_by(batches) == 1:
            self._saved.begin()  # for modules that were imported since
            at = known[_PASS] = self._recorder.begin(dataset_of(batches), known.pop(_BEGAN, began_s))
        if not self._recorder.gave(at, began_s, ended_s):
            return
        if number_of_workers(batches):
            find = partial(self._find, workers_of(batches), number_of_last(batches), ended_s)
        else:
            find = partial(self._here, self._clock.last)
        self._recorder.note_slow(at, began_s, ended_s, find)

    def _look_at_memory(self) -> None:
        look = self._memory.look(self._clock.dataset())
        if look is not None:
            with suppress(Exception):  # a system that does not tell how much memory is left
                self._recorder.looked(look, free_memory_bytes())
        for each in self._channel.looks():
            self._recorder.looked(each)

    def _ended(self, batches: Any) -> None:
        at = batches.__dict__.pop(_PASS, None)
        if at is not None:
            self._recorder.ended(at)

    def _find(self, workers: Sequence[Any], number: int | None, until_s: float) -> Made | None:
        return self._channel.find([worker.pid for worker in workers], number, until_s)

    def _here(self, making: Any) -> Made | None:
        """Return the facts on a batch of this process, with plain indices; None if unknown."""
        made = None if making is None else self._clock.made(making)
        return made and made._replace(indices=made.indices and [plain_index(index) for index in made.indices])

    def _create_fetcher(self, original: Callable[..., Any]) -> staticmethod[..., Any]:
        timed = timed_fetchers(self._clock)

        def create(*args: Any, **kwargs: Any) -> Any:
            if self._is_elsewhere:
                return original(*args, **kwargs)
            self._look_closely()
            return timed(*args, **kwargs)

        return staticmethod(create)

    def _open_watched(self, batches: Any) -> Iterator[Any]:
        """Return the iterator over batches wrapped by `bottleneck.watch`."""
        if isinstance(batches, DataLoader) or self._is_elsewhere:
            return iter(batches)
        return self._timed(batches)

    def _timed(self, batches: Any) -> Iterator[Any]:
        self._look_closely()
        clock, at = self._recorder.clock, self._recorder.begin(batches, self._recorder.clock())
        given, end = iter(batches), object()

        def fetch(_: Any) -> Any:
            return next(given, end)

        while True:
            began_s = clock()
            batch = self._clock.make(fetch, None)
            if batch is end:
                self._recorder.ended(at)
                return
            ended_s = clock()
            if self._recorder.gave(at, began_s, ended_s):
                self._recorder.note_slow(at, began_s, ended_s, partial(self._here, self._clock.last))
            yield batch

    def _stepped(self, *_: object) -> None:
        if not self._is_elsewhere:
            self._recorder.stepped()

    def _see_saved(self, seconds: float, path: str | None) -> None:
        frame = sys._getframe()
        while frame is not None and not is_users(frame.f_code.co_filename):
            frame = frame.f_back  # type: ignore[assignment]  # None at the end
        place = None if frame is None else (os.path.abspath(frame.f_code.co_filename), frame.f_lineno)
        if not self._is_elsewhere:
            self._recorder.saved(seconds, path, place)

    def _give_up(self) -> None:
        self._stop()
        self._ends.close()
        self._tell("bottleneck failed and stopped watching. The job continues.")

    # --- the thread ----------------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            while not self._over:
                if self._wake.wait(self._pause_s()):
                    self._wake.clear()
                    continue
                is_slow = self._clock.look() > LOOK_EVERY_S / 2
                self._look_in_s = LOOK_EVERY_S if is_slow else min(2 * self._look_in_s, LOOK_SELDOM_S)
                self._channel.drain()
                self._recorder.settle()
                if self._recorder.clock() - self._flushed_s >= FLUSH_EVERY_S:
                    self.flush()
        except Exception:  # noqa: BLE001 - the job continues
            self._give_up()

    def _look_closely(self) -> None:
        """Look at the line at work from now on."""
        if not self._makes_batches:
            self._makes_batches = True
            self._wake.set()

    def _stop(self) -> None:
        """End the thread."""
        self._over = True
        self._wake.set()

    def _pause_s(self) -> float:
        """Return the seconds until the next look or write; each one takes time from a job with short steps."""
        until_written_s = self._flushed_s + FLUSH_EVERY_S - self._recorder.clock()
        return max(0.0, min(until_written_s, self._look_in_s) if self._makes_batches else until_written_s)

    def flush(self, *, ended: bool = False) -> None:
        """Write the events since the last call."""
        now_s = self._flushed_s = self._recorder.clock()
        self._channel.drain()
        self._look_at_memory()
        found = list(self._recorder.events())
        if ended or now_s - self._summed_s >= SUMMARY_EVERY_S:
            self._summed_s = now_s
            summary = self._recorder.summary(ended=ended)
            found += [] if summary is None else [summary]
        self._file.append(found)
        if self._recorder.due and not self._told_due:
            self._told_due = True
            self._tell(self._recorder.due)


def _own_rank() -> tuple[int, int]:
    world = world_size()
    return (torch.distributed.get_rank(), world) if world > 1 else (0, 1)


class Events:
    """The events of a monitored process.

    Attributes:
        path: The file of this rank.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    def report(self, format: str = "text") -> str:
        """Return a report on the events so far, as `text`, `markdown`, `html` or `json`."""
        from bottleneck.monitor.file import read_events
        from bottleneck.reports.render import render

        return render(read_events(self.path), format)


@contextmanager
def monitoring(path: str | os.PathLike[str]) -> Iterator[Events]:
    """Watch all loaders of the process while the body trains, and append events to a file, line by line.

    Waits are counted, the worst batches are kept with worker, indices, stage and line; epochs, validations and
    checkpoints are noted. Neither the job nor its batches change. A full disk ends the writing, not the job.

    Args:
        path: The file of events, one JSON object per line; the second rank writes to `events.rank1.jsonl`.

    Raises:
        UsageError: The file cannot be written, or the process is monitored already.
    """
    with Monitor(path, lambda text: print(text, file=sys.stderr)) as monitor:
        yield Events(monitor.path)

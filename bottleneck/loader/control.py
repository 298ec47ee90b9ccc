"""Data that the main process and its workers share while the loader runs: requests, a few integers, files in a folder.

Each request carries the generation in which it was sent: what will be thrown away after a switch need not be made. An
iterable dataset never sees its requests, so a worker also notes the generation of the one it took from its queue last.

The integers are in a memory-mapped file rather than a `multiprocessing.Value`: it survives fork, forkserver and spawn,
can be opened by path, and leaves neither a descriptor nor a resource tracker behind.

A diagnosis that is killed cannot remove its folder; the next one does. A lock shows whether the owner lives: its
process id means nothing in another container that shares the memory.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import pickle
import shutil
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Generic, TypeVar

from bottleneck.loader import modes

if TYPE_CHECKING:
    from bottleneck.loader.engine import NotedFiles, WorkerFacts
    from bottleneck.loader.examining.examine import Examination
    from bottleneck.loader.observing.observation import Observation
    from bottleneck.loader.recording.plan import Plan
    from bottleneck.loader.recording.record import Report
    from bottleneck.loader.snapshots import SnapshotTimes


arrived_generation: int | None = None
"""The generation of the request that this worker took last; None in a process that receives none."""


class Request(list[Any]):
    """The indices of a batch; for a stream, a placeholder for each sample."""

    def __init__(self, indices: Any, generation: int) -> None:
        super().__init__(indices)
        self.generation = generation

    def __reduce__(self) -> tuple[Any, ...]:
        return _arrive, (Request, list(self), self.generation)


class _Stamped:
    """Carries something to a worker, with the generation in which it was sent."""

    def __init__(self, content: Any, generation: int) -> None:
        self.content = content
        self.generation = generation

    def __reduce__(self) -> tuple[Any, ...]:
        return _arrive, (type(self), self.content, self.generation)


class Single(_Stamped):
    """The request of a loader that does not batch: an index, or anything else that its sampler gives."""


class Blank(_Stamped):
    """Stands for the indices of a batch that needs none; its content is how many there would be."""

    def __len__(self) -> int:
        return int(self.content)


def _arrive(kind: Callable[[Any, int], Any], content: Any, generation: int) -> Any:
    """Unpickle a request; a worker does so right before it makes the batch."""
    global arrived_generation  # noqa: PLW0603 - there is one queue of requests in a process
    arrived_generation = generation
    return kind(content, generation)


T = TypeVar("T")


class Mailbox(Generic[T]):
    """Holds something of one kind from each worker; what a worker leaves later replaces what it left before."""

    def __init__(self, folder: Path, kind: str) -> None:
        self._folder = folder
        self._kind = kind

    def write(self, worker: int, content: T) -> None:
        write_file(self._folder / f"{self._kind}-{worker}", content)

    def by_worker(self) -> dict[int, T]:
        return {int(path.name.split("-")[1]): read_file(path) for path in sorted(self._folder.glob(f"{self._kind}-*"))}

    def read(self) -> list[T]:
        return list(self.by_worker().values())


_MAX_TRIES, _PAUSE_S = 100, 1e-3


def write_file(path: Path, content: object, sleep: Callable[[float], None] = time.sleep) -> None:
    """Write a file that is there as a whole or not at all."""
    temporary = path.with_name(f".{path.name}-{os.getpid()}")
    temporary.write_bytes(pickle.dumps(content))
    for _ in range(_MAX_TRIES):
        with contextlib.suppress(PermissionError):  # on Windows, while another process reads the file that is there
            temporary.replace(path)
            return
        sleep(_PAUSE_S)
    temporary.replace(path)


def read_file(path: Path) -> Any:
    """Read a file. Only our own processes write here, into a folder that no other user may enter."""
    return pickle.loads(path.read_bytes())


try:
    import fcntl
except ImportError:
    fcntl = None  # type: ignore[assignment]  # Windows has none

CONTROL = "control"
_PREFIX = "torch-bottleneck-"
_SHARED_MEMORY = Path("/dev/shm")
_MAY_BE_NEW_S = 60.0
"""A folder that is younger may belong to a diagnosis that has not locked it yet."""


def make_folder(size: int) -> tuple[Path, IO[bytes]]:
    """Make a folder with a control file, in shared memory if a file of this size fits there, else elsewhere.

    Args:
        size: Of the control file, in bytes; it is filled with zeros.

    Returns:
        The folder, and its open control file; as long as that is open, here or in a process forked from here, no
        other diagnosis removes the folder.
    """
    for parent in (_SHARED_MEMORY, Path(tempfile.gettempdir())):
        if not os.access(parent, os.W_OK):
            continue
        remove_abandoned(parent)
        folder = Path(tempfile.mkdtemp(prefix=f"{_PREFIX}{os.getpid()}-", dir=parent))
        try:
            return folder, _open_control(folder, size)
        except OSError:
            shutil.rmtree(folder, ignore_errors=True)
    raise OSError("no space for a temporary file of 4 KiB")


def _open_control(folder: Path, size: int) -> IO[bytes]:
    control = (folder / CONTROL).open("w+b")
    try:
        control.write(bytes(size))
        control.flush()
        if hasattr(os, "posix_fallocate"):
            # A full tmpfs must fail here, not as a bus error at the first write through the map.
            os.posix_fallocate(control.fileno(), 0, size)
    except OSError:
        control.close()
        raise
    _lock(control)
    return control


def remove_abandoned(parent: Path) -> None:
    """Remove the folders of our own user whose owner and all of its workers are gone."""
    for folder in () if fcntl is None else parent.glob(f"{_PREFIX}*"):
        with contextlib.suppress(OSError):
            found = folder.lstat()
            if found.st_uid == os.getuid() and time.time() - found.st_mtime > _MAY_BE_NEW_S:
                with (folder / CONTROL).open("r+b") as control:
                    if _lock(control):
                        shutil.rmtree(folder, ignore_errors=True)


def _lock(control: IO[bytes]) -> bool:
    """Lock a file until it is closed; return whether it was free."""
    if fcntl is None:
        return False
    try:
        fcntl.flock(control.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


_SLOTS_FROM, _WORD_BYTES = 8, 8
_TALLY = 4
"""Numbers of a worker's `BatchTally`."""


@dataclass(frozen=True)
class BatchTally:
    """Batches that a worker has made with everything real.

    The first one, for which files are opened and memory is touched for the first time, is kept apart.
    """

    first_s: float = 0.0
    """Time of the first one; 0 before it is made."""
    count: float = 0.0
    """The number of later ones."""
    seconds: float = 0.0
    """The sum of their times."""
    squares: float = 0.0
    """The sum of the squares of these."""


class _Shared:
    """An integer of a `Control` that is the same in all processes, at its place in the mapped file."""

    def __init__(self, place: int) -> None:
        self._place = place

    def __get__(self, control: Control, _: type[Control]) -> int:
        return control._view[self._place]

    def __set__(self, control: Control, value: int) -> None:
        control._view[self._place] = value


@dataclass(frozen=True)
class Fault:
    """A mode in which the job's code raised, although it does not when everything is real."""

    mode: int
    error: str


class Control:
    """The present mode, the version of the plan, and a few numbers of each worker.

    Pickling carries the path alone; each process maps the file for itself.
    """

    mode = _Shared(0)
    """The loader stages that work for real; see `bottleneck.loader.modes`."""
    plan_version = _Shared(1)
    """Grows by one with each plan published; 0 before the first."""
    generation = _Shared(2)
    """Grows by one whenever what was asked for before is to be thrown away."""
    worker_cache_bytes = _Shared(3)
    """Bytes that the caches of each worker may take; known only after the workers' first batch."""
    _has_faults = _Shared(4)

    def __init__(self, workers: int) -> None:
        self._workers = max(1, workers)
        self._size = max(4096, (_SLOTS_FROM + (1 + _TALLY) * self._workers) * _WORD_BYTES)
        self._folder, self._kept = make_folder(self._size)
        self._open()
        self.mode = modes.ALL

    def _open(self) -> None:
        with (self._folder / CONTROL).open("r+b") as file:
            self._map = mmap.mmap(file.fileno(), self._size)
        words = memoryview(self._map)
        self._view, floats = words.cast("q"), words.cast("d")
        begins = range(_SLOTS_FROM + self._workers, _SLOTS_FROM + (1 + _TALLY) * self._workers, _TALLY)
        self._tallies = [floats[at : at + _TALLY] for at in begins]
        self.reports: Mailbox[Report] = Mailbox(self._folder, "report")
        """Findings of the workers while recording."""
        self.observations: Mailbox[Observation] = Mailbox(self._folder, "observation")
        """Times that they have measured of their batches while observing."""
        self.examinations: Mailbox[Examination] = Mailbox(self._folder, "examination")
        """Their findings about a few samples."""
        self.facts: Mailbox[WorkerFacts] = Mailbox(self._folder, "facts")
        """Their reports of themselves; each comes with a worker's first observation."""
        self.files: Mailbox[NotedFiles] = Mailbox(self._folder, "files")
        """The files that they have opened; left when the mode asks for no more."""
        self.changed: Mailbox[list[str]] = Mailbox(self._folder, "changed")
        """Recordings that no longer hold what was recorded; left when the mode asks for it."""
        self.made: Mailbox[tuple[float, ...]] = Mailbox(self._folder, "made")
        """Collections of garbage while everything was real, and the seconds of that. Left when it is over."""
        self.snapshots: Mailbox[SnapshotTimes] = Mailbox(self._folder, "snapshots")
        """Times of the snapshots of a loader that can resume, while observing."""
        self._faults: Mailbox[list[Fault]] = Mailbox(self._folder, "faults")

    def __getstate__(self) -> dict[str, Any]:
        return {"_folder": self._folder, "_size": self._size, "_workers": self._workers}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._open()

    def set_cache_bytes(self, worker: int, nbytes: int) -> None:
        self._view[_SLOTS_FROM + worker] = nbytes

    def cache_bytes(self) -> int:
        return sum(self._view[_SLOTS_FROM : _SLOTS_FROM + self._workers].tolist())

    def tally(self, worker: int) -> memoryview[float]:
        """Return the numbers of a worker's `BatchTally`, for it to write."""
        return self._tallies[worker]

    def tallies(self) -> list[BatchTally]:
        """Return what each worker has made so far."""
        return [BatchTally(*tally.tolist()) for tally in self._tallies]

    def forget_batches(self) -> None:
        """Count from now on; all workers have to be at rest."""
        for tally in self._tallies:
            tally[1] = tally[2] = tally[3] = 0.0

    def publish_plan(self, plan: Plan) -> None:
        """Hand a plan to all workers; each picks it up at its next batch."""
        write_file(self._folder / "plan", plan)
        self.plan_version += 1

    def read_plan(self) -> Plan:
        plan: Plan = read_file(self._folder / "plan")
        return plan

    def write_faults(self, worker: int, faults: list[Fault]) -> None:
        """Leave everything that a worker could not serve so far for the main process."""
        self._faults.write(worker, faults)
        self._has_faults = 1

    def read_new_faults(self) -> dict[int, list[Fault]]:
        """Return what workers could not serve so far, by worker; nothing if there is nothing new."""
        if not self._has_faults:
            return {}
        self._has_faults = 0  # first: anything written from now on is found the next time
        return self._faults.by_worker()

    def close(self) -> None:
        """Unmap and delete the file; safe to call twice."""
        if self._map.closed:
            return
        self._view.release()
        for tally in self._tallies:
            tally.release()
        self._map.close()
        self._kept.close()
        shutil.rmtree(self._folder, ignore_errors=True)

"""The few integers that the main process and the workers share while the loader runs.

A memory-mapped file rather than a `multiprocessing.Value`: it survives fork, forkserver and spawn alike, can be
opened by path, and leaves neither a descriptor nor a resource tracker behind.
"""

from __future__ import annotations

import mmap
import shutil
from dataclasses import dataclass
from typing import Any

from bottleneck.loader import modes
from bottleneck.loader.observe.file_watch import NotedFiles
from bottleneck.loader.observe.observation import Observation
from bottleneck.loader.record.plan import Plan, Report
from bottleneck.loader.worker.mailbox import Mailbox, read_file, write_file
from bottleneck.loader.worker.shared_folder import CONTROL, make_folder
from bottleneck.loader.worker.worker_facts import WorkerFacts

_MODE, _PLAN_VERSION, _GENERATION, _WORKER_CACHE_BYTES, _HAS_FAULTS, _SLOTS_FROM = 0, 1, 2, 3, 4, 8
_INT_BYTES = 8


@dataclass(frozen=True)
class Fault:
    """A mode in which the job's code raised, although it does not when everything is real."""

    mode: int
    error: str


class Control:
    """The present mode, the version of the plan, and one slot per worker.

    Pickling carries the path alone; each process maps the file for itself.
    """

    def __init__(self, workers: int) -> None:
        self._size = max(4096, (_SLOTS_FROM + max(1, workers)) * _INT_BYTES)
        self._folder, self._kept = make_folder(self._size)
        self._open()
        self.mode = modes.ALL

    def _open(self) -> None:
        with (self._folder / CONTROL).open("r+b") as file:
            self._map = mmap.mmap(file.fileno(), self._size)
        self._view = memoryview(self._map).cast("q")
        self.reports: Mailbox[Report] = Mailbox(self._folder, "report")
        """What the workers have found out while recording."""
        self.observations: Mailbox[Observation] = Mailbox(self._folder, "observation")
        """What they have measured of their batches while observing."""
        self.facts: Mailbox[WorkerFacts] = Mailbox(self._folder, "facts")
        """What they report of themselves; each does so with its first observation."""
        self.files: Mailbox[NotedFiles] = Mailbox(self._folder, "files")
        """The files that they have opened; left when the mode asks for no more."""
        self.changed: Mailbox[list[str]] = Mailbox(self._folder, "changed")
        """What of their recordings is no longer what was recorded; left when the mode asks for it."""
        self._faults: Mailbox[list[Fault]] = Mailbox(self._folder, "faults")

    def __getstate__(self) -> dict[str, Any]:
        return {"_folder": self._folder, "_size": self._size}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._open()

    @property
    def mode(self) -> int:
        """The loader stages that work for real; see `bottleneck.loader.modes`."""
        return self._view[_MODE]

    @mode.setter
    def mode(self, mode: int) -> None:
        self._view[_MODE] = mode

    @property
    def generation(self) -> int:
        """Grows by one whenever what was asked for before is to be thrown away."""
        return self._view[_GENERATION]

    def begin_generation(self) -> None:
        self._view[_GENERATION] += 1

    @property
    def plan_version(self) -> int:
        """Grows by one with each plan published; 0 before the first."""
        return self._view[_PLAN_VERSION]

    @property
    def worker_cache_bytes(self) -> int:
        """What the caches of each worker may take; known only after the workers were started, with the first batch."""
        return self._view[_WORKER_CACHE_BYTES]

    @worker_cache_bytes.setter
    def worker_cache_bytes(self, nbytes: int) -> None:
        self._view[_WORKER_CACHE_BYTES] = nbytes

    def set_cache_bytes(self, worker: int, nbytes: int) -> None:
        self._view[_SLOTS_FROM + worker] = nbytes

    def cache_bytes(self) -> int:
        return sum(self._view.tolist()[_SLOTS_FROM:])

    def publish_plan(self, plan: Plan) -> None:
        """Hand a plan to all workers; each picks it up at its next batch."""
        write_file(self._folder / "plan", plan)
        self._view[_PLAN_VERSION] += 1

    def read_plan(self) -> Plan:
        plan: Plan = read_file(self._folder / "plan")
        return plan

    def write_faults(self, worker: int, faults: list[Fault]) -> None:
        """Leave everything that a worker could not serve so far for the main process."""
        self._faults.write(worker, faults)
        self._view[_HAS_FAULTS] = 1

    def read_new_faults(self) -> dict[int, list[Fault]]:
        """Return what workers could not serve so far, by worker; nothing if there is nothing new."""
        if not self._view[_HAS_FAULTS]:
            return {}
        self._view[_HAS_FAULTS] = 0  # first: what is written from now on is found the next time
        return self._faults.by_worker()

    def close(self) -> None:
        """Unmap and delete the file; safe to call twice."""
        if self._map.closed:
            return
        self._view.release()
        self._map.close()
        self._kept.close()
        shutil.rmtree(self._folder, ignore_errors=True)

"""The few integers that the main process and the workers share while the loader runs.

A memory-mapped file rather than a `multiprocessing.Value`: it survives fork, forkserver and spawn alike, can be
opened by path, and leaves neither a descriptor nor a resource tracker behind.
"""

from __future__ import annotations

import mmap
import os
import pickle
import shutil
from typing import Any

from bottleneck.loader import modes
from bottleneck.loader.worker.shared_folder import CONTROL, make_folder

_MODE, _PLAN_VERSION, _GENERATION, _WORKER_CACHE_BYTES, _HAS_FAULTS, _SLOTS_FROM = 0, 1, 2, 3, 4, 8
_INT_BYTES = 8


class Control:
    """The present mode, the version of the plan, and one slot per worker.

    Pickling carries the path alone; each process maps the file for itself.

    Args:
        workers: Number of worker slots; at least one.
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
        """Make everything stale that was asked for before."""
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
        """Tell how many bytes a worker's caches hold."""
        self._view[_SLOTS_FROM + worker] = nbytes

    def cache_bytes(self) -> int:
        """Bytes in the caches of all workers together."""
        return sum(self._view.tolist()[_SLOTS_FROM:])

    def publish_plan(self, plan: object) -> None:
        """Hand a plan to all workers; each picks it up at its next batch."""
        self._write("plan", plan)
        self._view[_PLAN_VERSION] += 1

    def read_plan(self) -> Any:
        """Return the plan published last."""
        return self._read("plan")

    def write_report(self, worker: int, report: object) -> None:
        """Leave a worker's report for the main process."""
        self._write(f"report-{worker}", report)

    def read_reports(self) -> dict[int, Any]:
        """Return the reports that workers have left, by worker."""
        return self._read_all("report")

    def write_observation(self, worker: int, observation: object) -> None:
        """Leave what a worker has seen of its batches for the main process."""
        self._write(f"observation-{worker}", observation)

    def read_observations(self) -> dict[int, Any]:
        """Return the observations that workers have left, by worker."""
        return self._read_all("observation")

    def write_facts(self, worker: int, facts: object) -> None:
        """Leave what a worker tells of itself for the main process."""
        self._write(f"facts-{worker}", facts)

    def read_facts(self) -> dict[int, Any]:
        """Return what workers have told of themselves, by worker."""
        return self._read_all("facts")

    def write_stacks(self, worker: int, stacks: object) -> None:
        """Leave the stacks that a worker has sampled for the main process."""
        self._write(f"stacks-{worker}", stacks)

    def read_stacks(self) -> dict[int, Any]:
        """Return the stacks that workers have left, by worker."""
        return self._read_all("stacks")

    def write_files(self, worker: int, files: object) -> None:
        """Leave the files that a worker has opened for the main process."""
        self._write(f"files-{worker}", files)

    def read_files(self) -> dict[int, Any]:
        """Return the files that workers have opened, by worker."""
        return self._read_all("files")

    def write_faults(self, worker: int, faults: object) -> None:
        """Leave what a worker could not serve for the main process."""
        self._write(f"faults-{worker}", faults)
        self._view[_HAS_FAULTS] = 1

    def read_new_faults(self) -> dict[int, Any]:
        """Return what workers could not serve, by worker; nothing if there is nothing new."""
        if not self._view[_HAS_FAULTS]:
            return {}
        self._view[_HAS_FAULTS] = 0  # first: what is written from now on is seen the next time
        return self._read_all("faults")

    def _read_all(self, kind: str) -> dict[int, Any]:
        paths = sorted(self._folder.glob(f"{kind}-*"))
        return {int(path.name.split("-")[1]): self._read(path.name) for path in paths}

    def _write(self, name: str, value: object) -> None:
        temporary = self._folder / f".{name}-{os.getpid()}"
        temporary.write_bytes(pickle.dumps(value))
        temporary.replace(self._folder / name)

    def _read(self, name: str) -> Any:
        # Only our own processes write here, into a folder that nobody else may enter.
        return pickle.loads((self._folder / name).read_bytes())

    def close(self) -> None:
        """Unmap and delete the file; safe to call twice."""
        if self._map.closed:
            return
        self._view.release()
        self._map.close()
        self._kept.close()
        shutil.rmtree(self._folder, ignore_errors=True)

"""What the machine and the processes of the job do while blocks are measured.

Counters are read at the edges of each block, outside of its time and at most a batch of the same experiment before it,
so that they belong to it and to nothing else.
What is no counter is sampled by a thread, four times a second at most; afterwards a sample counts for the block that
it lies in with all that it looks back on, and for none if there is no such block. Nothing runs inside a block on its
behalf but that thread.

Nothing that goes wrong here costs the diagnosis: it becomes a line on what is missing.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace

import torch

from bottleneck.measure.ladder import Arm, Ladder
from bottleneck.measure.system.cores import allowed_cpus, usable_cores
from bottleneck.measure.usage.machine import MachineUsage
from bottleneck.measure.usage.nvml import GpuUsage, NoGpuError
from bottleneck.measure.usage.sampler import Watcher
from bottleneck.measure.usage.samples import Watched
from bottleneck.measure.usage.series import utilisation_series
from bottleneck.measure.usage.summary import summarise_utilisation
from bottleneck.results.evidence import Utilisation as Used

INTERVAL_S = 0.25


class Utilisation:
    """Watches blocks.

    Args:
        make_machine: Opens the counters of the machine.
        make_gpu: Opens those of a device.
        clock: Seconds from any beginning.
        interval_s: Time between two samples.
    """

    def __init__(
        self,
        make_machine: Callable[[], MachineUsage] = lambda: MachineUsage(allowed_cpus()),
        make_gpu: Callable[[torch.device], GpuUsage] = GpuUsage,
        clock: Callable[[], float] = time.perf_counter,
        interval_s: float = INTERVAL_S,
    ) -> None:
        self._make_machine, self._make_gpu = make_machine, make_gpu
        self._clock, self._interval_s = clock, interval_s
        self._watcher: Watcher | None = None
        self._watched: Watched | None = None
        self._missing: dict[str, None] = {}

    @contextmanager
    def watching(self, workers: tuple[int, ...], device: torch.device) -> Iterator[None]:
        """Take samples in a thread until the end of the context.

        Args:
            workers: Process ids of the workers.
            device: Where the train step runs.
        """
        ended = threading.Event()
        thread = threading.Thread(target=self._run, args=(ended,), name="bottleneck-utilisation", daemon=True)
        self._try("Utilisation", lambda: self._open(workers, device))
        if self._watcher is not None:
            thread.start()
        try:
            yield
        finally:
            ended.set()
            if self._watcher is not None:
                thread.join()
                self._try("Utilisation at the end", self._watcher.close)
            self._watcher = None

    def _open(self, workers: tuple[int, ...], device: torch.device) -> None:
        with ExitStack() as opened:
            machine = self._make_machine()
            opened.callback(machine.close)
            gpu = self._open_gpu(device)
            if gpu is not None:
                opened.callback(gpu.close)
            self._watcher = Watcher(machine, gpu, workers, self._clock)
            opened.pop_all()  # from here on the watcher closes them
        self._watched = self._watcher.watched

    def _open_gpu(self, device: torch.device) -> GpuUsage | None:
        if device.type == "cpu":
            return None
        try:
            return self._make_gpu(device)
        except NoGpuError as error:
            self._missing[str(error)] = None
        return None

    def _run(self, ended: threading.Event) -> None:
        watcher = self._watcher
        while watcher is not None and not ended.wait(self._interval_s):
            if not self._try("Samples of the machine", watcher.sample):
                return

    def _try(self, what: str, do: Callable[[], None]) -> bool:
        """Do something that the diagnosis does not depend on; return whether it came off."""
        try:
            do()
        except Exception as error:  # noqa: BLE001 - whatever a system answers, the diagnosis goes on
            self._missing[f"{what}: reading failed ({type(error).__name__})."] = None
            return False
        return True

    # --- blocks --------------------------------------------------------------------------------------------

    def begin_block(self, arm: Arm) -> None:
        """Note that a block begins after this call, with at most a batch of the same experiment in between."""
        watcher = self._watcher
        if watcher is not None:
            self._try("Counters at a block", lambda: watcher.begin_block(arm))

    def end_block(self) -> None:
        """Note that the block is over."""
        if self._watcher is not None:
            self._try("Counters at a block", self._watcher.end_block)

    def device_clock_hz(self) -> float | None:
        """Return at which clock the device runs at this moment; None where that is not known."""
        watcher, found = self._watcher, list[float | None]()
        if watcher is not None:
            self._try("The clock of the device", lambda: found.append(watcher.device_clock_hz()))
        return found[0] if found else None

    # --- what came of it -----------------------------------------------------------------------------------

    def evidence(self, ladder: Ladder, cache_bytes: int = 0) -> Used:
        """Return the evidence on utilisation.

        Args:
            ladder: Names the experiments.
            cache_bytes: What the caches of the diagnosis take in all workers together.
        """
        seen, made = self._watched, [Used()]
        if seen is not None:
            self._try("Utilisation", lambda: made.append(self._summary(seen, ladder, cache_bytes)))
        missing = (*(seen.missing if seen is not None else ()), *self._missing)
        return replace(made[-1], missing=missing)

    def _summary(self, seen: Watched, ladder: Ladder, cache_bytes: int) -> Used:
        summary = summarise_utilisation(
            seen, ladder, interval_s=self._interval_s, usable_cores=usable_cores(), cache_bytes=cache_bytes
        )
        return replace(summary, series=utilisation_series(seen, ladder))

"""What the machine and the processes of the job do while blocks are measured.

Counters are read at the edges of each block, outside of its time and at most a batch of the same experiment before it,
so that they belong to it and to nothing else.
What is no counter is sampled by a thread, four times a second at most; afterwards a sample counts for the block that
it lies in with all that it looks back on, and for none if there is no such block. Nothing else runs inside a block for
this.

No failure here ends the diagnosis: it becomes a line on what is missing.
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
from bottleneck.measure.usage.sampler import UsageSampler
from bottleneck.measure.usage.samples import UsageSamples
from bottleneck.measure.usage.summary import summarise_utilisation
from bottleneck.results.evidence import Utilisation as Used

INTERVAL_S = 0.25


class Utilisation:
    """Reads what blocks use of the machine."""

    def __init__(
        self,
        make_machine: Callable[[], MachineUsage] = lambda: MachineUsage(allowed_cpus()),
        make_gpu: Callable[[torch.device], GpuUsage] = GpuUsage,
        clock: Callable[[], float] = time.perf_counter,
        interval_s: float = INTERVAL_S,
    ) -> None:
        self._make_machine, self._make_gpu = make_machine, make_gpu
        self._clock, self._interval_s = clock, interval_s
        self._sampler: UsageSampler | None = None
        self._samples: UsageSamples | None = None
        self._missing: dict[str, None] = {}

    @contextmanager
    def watching(self, workers: tuple[int, ...], device: torch.device) -> Iterator[None]:
        """Take samples in a thread until the end of the context, of workers by their process ids."""
        ended = threading.Event()
        with self._noting_failure("Utilisation"):
            self._open(workers, device)
        sampler = self._sampler
        if sampler is None:
            yield
            return
        thread = threading.Thread(target=self._run, args=(sampler, ended), name="bottleneck-utilisation", daemon=True)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()
            with self._noting_failure("Utilisation at the end"):
                sampler.close()
            self._sampler = None

    def _open(self, workers: tuple[int, ...], device: torch.device) -> None:
        with ExitStack() as opened:
            machine = self._make_machine()
            opened.callback(machine.close)
            gpu = self._open_gpu(device)
            if gpu is not None:
                opened.callback(gpu.close)
            self._sampler = UsageSampler(machine, gpu, workers, self._clock)
            opened.pop_all()  # from here on the sampler closes them
        self._samples = self._sampler.found

    def _open_gpu(self, device: torch.device) -> GpuUsage | None:
        if device.type == "cpu":
            return None
        try:
            return self._make_gpu(device)
        except NoGpuError as error:
            self._missing[str(error)] = None
        return None

    def _run(self, sampler: UsageSampler, ended: threading.Event) -> None:
        with self._noting_failure("Samples of the machine"):
            while not ended.wait(self._interval_s):
                sampler.sample()

    @contextmanager
    def _noting_failure(self, what: str) -> Iterator[None]:
        """Turn a failure into a line on what is missing."""
        try:
            yield
        except Exception as error:  # noqa: BLE001 - whatever a system answers, the diagnosis goes on
            self._missing[f"{what}: reading failed ({type(error).__name__})."] = None

    # --- blocks --------------------------------------------------------------------------------------------

    def begin_block(self, arm: Arm) -> None:
        """Note that a block begins after this call, with at most a batch of the same experiment in between."""
        if self._sampler is not None:
            with self._noting_failure("Counters at a block"):
                self._sampler.begin_block(arm)

    def end_block(self) -> None:
        """Note that the block is over."""
        if self._sampler is not None:
            with self._noting_failure("Counters at a block"):
                self._sampler.end_block()

    def device_clock_hz(self) -> float | None:
        """Return at which clock the device runs at this moment; None where that is unknown."""
        if self._sampler is not None:
            with self._noting_failure("The clock of the device"):
                return self._sampler.device_clock_hz()
        return None

    # --- the evidence --------------------------------------------------------------------------------------

    def evidence(self, ladder: Ladder, cache_bytes: int = 0) -> Used:
        """Return the evidence on utilisation.

        Args:
            ladder: Names the experiments.
            cache_bytes: What the caches of the diagnosis take in all workers together.
        """
        made, found = Used(), self._samples
        if found is None:
            return replace(made, missing=tuple(self._missing))
        with self._noting_failure("Utilisation"):
            made = summarise_utilisation(
                found, ladder, interval_s=self._interval_s, usable_cores=usable_cores(), cache_bytes=cache_bytes
            )
        return replace(made, missing=(*found.missing, *self._missing))

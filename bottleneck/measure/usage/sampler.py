"""Reads counters at the edges of blocks, and takes samples in between."""

from __future__ import annotations

import os
import time
from collections.abc import Callable

from bottleneck.measure.ladder import Arm
from bottleneck.measure.system.cores import allowed_cpus
from bottleneck.measure.usage.machine import MachineUsage
from bottleneck.measure.usage.nvml import GpuUsage
from bottleneck.measure.usage.process import cpu_seconds, read_memory, thread_count
from bottleneck.measure.usage.samples import BlockReadings, TimedReading, UsageSamples

_SLOW_READING_S = 3e-4
"""A reading before a block keeps the job waiting and lets its workers get ahead; one that takes longer is left to the
samples. With more than a hundred cores /proc/stat alone can take a millisecond."""
_MEMORY_EVERY_S = 2.0
_MEMORY_SHARE = 0.02
"""The share of the time that reading the memory may take."""


class UsageSampler:
    """Reads the counters of one job on one machine.

    Args:
        machine: The machine's.
        gpu: Those of the device; None where it has none or shows none.
        workers: Process ids of the workers.
        clock: Seconds from any beginning.
    """

    def __init__(
        self, machine: MachineUsage, gpu: GpuUsage | None, workers: tuple[int, ...], clock: Callable[[], float]
    ) -> None:
        self._machine, self._gpu, self._workers, self._clock = machine, gpu, workers, clock
        self.found = UsageSamples(machine.cores, machine.quota_cores, workers=len(workers))
        self.found.missing.update(dict.fromkeys(machine.missing))
        if gpu is not None:
            self.found.has_gpu, self.found.max_sm_clock_hz = True, gpu.max_sm_clock_hz
        began = clock()
        machine.counters()
        self._slow = clock() - began > _SLOW_READING_S
        self._open: tuple[Arm, TimedReading] | None = None
        self._memory_due_s = -float("inf")
        self._turn = 0
        self._read_processes()

    def _read_processes(self) -> None:
        """Read once what does not change while the job runs."""
        self.found.main_threads = thread_count(os.getpid())
        own = allowed_cpus()
        self.found.main_affinity = len(own) if own is not None else None
        self.found.affinity = [set(cpus) for pid in self._workers if (cpus := allowed_cpus(pid)) is not None]
        for pid in self._workers:
            self._count_threads(pid)

    # --- the edges of a block ------------------------------------------------------------------------------

    def begin_block(self, arm: Arm) -> None:
        """Read the counters; the block begins right after, or a batch later."""
        self._open = None
        self._open = (arm, self._read())

    def end_block(self) -> None:
        """Read the counters again, and now and then what takes longer: the block is over."""
        if self._open is None:
            return
        (arm, begin), self._open = self._open, None
        self.found.blocks.append(BlockReadings(arm, begin, self._read()))
        if self._workers and self._clock() >= self._memory_due_s:
            self._read_memory()

    def device_clock_hz(self) -> float | None:
        """Return the device's present clock. It falls only some time after the last kernel."""
        return self._gpu.sm_clock_hz() if self._gpu is not None else None

    def _read(self) -> TimedReading:
        """Read the counters, in the same order at both edges."""
        values = {} if self._slow else self._machine.counters()
        values["main_s"] = time.process_time()
        for number, pid in enumerate(self._workers):
            used_s = cpu_seconds(pid)
            if used_s is not None:
                values[f"worker:{number}"] = used_s
        return TimedReading(self._clock(), values)

    def _read_memory(self) -> None:
        """Read the workers' memory; they are between two experiments, where it disturbs nothing."""
        began = self._clock()
        memory = read_memory(self._workers, began)
        took_s = self._clock() - began
        self._memory_due_s = began + max(_MEMORY_EVERY_S, took_s / _MEMORY_SHARE)
        if memory is None:
            self.found.missing["Memory of the workers: this system does not show it of other processes."] = None
        else:
            self.found.memory.append(memory)

    # --- in between ----------------------------------------------------------------------------------------

    def sample(self) -> None:
        """Take one sample of everything that is no counter."""
        runnable = self._machine.runnable()
        values = {} if runnable is None else {"runnable": float(runnable)}
        self.found.samples.append(TimedReading(self._clock(), values))
        if self._slow:
            counters = self._machine.counters()
            self.found.readings.append(TimedReading(self._clock(), counters))
        shm = self._machine.shm_bytes()
        if shm is not None:
            self.found.shm_size_bytes = shm[0]
            self.found.shm_peak_bytes = max(self.found.shm_peak_bytes, shm[1])
        if self._workers:
            # One worker at a time: to ask all of many would take as long as all the rest.
            self._turn += 1
            self._count_threads(self._workers[self._turn % len(self._workers)])
        if self._gpu is not None:
            self.found.gpu.extend(self._gpu.sample())

    def _count_threads(self, pid: int) -> None:
        threads = thread_count(pid)
        if threads is None:
            self.found.missing["Threads of the workers: this system does not show them."] = None
        else:
            self.found.worker_threads = max(self.found.worker_threads or 0, threads)

    # --- the end -------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Ask who else is on the device, and let go of everything."""
        self._machine.close()
        if self._gpu is not None:
            try:
                self.found.gpu_other_processes = self._gpu.other_processes({os.getpid(), *self._workers})
            finally:
                self._gpu.close()

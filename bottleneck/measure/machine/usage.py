"""Use of the machine by the processes of the job while blocks are measured: cores, quota, disks, network, device.

Counters are read at both edges of each block, outside of its time and at most a batch of the same experiment before it.
Values that are not counters are read once per block, right after it. Nothing runs inside a block for this, and no
failure here ends the diagnosis: it becomes a line on the missing values.
"""

from __future__ import annotations

import math
import os
import statistics
import time
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

import torch

from bottleneck.measure.ladder import Arm, Ladder
from bottleneck.measure.machine.counters import MachineUsage, cpu_seconds, private_bytes, thread_count
from bottleneck.measure.machine.limits import allowed_cpus, shm_usage, usable_cores
from bottleneck.measure.machine.nvml import BusyShare, Gpu, NoGpuError
from bottleneck.results.evidence import Cores, ExperimentUsage, GpuUsage, SharedMemory, WorkersUsage
from bottleneck.results.evidence import Utilisation as Used

_OFTEN = 0.25
"""Share of blocks above which a reason for low clocks is reported."""
_MEMORY_EVERY_S = 2.0
"""Seconds between readings of the workers' memory, at least."""
_MEMORY_SHARE = 0.02
"""Share of the time for these readings."""


# --- blocks -------------------------------------------------------------------------------------------------


@dataclass
class _ArmUsage:
    seconds: float = 0.0
    grown: dict[str, float] = field(default_factory=dict)
    counted_s: dict[str, float] = field(default_factory=dict)
    """Seconds of the blocks in which each counter was read at both edges."""
    times: list[tuple[float, float]] = field(default_factory=list)
    """Beginning and end of its blocks."""
    clocks_hz: list[float] = field(default_factory=list)
    """Clock of the device after each block."""
    throttled: list[tuple[str, ...]] = field(default_factory=list)
    """Reasons for a throttled clock after each block."""

    def add(self, seconds: float, begin: dict[str, float], end: dict[str, float]) -> None:
        self.seconds += seconds
        for key in begin.keys() & end.keys():
            self.grown[key] = self.grown.get(key, 0.0) + end[key] - begin[key]
            self.counted_s[key] = self.counted_s.get(key, 0.0) + seconds

    def per_s(self, key: str) -> float | None:
        """Return the growth of a counter per second; None if unknown."""
        seconds = self.counted_s.get(key, 0.0)
        return max(0.0, self.grown[key] / seconds) if seconds > 0 else None


class Utilisation:
    """Reads the use of the machine in blocks."""

    def __init__(
        self,
        make_machine: Callable[[], MachineUsage] = lambda: MachineUsage(allowed_cpus()),
        make_gpu: Callable[[torch.device], Gpu] = Gpu,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._make_machine = make_machine
        self._make_gpu = make_gpu
        self._clock = clock
        self._machine: MachineUsage | None = None
        self._gpu: Gpu | None = None
        self._watching = False
        self._missing: dict[str, None] = {}
        self._open: tuple[Arm, float, dict[str, float]] | None = None
        self._arms: dict[Arm, _ArmUsage] = {}
        self._busy: list[BusyShare] = []
        """Shares of time in which the device computed; some are known only blocks later."""
        self._pids: tuple[int, ...] = ()
        self._memory_due_s = -math.inf
        self._blocks = 0
        self._workers = WorkersUsage()
        self._shm = SharedMemory()
        self._gpu_other_processes: int | None = None

    @contextmanager
    def watching(self, workers: tuple[int, ...], device: torch.device) -> Iterator[None]:
        """Read counters at blocks until the end of the context, of workers by their process ids."""
        with self._noting_failure("Utilisation"):
            self._begin(workers)
            self._watching = True
            if device.type != "cpu":
                self._open_gpu(device)
        try:
            yield
        finally:
            self._watching = False
            if self._gpu is not None:
                with self._noting_failure("Utilisation at the end"):
                    self._gpu_other_processes = self._gpu.other_processes({os.getpid(), *workers})
                self._gpu.close()

    def _begin(self, workers: tuple[int, ...]) -> None:
        self._pids = workers
        self._machine = machine = self._make_machine()
        self._missing.update(dict.fromkeys(machine.missing))
        own = allowed_cpus()
        affinity = [set(cpus) for pid in workers if (cpus := allowed_cpus(pid)) is not None]
        self._workers = WorkersUsage(
            count=len(workers),
            affinity_cores=min(map(len, affinity), default=None),
            affinity_cores_together=len(set().union(*affinity)) if affinity else None,
            main_affinity_cores=len(own) if own is not None else None,
        )
        for pid in workers:
            self._count_threads(pid)

    def _open_gpu(self, device: torch.device) -> None:
        try:
            self._gpu = self._make_gpu(device)
            self._gpu.busy_shares(self._clock())  # after this, the driver's samples have a beginning
            self._missing.update(dict.fromkeys(filter(None, [self._gpu.missing()])))
        except NoGpuError as error:
            self._missing[str(error)] = None

    @contextmanager
    def _noting_failure(self, what: str) -> Iterator[None]:
        """Turn a failure into a line on the missing values."""
        try:
            yield
        except Exception as error:  # noqa: BLE001 - the diagnosis continues without these values
            self._missing[f"{what}: reading failed ({type(error).__name__})."] = None

    def begin_block(self, arm: Arm) -> None:
        """Note that a block begins after this call, with at most a batch of the same experiment in between."""
        self._open = None
        with self._noting_failure("Counters at a block"):
            if self._watching:
                counters = self._read()
                self._open = (arm, self._clock(), counters)

    def end_block(self) -> float | None:
        """Note that the block is over, and return the clock of the device at its end [Hz]; None if unknown."""
        clock_hz = None
        with self._noting_failure("Counters at a block"):
            # First, since each moment moves it away from the last kernel.
            clock_hz = self._gpu.sm_clock_hz() if self._gpu is not None and self._watching else None
            if self._open is not None:
                arm, began_s, begin = self._open
                self._open = None
                end, ended_s = self._read(), self._clock()
                usage = self._arms.setdefault(arm, _ArmUsage())
                usage.add(ended_s - began_s, begin, end)
                self._read_rest(usage, began_s, ended_s, clock_hz)
        return clock_hz

    def _read(self) -> dict[str, float]:
        """Read the counters, in the same order at both edges."""
        assert self._machine is not None  # while anything is watched
        counters = self._machine.counters()
        counters["main_s"] = time.process_time()
        for number, pid in enumerate(self._pids):
            used_s = cpu_seconds(pid)
            if used_s is not None:
                counters[f"worker:{number}"] = used_s
        return counters

    def _read_rest(self, usage: _ArmUsage, began_s: float, ended_s: float, clock_hz: float | None) -> None:
        """Read values that are not counters; the workers are between two experiments, where it disturbs nothing."""
        if self._gpu is not None:
            self._busy += self._gpu.busy_shares(ended_s)
            usage.times.append((began_s, ended_s))
            usage.clocks_hz += [] if clock_hz is None else [clock_hz]
            reasons = self._gpu.throttled()
            usage.throttled += [] if reasons is None else [reasons]
        shm = shm_usage()
        if shm is not None:
            self._shm = SharedMemory(
                size_bytes=shm.total, peak_used_bytes=max(shm.used, self._shm.peak_used_bytes or 0)
            )
        if self._pids:
            # One worker at a time: asking many would take as long as all the rest.
            self._blocks += 1
            self._count_threads(self._pids[self._blocks % len(self._pids)])
            self._read_memory()

    def _count_threads(self, pid: int) -> None:
        threads = thread_count(pid)
        if threads is None:
            self._missing["Threads of the workers: this system does not show them."] = None
        else:
            self._workers = replace(self._workers, threads=max(self._workers.threads or 0, threads))

    def _read_memory(self) -> None:
        began_s = self._clock()
        if began_s < self._memory_due_s:
            return
        found = private_bytes(self._pids)
        self._memory_due_s = began_s + max(_MEMORY_EVERY_S, (self._clock() - began_s) / _MEMORY_SHARE)
        if found is None:
            self._missing["Memory of the workers: this system does not show it of other processes."] = None
        else:
            self._workers = replace(self._workers, private_bytes=found)

    # --- the evidence ---------------------------------------------------------------------------------------

    def evidence(self, ladder: Ladder, cache_bytes: int = 0) -> Used:
        """Return the evidence on utilisation.

        Args:
            ladder: Names the experiments.
            cache_bytes: Bytes of the diagnosis's caches in all workers together.
        """
        used = Used()
        with self._noting_failure("Utilisation"):
            if self._machine is not None:
                used = self._summarise(self._machine, ladder, cache_bytes)
        return replace(used, missing=tuple(self._missing))

    def _summarise(self, machine: MachineUsage, ladder: Ladder, cache_bytes: int) -> Used:
        busy = tuple(self._cores_of_workers(self._arms.get(ladder.raw, _ArmUsage())))
        workers = replace(self._workers, cores_busy=busy, cache_bytes=cache_bytes)
        return Used(
            cores=Cores(usable=usable_cores(), quota=machine.quota_cores, allowed=machine.cores),
            experiments=tuple(
                replace(self._row(self._arms[arm], machine), name=name, mode=mode)
                for name, mode, arm in ladder.named()
                if arm in self._arms
            ),
            workers=workers,
            shared_memory=self._shm,
            gpu_other_processes=self._gpu_other_processes,
        )

    def _cores_of_workers(self, usage: _ArmUsage) -> list[float]:
        """Return the cores that each worker keeps busy; a worker that could not be read is left out."""
        rates = (usage.per_s(f"worker:{number}") for number in range(len(self._pids)))
        return [cores for cores in rates if cores is not None]

    def _row(self, usage: _ArmUsage, machine: MachineUsage) -> ExperimentUsage:
        main, per_worker = usage.per_s("main_s"), self._cores_of_workers(usage)
        workers = sum(per_worker) if len(per_worker) == len(self._pids) else None
        total_s = usage.grown.get("total_s", 0.0)
        busy = machine.cores * min(1.0, max(0.0, usage.grown["busy_s"] / total_s)) if total_s > 0 else None
        others = None if busy is None or main is None or workers is None else max(0.0, busy - main - workers)
        disks = {key.partition(":")[2]: usage.per_s(key) or 0.0 for key in usage.grown if key.startswith("busy_s:")}
        busiest = max(disks, key=disks.__getitem__, default=None)
        return ExperimentUsage(
            seconds=usage.seconds,
            cores_busy=busy,
            cores_main=main,
            cores_workers=workers,
            cores_other=others,
            throttled_share=_throttled_share(usage.grown),
            disk_read_bytes_per_s=usage.per_s("disk_read_bytes"),
            disk_write_bytes_per_s=usage.per_s("disk_write_bytes"),
            disk_busy_share=min(1.0, disks[busiest]) if busiest is not None else None,
            disk_requests_in_flight=usage.per_s(f"queued_s:{busiest}"),
            disk_rotational=machine.is_rotational(busiest) if busiest is not None else None,
            network_bytes_per_s=usage.per_s("network_bytes"),
            gpu=self._gpu_usage(usage),
        )

    def _gpu_usage(self, usage: _ArmUsage) -> GpuUsage:
        if self._gpu is None:
            return GpuUsage()
        busy = list(_shares_within(self._busy, usage.times))
        reasons = Counter(reason for each in usage.throttled for reason in each)
        return GpuUsage(
            busy_share=statistics.fmean(busy) if busy else None,
            sm_clock_hz=statistics.fmean(usage.clocks_hz) if usage.clocks_hz else None,
            max_sm_clock_hz=self._gpu.max_sm_clock_hz,
            throttled=tuple(sorted(name for name, times in reasons.items() if times >= _OFTEN * len(usage.throttled))),
        )


def _throttled_share(grown: dict[str, float]) -> float | None:
    periods = grown.get("periods")
    return None if periods is None else min(1.0, grown["throttled_periods"] / periods) if periods > 0 else 0.0


def _shares_within(samples: Sequence[BusyShare], times: Sequence[tuple[float, float]]) -> Iterator[float]:
    """Yield the shares of samples that are within one of the blocks, whose times ascend."""
    for each in samples:
        number = bisect_right(times, (each.time_s - each.window_s, math.inf)) - 1
        if number >= 0 and each.time_s <= times[number][1]:
            yield each.share

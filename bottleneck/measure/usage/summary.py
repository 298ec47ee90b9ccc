"""Turns counters and samples into the evidence `utilisation`: sums for each experiment, in SI units."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from bottleneck.measure.describe import named_arms
from bottleneck.measure.ladder import Arm, Ladder
from bottleneck.measure.usage.machine import is_rotational
from bottleneck.measure.usage.nvml import GpuSample
from bottleneck.measure.usage.process import memory_growth
from bottleneck.measure.usage.samples import BlockReadings, TimedReading, UsageSamples
from bottleneck.results.evidence import (
    Cores,
    ExperimentUsage,
    GpuUsage,
    MainProcess,
    SharedMemory,
    Utilisation,
    WorkersUsage,
)

_OFTEN = 0.25
"""The share of samples from which on a reason for low clocks is reported."""


def summarise_utilisation(
    found: UsageSamples, ladder: Ladder, *, interval_s: float, usable_cores: float, cache_bytes: int
) -> Utilisation:
    """Return the evidence `utilisation`, without its series and what is missing.

    Args:
        found: What was read.
        ladder: Names the experiments.
        interval_s: Time between two samples.
        usable_cores: Cores that the job may use, its quota counted in.
        cache_bytes: What the caches of the diagnosis take in all workers together.
    """
    by_arm: dict[Arm, list[BlockReadings]] = {}
    for block in found.blocks:
        by_arm.setdefault(block.arm, []).append(block)
    usages = {arm: BlockUsage(found, blocks) for arm, blocks in by_arm.items()}
    named = [(name, mode, usages[arm]) for name, mode, arm in named_arms(ladder) if arm in usages]
    shm = SharedMemory()
    if found.shm_size_bytes is not None:
        shm = SharedMemory(size_bytes=found.shm_size_bytes, peak_used_bytes=found.shm_peak_bytes)
    return Utilisation(
        interval_s=interval_s,
        samples=sum(usage.samples for usage in usages.values()),
        cores=Cores(usable=usable_cores, quota=found.quota_cores, allowed=found.cores),
        experiments=tuple(replace(usage.row(), name=name, mode=mode) for name, mode, usage in named),
        main=MainProcess(threads=found.main_threads),
        workers=_workers(found, usages.get(ladder.raw), cache_bytes),
        shared_memory=shm,
        gpu_other_processes=found.gpu_other_processes,
    )


def _workers(found: UsageSamples, raw: BlockUsage | None, cache_bytes: int) -> WorkersUsage:
    last = found.memory[-1] if found.memory else None
    growth = memory_growth(found.memory)
    return WorkersUsage(
        count=found.workers,
        threads=found.worker_threads,
        private_bytes=last.private_bytes if last is not None else None,
        shared_bytes=last.shared_bytes if last is not None else None,
        private_growth_bytes_per_s=growth.bytes_per_s if growth is not None else None,
        private_growth_error_bytes_per_s=growth.error_bytes_per_s if growth is not None else None,
        cores_busy=tuple(raw.cores_of_workers()) if raw is not None else (),
        affinity_cores=min((len(cores) for cores in found.affinity), default=None),
        affinity_cores_together=len(set().union(*found.affinity)) if found.affinity else None,
        main_affinity_cores=found.main_affinity,
        cache_bytes=cache_bytes,
    )


class BlockUsage:
    """What some blocks together used, such as those of one arm."""

    def __init__(self, found: UsageSamples, blocks: Sequence[BlockReadings]) -> None:
        self._found, self._blocks = found, blocks
        self._grown: dict[str, float] = {}
        self._seconds: dict[str, float] = {}
        for block in blocks:
            self._add(block)

    def _add(self, block: BlockReadings) -> None:
        inside = [r for r in self._found.readings if block.begin.time_s <= r.time_s <= block.end.time_s]
        first: dict[str, tuple[float, float]] = {}
        last: dict[str, tuple[float, float]] = {}
        for reading in (block.begin, *inside, block.end):
            for key, value in reading.values.items():
                first.setdefault(key, (reading.time_s, value))
                last[key] = (reading.time_s, value)
        for key, (began_s, value) in first.items():
            ended_s, end_value = last[key]
            if ended_s > began_s:
                self._grown[key] = self._grown.get(key, 0.0) + end_value - value
                self._seconds[key] = self._seconds.get(key, 0.0) + ended_s - began_s

    def _per_s(self, key: str) -> float | None:
        seconds = self._seconds.get(key, 0.0)
        return max(0.0, self._grown[key] / seconds) if seconds > 0 else None

    def _inside(self, time_s: float, window_s: float) -> bool:
        return any(b.begin.time_s <= time_s - window_s and time_s <= b.end.time_s for b in self._blocks)

    @property
    def _gauges(self) -> list[TimedReading]:
        return [sample for sample in self._found.samples if self._inside(sample.time_s, 0.0)]

    @property
    def samples(self) -> int:
        """How many samples lie in the blocks."""
        return len(self._gauges)

    def cores_of_workers(self) -> list[float]:
        """Cores that each worker keeps busy; a worker that could not be read is left out."""
        rates = (self._per_s(f"worker:{number}") for number in range(self._found.workers))
        return [cores for cores in rates if cores is not None]

    def row(self) -> ExperimentUsage:
        """Return the numbers of an experiment; None for what is not known."""
        main, per_worker = self._per_s("main_s"), self.cores_of_workers()
        workers = sum(per_worker) if len(per_worker) == self._found.workers else None
        busy = self._cores_busy()
        others = None if busy is None or main is None or workers is None else max(0.0, busy - main - workers)
        disk_share, requests, turns = self._busiest_disk()
        return ExperimentUsage(
            seconds=sum(block.end.time_s - block.begin.time_s for block in self._blocks),
            samples=self.samples,
            cores_busy=busy,
            cores_main=main,
            cores_workers=workers,
            cores_other=others,
            runnable_per_core=self._runnable_per_core(),
            throttled_share=self._throttled_share(),
            disk_read_bytes_per_s=self._per_s("disk_read_bytes"),
            disk_write_bytes_per_s=self._per_s("disk_write_bytes"),
            disk_busy_share=disk_share,
            disk_requests_in_flight=requests,
            disk_rotational=turns,
            network_bytes_per_s=self._per_s("network_bytes"),
            gpu=self._gpu() if self._found.has_gpu else GpuUsage(),
        )

    def _cores_busy(self) -> float | None:
        total_s = self._grown.get("total_s", 0.0)
        return self._found.cores * min(1.0, max(0.0, self._grown["busy_s"] / total_s)) if total_s > 0 else None

    def _runnable_per_core(self) -> float | None:
        counts = [sample.values["runnable"] for sample in self._gauges if "runnable" in sample.values]
        # The queue is that of the whole machine: it says nothing about a part of its cores.
        whole = self._found.cores == self._found.machine_cores
        return statistics.fmean(counts) / self._found.cores if counts and whole else None

    def _throttled_share(self) -> float | None:
        if "periods" not in self._grown:
            return None
        periods = self._grown["periods"]
        return min(1.0, self._grown["throttled_periods"] / periods) if periods > 0 else 0.0

    def _busiest_disk(self) -> tuple[float | None, float | None, bool | None]:
        """Return how busy it is, its requests at once, and whether it turns."""
        shares = {
            key.partition(":")[2]: share
            for key in self._grown
            if key.startswith("busy_s:") and (share := self._per_s(key)) is not None
        }
        if not shares:
            return None, None, None
        busiest = max(shares, key=lambda name: shares[name])
        return min(1.0, shares[busiest]), self._per_s(f"queued_s:{busiest}"), is_rotational(busiest)

    def _gpu(self) -> GpuUsage:
        inside = [sample for sample in self._found.gpu if self._inside(sample.time_s, sample.window_s)]
        reasons = [sample.throttled for sample in inside if sample.throttled is not None]
        counted = Counter(reason for each in reasons for reason in each)
        return GpuUsage(
            busy_share=_mean(inside, "busy_share"),
            memory_bytes=max((s.values["memory_bytes"] for s in inside if "memory_bytes" in s.values), default=None),
            pcie_bytes_per_s=_mean(inside, "pcie_bytes_per_s"),
            sm_clock_hz=_mean(inside, "sm_clock_hz"),
            max_sm_clock_hz=self._found.max_sm_clock_hz,
            throttled=tuple(sorted(reason for reason, times in counted.items() if times >= _OFTEN * len(reasons))),
        )


def _mean(samples: Sequence[GpuSample], key: str) -> float | None:
    values = [sample.values[key] for sample in samples if key in sample.values]
    return statistics.fmean(values) if values else None

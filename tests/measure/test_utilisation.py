"""What is watched belongs to the block in which it was seen, and nothing that fails costs the diagnosis."""

import json
import os
import threading
from types import SimpleNamespace

import pytest
import torch

from bottleneck.loader import modes
from bottleneck.measure.ladder import Arm, Ladder, Rung
from bottleneck.measure.usage import sampler
from bottleneck.measure.usage.nvml import GpuSample, NoGpuError
from bottleneck.measure.usage.process import MemoryReading
from bottleneck.measure.usage.utilisation import Utilisation
from bottleneck.results.evidence import Utilisation as Seen
from tests.support.as_json import said
from tests.support.clock import FakeClock

CPU, CUDA = torch.device("cpu"), torch.device("cuda")
DEVICE, RAW = Arm(None, "device"), Arm(modes.ALL, "loader")
DRAINED, WITHOUT = Arm(modes.ALL, "loader", coupled=False), Arm(modes.ALL & ~modes.LOAD, "loader")
LADDER = Ladder(
    (Rung("device", None, DEVICE), Rung("host", "nothing is copied"), Rung("raw", None, RAW, DRAINED)),
    (),
    (("load", WITHOUT),),
)


class Machine:
    """A machine with 4 cores whose counters the test sets."""

    cores, quota_cores, missing = 4, None, ("No disk is listed.",)

    def __init__(self, clock):
        self.clock = clock
        self.counted = {"busy_s": 0.0, "total_s": 0.0}
        self.queue = 3
        self.reading_s = 0.0
        self.closed = False

    def counters(self):
        self.clock.now_s += self.reading_s
        return dict(self.counted)

    def runnable(self):
        return self.queue

    def shm_bytes(self):
        return 1000, 100

    def close(self):
        self.closed = True


class Gpu:
    max_sm_clock_hz = 2e9

    def __init__(self):
        self.found, self.closed = [], False

    def sample(self):
        found, self.found = self.found, []
        return found

    def other_processes(self, own):
        return 2

    def close(self):
        self.closed = True


@pytest.fixture
def bench(monkeypatch):
    """A job with two workers in invented time; nothing is sampled but when the test says so."""
    clock = FakeClock(100.0)
    made = SimpleNamespace(clock=clock, machine=Machine(clock), gpu=Gpu(), used_s={11: 0.0, 12: 0.0}, main_s=[0.0])
    monkeypatch.setattr(sampler, "cpu_seconds", made.used_s.get)
    monkeypatch.setattr(sampler.time, "process_time", lambda: made.main_s[0])
    monkeypatch.setattr(sampler, "thread_count", lambda pid: {11: 2, 12: 9}.get(pid, 5))
    monkeypatch.setattr(sampler, "allowed_cpus", lambda pid=0: {11: [0], 12: [1, 2]}.get(pid, [0, 1, 2, 3]))
    monkeypatch.setattr(sampler, "read_memory", lambda pids, time_s: MemoryReading(time_s, 700, 300))
    monkeypatch.setattr(os, "cpu_count", lambda: 4)
    made.usage = Utilisation(lambda: made.machine, lambda device: made.gpu, clock, interval_s=1e6)

    def block(arm, seconds, cores=0.0, workers=(0.0, 0.0), main=0.0, sample_at=()):
        made.usage.begin_block(arm)
        began = clock.now_s
        for offset_s in sample_at:
            clock.now_s = began + offset_s
            made.usage._sampler.sample()
        clock.now_s = began + seconds
        made.machine.counted["busy_s"] += cores * seconds
        made.machine.counted["total_s"] += 4 * seconds
        for pid, busy in zip((11, 12), workers, strict=True):
            if pid in made.used_s:
                made.used_s[pid] += busy * seconds
        made.main_s[0] += main * seconds
        made.usage.end_block()
        clock.now_s += 0.5

    made.block = block
    made.evidence = lambda: said(made.usage.evidence(LADDER))
    made.row = lambda name, mode="coupled": next(
        row for row in made.evidence()["experiments"] if (row["name"], row["mode"]) == (name, mode)
    )
    return made


def test_each_experiment_has_its_own_cores(bench):
    with bench.usage.watching((11, 12), CPU):
        bench.block(DEVICE, 1.0, cores=0.5, main=0.25)
        bench.block(RAW, 2.0, cores=3.0, workers=(1.0, 0.5), main=0.25)
        bench.block(RAW, 2.0, cores=2.0, workers=(0.5, 0.5), main=0.25)
    raw = bench.row("raw")
    assert raw["seconds"] == pytest.approx(4.0)
    assert raw["cores_busy"] == pytest.approx(2.5)
    assert raw["cores_workers"] == pytest.approx(1.25)
    assert raw["cores_main"] == pytest.approx(0.25)
    assert raw["cores_other"] == pytest.approx(1.0)
    assert bench.row("device")["cores_busy"] == pytest.approx(0.5)
    assert bench.evidence()["workers"]["cores_busy"] == pytest.approx([0.75, 0.5])


def test_what_happens_between_blocks_counts_for_none(bench):
    with bench.usage.watching((11, 12), CPU):
        bench.block(RAW, 1.0, cores=1.0)
        bench.machine.counted["busy_s"] += 40.0
        bench.machine.counted["total_s"] += 40.0
        bench.block(RAW, 1.0, cores=1.0)
    assert bench.row("raw")["cores_busy"] == pytest.approx(1.0)


def test_every_mode_and_without_a_stage_are_named(bench):
    with bench.usage.watching((11, 12), CPU):
        for arm in (RAW, DRAINED, WITHOUT):
            bench.block(arm, 1.0)
    named = {(row["name"], row["mode"]) for row in bench.evidence()["experiments"]}
    assert named == {("raw", "coupled"), ("raw", "drained"), ("load", "without")}


def test_a_sample_counts_for_the_block_that_it_lies_in_and_else_for_none(bench):
    with bench.usage.watching((11, 12), CPU):
        bench.machine.queue = 8
        bench.block(RAW, 1.0, sample_at=(0.2, 0.8))
        bench.machine.queue = 40
        bench.usage._sampler.sample()  # between two blocks
        bench.clock.now_s += 0.5
        bench.machine.queue = 2
        bench.block(DEVICE, 1.0, sample_at=(0.5,))
    assert bench.row("raw")["runnable_per_core"] == pytest.approx(2.0)
    assert bench.row("device")["runnable_per_core"] == pytest.approx(0.5)
    assert bench.row("raw")["samples"] == 2
    assert bench.evidence()["samples"] == 3


def test_a_share_of_the_devices_time_that_reaches_into_another_block_is_dropped(bench):
    with bench.usage.watching((11, 12), CUDA):
        began = bench.clock.now_s
        bench.gpu.found = [
            GpuSample(began + 0.5, 0.6, {"busy_share": 1.0}),
            GpuSample(began + 0.5, 0.4, {"busy_share": 0.2, "memory_bytes": 30.0}, ("power",)),
            GpuSample(began + 0.6, 0.0, {"memory_bytes": 50.0, "sm_clock_hz": 1e9}, ("heat", "power")),
            *(GpuSample(began + 0.7, 0.0, {}, ()) for _ in range(3)),
        ]
        bench.block(RAW, 1.0, sample_at=(0.9,))
    assert bench.row("raw")["gpu"] == {
        "busy_share": pytest.approx(0.2), "memory_bytes": 50.0, "pcie_bytes_per_s": None, "sm_clock_hz": 1e9,
        "max_sm_clock_hz": 2e9, "throttled": ["power"],
    }  # fmt: skip
    assert bench.evidence()["gpu_other_processes"] == 2
    assert bench.gpu.closed


def test_counters_that_take_long_to_read_are_left_to_the_samples(bench):
    # Guards: while this process reads at the edge of a block, the workers make batches for nothing.
    bench.machine.reading_s = 0.001
    with bench.usage.watching((11, 12), CPU):
        bench.machine.reading_s = 0.0
        bench.usage.begin_block(RAW)
        for busy in (0.0, 3.0, 6.0):
            bench.clock.now_s += 1.0
            bench.machine.counted = {"busy_s": busy, "total_s": 4 / 3 * busy}
            bench.usage._sampler.sample()
        bench.clock.now_s += 1.0
        bench.machine.counted = {"busy_s": 1e6, "total_s": 1e6}
        bench.usage.end_block()
    assert bench.row("raw")["cores_busy"] == pytest.approx(3.0)
    assert bench.row("raw")["seconds"] == pytest.approx(4.0)


def test_the_quota_and_how_often_it_stopped_the_job(bench):
    bench.machine.quota_cores = 2.0
    bench.machine.counted |= {"periods": 5.0, "throttled_periods": 1.0}
    with bench.usage.watching((11, 12), CPU):
        bench.usage.begin_block(RAW)
        bench.clock.now_s += 1.0
        bench.machine.counted |= {"periods": 15.0, "throttled_periods": 5.0}
        bench.usage.end_block()
        bench.block(DEVICE, 1.0)
    assert bench.row("raw")["throttled_share"] == pytest.approx(0.4)
    assert bench.row("device")["throttled_share"] == 0.0
    assert bench.evidence()["cores"]["quota"] == 2.0


def test_the_busiest_disk_is_told_with_its_queue(bench):
    bench.machine.counted |= dict.fromkeys(
        ("busy_s:sda", "busy_s:sdb", "queued_s:sda", "queued_s:sdb", "disk_read_bytes"), 0.0
    )
    with bench.usage.watching((11, 12), CPU):
        bench.usage.begin_block(RAW)
        bench.clock.now_s += 2.0
        bench.machine.counted |= {"busy_s:sda": 0.2, "busy_s:sdb": 1.8, "queued_s:sdb": 9.0, "disk_read_bytes": 1e6}
        bench.usage.end_block()
    raw = bench.row("raw")
    assert raw["disk_busy_share"] == pytest.approx(0.9)
    assert raw["disk_requests_in_flight"] == pytest.approx(4.5)
    assert raw["disk_read_bytes_per_s"] == pytest.approx(5e5)


def test_the_queue_of_the_whole_machine_says_nothing_of_a_part_of_it(bench, monkeypatch):
    monkeypatch.setattr(os, "cpu_count", lambda: 64)
    with bench.usage.watching((11, 12), CPU):
        bench.block(RAW, 1.0, sample_at=(0.5,))
    assert bench.row("raw")["runnable_per_core"] is None


def test_workers_as_they_are_found(bench):
    with bench.usage.watching((11, 12), CPU):
        bench.block(RAW, 1.0, sample_at=(0.5,))
    evidence = bench.evidence()
    found = {key: value for key, value in evidence["workers"].items() if key != "cores_busy"}
    assert found == {
        "count": 2, "threads": 9, "private_bytes": 700, "shared_bytes": 300, "private_growth_bytes_per_s": None,
        "private_growth_error_bytes_per_s": None, "affinity_cores": 1, "affinity_cores_together": 3,
        "main_affinity_cores": 4, "cache_bytes": 0,
    }  # fmt: skip
    assert evidence["main"] == {"threads": 5}
    assert evidence["shared_memory"] == {"size_bytes": 1000, "peak_used_bytes": 100}
    assert evidence["missing"] == ["No disk is listed."]
    assert json.loads(json.dumps(evidence)) == evidence


def test_memory_is_read_between_blocks_and_seldom(bench, monkeypatch):
    read = []
    monkeypatch.setattr(sampler, "read_memory", lambda pids, time_s: read.append(time_s) or MemoryReading(time_s, 1, 1))
    with bench.usage.watching((11, 12), CPU):
        for _ in range(10):
            bench.block(RAW, 0.5)  # and as long again in between
    assert len(read) == 5


def test_a_worker_that_dies_leaves_the_others(bench):
    with bench.usage.watching((11, 12), CPU):
        bench.usage.begin_block(RAW)
        bench.clock.now_s += 1.0
        bench.used_s[11] += 0.5
        del bench.used_s[12]
        bench.usage.end_block()
    raw = bench.row("raw")
    assert raw["cores_workers"] is None  # of all together nothing is known
    assert raw["cores_other"] is None
    assert bench.evidence()["workers"]["cores_busy"] == pytest.approx([0.5])


def test_a_block_that_fails_counts_for_nothing(bench):
    with bench.usage.watching((11, 12), CPU):
        bench.usage.begin_block(RAW)
        bench.clock.now_s += 1.0
        bench.usage.begin_block(DEVICE)
        bench.clock.now_s += 1.0
        bench.usage.end_block()
        bench.usage.end_block()
    assert [row["name"] for row in bench.evidence()["experiments"]] == ["device"]


# --- what fails --------------------------------------------------------------------------------------------


def raise_error(*arguments):
    raise PermissionError("no")


@pytest.mark.parametrize("broken", ["counters", "runnable", "shm_bytes"])
def test_whatever_cannot_be_read_the_diagnosis_goes_on(bench, broken):
    met = threading.Event()

    def refuse():
        met.set()
        raise PermissionError("no")

    usage = Utilisation(lambda: bench.machine, lambda device: bench.gpu, bench.clock, interval_s=1e-4)
    with usage.watching((11, 12), CPU):
        setattr(bench.machine, broken, refuse)
        usage.begin_block(RAW)
        usage.end_block()
        assert met.wait(10.0)
    lines = said(usage.evidence(LADDER))["missing"]
    assert [line for line in lines if "PermissionError" in line]
    assert bench.machine.closed


def test_a_machine_that_cannot_be_watched_at_all(bench):
    usage = Utilisation(raise_error)
    with usage.watching((11, 12), CPU):
        usage.begin_block(RAW)
        usage.end_block()
    assert usage.evidence(LADDER) == Seen(missing=("Utilisation: reading failed (PermissionError).",))


def test_a_start_that_fails_half_way_leaves_nothing_open(bench):
    bench.machine.counters = raise_error
    with bench.usage.watching((11, 12), CUDA):
        bench.usage.begin_block(RAW)
    assert bench.machine.closed
    assert bench.gpu.closed
    assert bench.evidence() == said(Seen(missing=("Utilisation: reading failed (PermissionError).",)))


def test_a_device_that_cannot_be_watched_is_one_line(bench):
    def refuse(device):
        raise NoGpuError("Utilisation of the GPU: install something.")

    usage = Utilisation(lambda: bench.machine, refuse, bench.clock, interval_s=1e6)
    with usage.watching((11, 12), CUDA):
        usage.begin_block(RAW)
        bench.clock.now_s += 1.0
        usage.end_block()
    evidence = said(usage.evidence(LADDER))
    assert "Utilisation of the GPU: install something." in evidence["missing"]
    assert evidence["experiments"][0]["gpu"] is None


def test_memory_that_is_not_shown_is_one_line_however_often_it_is_asked_for(bench, monkeypatch):
    monkeypatch.setattr(sampler, "read_memory", lambda pids, time_s: None)
    monkeypatch.setattr(sampler, "thread_count", lambda pid: None)
    with bench.usage.watching((11, 12), CPU):
        for _ in range(10):
            bench.block(RAW, 2.0, sample_at=(0.5,))
    evidence = bench.evidence()
    assert len(evidence["missing"]) == 3  # and the disks
    assert evidence["workers"]["private_bytes"] is evidence["workers"]["threads"] is None


def test_nothing_that_was_not_watched_is_told():
    usage = Utilisation()
    usage.begin_block(RAW)
    usage.end_block()
    assert usage.evidence(LADDER) == Seen()


def test_the_thread_ends_with_what_it_watches_also_when_that_fails(bench):
    usage = Utilisation(lambda: bench.machine, lambda device: bench.gpu, bench.clock, interval_s=1e-3)
    with pytest.raises(KeyboardInterrupt), usage.watching((), CPU):
        assert any(thread.name == "bottleneck-utilisation" for thread in threading.enumerate())
        raise KeyboardInterrupt
    assert not any(thread.name == "bottleneck-utilisation" for thread in threading.enumerate())
    assert bench.machine.closed


def test_this_machine_can_be_watched():
    usage = Utilisation()
    with usage.watching((os.getpid(),), CPU):
        usage.begin_block(RAW)
        sum(range(1_000_000))
        usage.end_block()
    evidence = said(usage.evidence(LADDER))
    assert evidence["experiments"][0]["cores_main"] > 0.05
    assert json.loads(json.dumps(evidence)) == evidence

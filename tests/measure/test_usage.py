"""Counters at the edges of a block belong to it, and a failing one does not end the diagnosis."""

import json
import os
import time
from types import SimpleNamespace

import pytest
import torch
from torch.utils.data import Dataset

from bottleneck.analysis.advice.saturation import find_saturation
from bottleneck.analysis.settings import raw_usage
from bottleneck.loader import modes
from bottleneck.measure.ladder import Arm, Ladder, Rung
from bottleneck.measure.machine import usage
from bottleneck.measure.machine.nvml import BusyShare, NoGpuError
from bottleneck.measure.machine.usage import Utilisation
from tests.support.as_json import said
from tests.support.clock import FakeClock
from tests.support.in_full import render_in_full
from tests.support.looks import diagnose_until

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

    def __init__(self):
        self.counted = {"busy_s": 0.0, "total_s": 0.0}

    def counters(self):
        return dict(self.counted)

    def is_rotational(self, disk):
        return disk == "sdb"


class Gpu:
    max_sm_clock_hz = 2e9

    def __init__(self):
        self.busy, self.reasons, self.clock_hz, self.closed = [], (), 1e9, False

    def busy_shares(self, now_s):
        return self.busy

    def throttled(self):
        return self.reasons

    def sm_clock_hz(self):
        return self.clock_hz

    def other_processes(self, own):
        return 2

    def missing(self):
        return "It is a part of a device."

    def close(self):
        self.closed = True


@pytest.fixture
def bench(monkeypatch):
    """A job with two workers in invented time."""
    clock = FakeClock(100.0)
    made = SimpleNamespace(clock=clock, machine=Machine(), gpu=Gpu(), used_s={11: 0.0, 12: 0.0}, main_s=[0.0], shm=0)
    monkeypatch.setattr(usage, "cpu_seconds", made.used_s.get)
    monkeypatch.setattr(usage.time, "process_time", lambda: made.main_s[0])
    monkeypatch.setattr(usage, "thread_count", {11: 2, 12: 9}.get)
    monkeypatch.setattr(usage, "allowed_cpus", lambda pid=0: {11: [0], 12: [1, 2]}.get(pid, [0, 1, 2, 3]))
    monkeypatch.setattr(usage, "private_bytes", lambda pids: 700)
    monkeypatch.setattr(usage, "shm_usage", lambda: SimpleNamespace(total=1000, used=made.shm))
    made.usage = Utilisation(lambda: made.machine, lambda device: made.gpu, clock)

    def block(arm, seconds, cores=0.0, workers=(0.0, 0.0), main=0.0, **counted):
        made.usage.begin_block(arm)
        clock.now_s += seconds
        made.machine.counted["busy_s"] += cores * seconds
        made.machine.counted["total_s"] += 4 * seconds
        made.machine.counted |= counted
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


def test_a_share_of_the_devices_time_that_reaches_into_another_block_is_dropped(bench):
    with bench.usage.watching((11, 12), CUDA):
        began_s = bench.clock.now_s
        bench.gpu.busy = [BusyShare(began_s + 0.5, 0.6, 1.0), BusyShare(began_s + 0.5, 0.4, 0.2)]
        bench.gpu.reasons = ("power",)
        bench.block(RAW, 1.0)
        bench.gpu.busy, bench.gpu.reasons, bench.gpu.clock_hz = [], ("heat", "power"), 1.5e9
        for _ in range(4):
            bench.block(RAW, 1.0)
            bench.gpu.reasons = ()
    assert bench.row("raw")["gpu"] == {
        "busy_share": pytest.approx(0.2), "sm_clock_hz": 1.4e9, "max_sm_clock_hz": 2e9, "throttled": ["power"],
    }  # fmt: skip
    assert bench.evidence()["gpu_other_processes"] == 2
    assert bench.gpu.closed


def test_the_quota_and_how_often_it_stopped_the_job(bench):
    bench.machine.quota_cores = 2.0
    bench.machine.counted |= {"periods": 5.0, "throttled_periods": 1.0}
    with bench.usage.watching((11, 12), CPU):
        bench.block(RAW, 1.0, periods=15.0, throttled_periods=5.0)
        bench.block(DEVICE, 1.0)
    assert bench.row("raw")["throttled_share"] == pytest.approx(0.4)
    assert bench.row("device")["throttled_share"] == 0.0
    assert bench.evidence()["cores"]["quota"] == 2.0


def test_the_busiest_disk_is_shown_with_its_queue(bench):
    keys = ("busy_s:sda", "busy_s:sdb", "queued_s:sda", "queued_s:sdb", "disk_read_bytes")
    bench.machine.counted |= dict.fromkeys(keys, 0.0)
    with bench.usage.watching((11, 12), CPU):
        bench.block(RAW, 2.0, **dict(zip(keys, (0.2, 1.8, 0.0, 9.0, 1e6), strict=True)))
    raw = bench.row("raw")
    assert raw["disk_busy_share"] == pytest.approx(0.9)
    assert raw["disk_requests_in_flight"] == pytest.approx(4.5)
    assert raw["disk_rotational"] is True
    assert raw["disk_read_bytes_per_s"] == pytest.approx(5e5)


def test_workers_as_they_are_found(bench):
    with bench.usage.watching((11, 12), CPU):
        for bench.shm in (100, 300, 200):
            bench.block(RAW, 1.0)
    evidence = bench.evidence()
    found = {key: value for key, value in evidence["workers"].items() if key != "cores_busy"}
    assert found == {
        "count": 2, "threads": 9, "private_bytes": 700, "affinity_cores": 1, "affinity_cores_together": 3,
        "main_affinity_cores": 4, "cache_bytes": 0,
    }  # fmt: skip
    assert evidence["shared_memory"] == {"size_bytes": 1000, "peak_used_bytes": 300}
    assert evidence["missing"] == ["No disk is listed."]
    assert json.loads(json.dumps(evidence)) == evidence


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


# --- what fails --------------------------------------------------------------------------------------------


def raise_error(*arguments):
    raise PermissionError("no")


@pytest.mark.parametrize("broken", ["cpu_seconds", "shm_usage"])
def test_whatever_cannot_be_read_the_diagnosis_goes_on(bench, broken, monkeypatch):
    with bench.usage.watching((11, 12), CPU):
        monkeypatch.setattr(usage, broken, raise_error)
        bench.usage.begin_block(RAW)
        bench.usage.end_block()
    assert "Counters at a block: reading failed (PermissionError)." in bench.evidence()["missing"]


def test_a_device_that_cannot_be_watched_is_one_line(bench):
    def refuse(device):
        raise NoGpuError("Utilisation of the GPU: install something.")

    bench.usage = Utilisation(lambda: bench.machine, refuse, bench.clock)
    with bench.usage.watching((11, 12), CUDA):
        bench.block(RAW, 1.0)
    assert "Utilisation of the GPU: install something." in bench.evidence()["missing"]
    assert bench.row("raw")["gpu"] is None


def test_what_the_driver_does_not_tell_is_one_line(bench):
    with bench.usage.watching((11, 12), CUDA):
        bench.block(RAW, 1.0)
    assert "It is a part of a device." in bench.evidence()["missing"]


def test_this_machine_can_be_watched():
    watched = Utilisation()
    with watched.watching((os.getpid(),), CPU):
        watched.begin_block(RAW)
        sum(range(1_000_000))
        watched.end_block()
    evidence = said(watched.evidence(LADDER))
    assert evidence["experiments"][0]["cores_main"] > 0.05
    assert json.loads(json.dumps(evidence)) == evidence


# --- whole diagnoses: what a planted job uses up is named, and a job that waits uses up nothing ------------


CORES = 2


class Samples(Dataset):
    """Each sample takes 5 ms of a core."""

    def __len__(self):
        return 10_000

    def __getitem__(self, index):
        end_s = time.perf_counter() + 0.005
        while time.perf_counter() < end_s:
            pass
        return float(index)


def step(batch):
    time.sleep(0.002)


@pytest.fixture
def two_cores():
    """Binds this process, and so its workers, to two cores."""
    if not hasattr(os, "sched_setaffinity"):
        pytest.skip("this system cannot bind a process to cores")
    before = os.sched_getaffinity(0)
    if len(before) < CORES:
        pytest.skip("needs two cores")
    os.sched_setaffinity(0, sorted(before)[:CORES])
    yield
    os.sched_setaffinity(0, before)


@pytest.mark.integration
@pytest.mark.usefixtures("two_cores")
def test_workers_that_compute_on_every_core_use_the_cores_up_and_more_of_them_are_not_advised():
    job = {"dataset": Samples(), "train_step": step, "batch_size": 4, "num_workers": CORES, "device": "cpu"}
    diagnosis = diagnose_until(
        lambda found: found.verdict.state == "input_bound" and found.verdict.bottleneck, job, (10.0, 20.0, 40.0)
    )
    found = find_saturation(diagnosis.evidence, "input_bound")
    assert found.lacks_cores
    workers = diagnosis.evidence.utilisation.workers
    raw = raw_usage(diagnosis.evidence)
    # Others on the machine may take a part of the cores; the workers take the rest.
    assert 0.1 * CORES < raw.cores_workers <= CORES * 1.05
    assert raw.cores_main < raw.cores_workers
    assert len(workers.cores_busy) == CORES
    assert workers.private_bytes > 1e6
    assert {"workers-cannot-help"} == {"workers-cannot-help", "more-workers"} & {a.id for a in diagnosis.advice}
    assert "Saturated while the job runs: the" in " ".join(render_in_full(diagnosis, "text").split())

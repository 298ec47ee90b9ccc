"""Whole diagnoses: what a planted job uses up is named, and a job that waits uses up nothing."""

import os
import time
from types import SimpleNamespace

import pytest
from torch.utils.data import Dataset

from bottleneck.analysis.saturation import find_saturation, raw_usage
from bottleneck.measure import usage
from tests.support.in_full import render_in_full
from tests.support.looks import diagnose_until

CORES = 2


class Samples(Dataset):
    """Each sample takes 5 ms, of a core or of nobody."""

    def __init__(self, computes):
        self.computes = computes

    def __len__(self):
        return 10_000

    def __getitem__(self, index):
        end_s = time.perf_counter() + 0.005
        while self.computes and time.perf_counter() < end_s:
            pass
        time.sleep(max(0.0, end_s - time.perf_counter()))
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


def diagnose(computes, workers, budgets_s=(4.0, 20.0, 40.0), *, named=False):
    job = {"dataset": Samples(computes), "train_step": step, "batch_size": 4, "num_workers": workers, "device": "cpu"}
    return diagnose_until(
        lambda found: found.verdict.state == "input_bound" and (found.verdict.bottleneck or not named), job, budgets_s
    )


@pytest.mark.integration
@pytest.mark.usefixtures("two_cores")
def test_workers_that_compute_on_every_core_use_the_cores_up_and_more_of_them_are_not_advised():
    diagnosis = diagnose(computes=True, workers=CORES, budgets_s=(10.0, 20.0, 40.0), named=True)
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
    assert "Used up while the job runs: the" in " ".join(render_in_full(diagnosis, "text").split())


@pytest.mark.integration
@pytest.mark.usefixtures("two_cores")
def test_a_worker_that_waits_uses_up_nothing_of_its_own():
    diagnosis = diagnose(computes=False, workers=1)
    raw = raw_usage(diagnosis.evidence)
    assert raw.cores_workers < 0.2
    found = find_saturation(diagnosis.evidence, "input_bound")
    # Whatever others on the machine use is no doing of this job.
    if found.cores_other < 0.5 * CORES:
        assert found.resources == ()
        assert "The loader lacks parallelism." in found.sentence


@pytest.mark.integration
def test_without_proc_and_without_leave_to_look_the_diagnosis_completes(monkeypatch):
    """Nothing of the kernel's files, and nothing of other processes."""
    nothing = SimpleNamespace(
        cores=CORES, quota_cores=None, missing=("Cores kept busy.", "Bytes read.", "Bytes over the network."),
        counters=dict,
    )  # fmt: skip
    monkeypatch.setattr(usage, "MachineUsage", lambda cpus: nothing)
    for name in ("cpu_seconds", "thread_count", "allowed_cpus"):
        monkeypatch.setattr(usage, name, lambda pid=0: None)
    monkeypatch.setattr(usage, "private_bytes", lambda pids: None)
    diagnosis = diagnose(computes=False, workers=1)
    assert diagnosis.verdict.state == "input_bound"
    missing = diagnosis.evidence.utilisation.missing
    assert len(missing) == 5
    raw = raw_usage(diagnosis.evidence)
    assert raw.cores_busy is raw.cores_workers is raw.disk_busy_share is None
    assert raw.cores_main < 1.0
    text = render_in_full(diagnosis, "text")
    assert text.count("Not seen: ") == 5

"""Targets that are looked at in a process of their own."""

import os

import psutil
import pytest

from bottleneck.cli.main import run
from bottleneck.doctor.finding import Finding
from bottleneck.doctor.job_checks.inspected import inspect
from bottleneck.doctor.job_checks.target import examine_target
from bottleneck.errors import ExitStatus

pytestmark = [pytest.mark.integration, pytest.mark.usefixtures("no_machine")]

JOB = """
import os, time
from torch.utils.data import Dataset

class Data(Dataset):
    def __len__(self): return 8
    def __getitem__(self, index): return index

class Hanging(Data):
    def __getitem__(self, index):
        time.sleep(600)

class Dying(Data):
    def __getitem__(self, index):
        os._exit(7)

class Raising(Data):
    def __getitem__(self, index):
        return {}["image"]

def job(dataset, **changes):
    print("this is no finding")
    return dict(dataset=dataset, train_step=print, batch_size=2, num_workers=1, **changes)

def good(): return job(Data())
def bad(): return {"dataset": [1, 2]}
def hanging():
    open("pid", "w").write(str(os.getpid()))
    return job(Hanging())
def raising(): return job(Raising())
def dying(): return job(Dying())
def killed(): os.kill(os.getpid(), 9)
"""


@pytest.fixture
def job(folder):
    (folder / "job_doctor.py").write_text(JOB)
    return folder


def test_a_good_target(job, capfd):
    assert run(["doctor", "job_doctor:good"]) == 0
    output = capfd.readouterr()
    for subject in ("target", "pickle", "sample", "batch", "worker threads", "queue", "worker memory"):
        assert f"ok       {subject} " in output.out
    assert "this is no finding" not in output.out
    assert "this is no finding" in output.err


def test_the_exit_status_is_that_of_the_finding(monkeypatch, capsys):
    found = [Finding("problem", "target", "no such module", "", ExitStatus.USAGE)]
    monkeypatch.setattr("bottleneck.doctor.job_checks.target.examine_target", lambda *given: found)
    assert run(["doctor", "job_doctor:bad"]) == 2
    assert "PROBLEM  target  no such module" in capsys.readouterr().out


class Heard:
    """In the place of the process that waits."""

    limit_s = 60.0

    def __init__(self, folder):
        self.trace_path = folder / "trace"
        self.steps, self.findings = [], []

    def begin(self, step):
        self.steps.append(step)

    def report(self, *findings):
        self.findings += findings


def test_a_bad_target_is_looked_at_no_further(job):
    heard = Heard(job)
    inspect("job_doctor:bad", heard)
    (finding,) = heard.findings
    assert heard.steps == ["build"]
    assert finding.message.startswith("The pipeline has no model and no train_step")
    assert finding.exit_status == ExitStatus.USAGE


def test_a_worker_that_dies_is_told_and_not_tried_again(job):
    heard = Heard(job)
    inspect("job_doctor:dying", heard)
    assert heard.steps == ["build", "pickle", "batch"]
    assert heard.findings[-1].subject == "batch"
    assert "exited unexpectedly" in heard.findings[-1].message


def test_an_exception_is_told_once_with_its_index(job):
    heard = Heard(job)
    inspect("job_doctor:raising", heard)
    problems = [finding for finding in heard.findings if finding.status == "problem"]
    assert [finding.subject for finding in problems] == ["sample"]
    assert "at index 2: KeyError: 'image' (job_doctor.py, line 19)" in problems[0].message


def test_a_dataset_that_hangs_is_ended_with_its_workers(job):
    *_, finding = examine_target("job_doctor:hanging", limit_s=1.0)
    assert finding.status == "problem"
    assert finding.exit_status == 3
    assert finding.message == "loading a first batch took longer than 1 s; it stands at job_doctor.py, line 11"
    assert not psutil.pid_exists(int((job / "pid").read_text()))


@pytest.mark.skipif(os.name == "nt", reason="has no signals to be killed by")
def test_a_target_that_takes_its_process_with_it(job):
    (finding,) = examine_target("job_doctor:killed")
    assert finding.message == "importing it and building its pipeline ended the process by SIGKILL"

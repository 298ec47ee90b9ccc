"""`bottleneck attach`, and `run` of a loop without a DataLoader, on jobs that run."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from bottleneck.measure.passes.pyspy import find_py_spy, why_py_spy_fails
from tests.support.processes import left_in_session

SCRIPT = Path(__file__).parent / "scripts" / "loops.py"
LINES = SCRIPT.read_text().splitlines()
OF_WORKERS = next(number for number, line in enumerate(LINES, 1) if "costliest line of workers" in line)
OF_FUNCTION = next(number for number, line in enumerate(LINES, 1) if "costliest line of the function" in line)

pytestmark = pytest.mark.integration


@pytest.fixture(autouse=True)
def may_look():
    with running("nothing") as job:
        why = why_py_spy_fails(find_py_spy() or "py-spy", job.pid, 20)
    if why:
        pytest.skip(f"py-spy: {why}")


@contextmanager
def running(kind):
    job = subprocess.Popen([sys.executable, str(SCRIPT), kind])
    try:
        yield job
    finally:
        for process in [*psutil.Process(job.pid).children(recursive=True), job]:
            process.kill()
        job.wait()


def trains(job):
    """Wait until a job has imported torch and has used a while after that."""
    for _ in range(120):
        time.sleep(0.5)
        maps = Path(f"/proc/{job.pid}/maps").read_text()
        if "libtorch_cpu" in maps or "libtorch.so" in maps:
            break
    time.sleep(8)


def command(tmp_path, name, *words):
    """Run a command, which leaves no process; return its exit status, what it said, and the JSON that it wrote."""
    written = tmp_path / "result.json"
    process = subprocess.Popen(
        [sys.executable, "-m", "bottleneck", name, "--json", str(written), *map(str, words)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        _, said = process.communicate(timeout=150)
    finally:
        process.kill()
    assert not left_in_session(process.pid)
    return process.returncode, said, json.loads(written.read_text()) if written.exists() else None


@pytest.mark.sleeps
def test_a_job_that_waits_is_answered_with_its_line_and_goes_on(tmp_path):
    with running("loader") as job:
        trains(job)
        status, said, found = command(tmp_path, "attach", job.pid, "--seconds", "12")
        assert job.poll() is None
    assert status == 0, said
    assert found["verdict"]["state"] == "input_bound"
    assert 0.5 < found["verdict"]["input_share"]["estimate"] < 0.95  # 30 ms of 40
    costliest = next(line for line in found["lines"] if line["process"] == "worker")
    assert (costliest["file"], costliest["line"]) == (str(SCRIPT), OF_WORKERS)
    assert found["next"] == [["bottleneck", "run", str(SCRIPT), "loader"]]


def test_a_job_that_trains_all_the_time_is_device_bound(tmp_path):
    with running("fast") as job:
        trains(job)
        status, said, found = command(tmp_path, "attach", job.pid, "--seconds", "15")
    assert status == 0, said
    assert found["verdict"]["input_share"]["estimate"] < 0.1
    assert found["verdict"]["state"] != "input_bound"


@pytest.mark.sleeps
def test_a_process_that_trains_nothing_is_refused(tmp_path):
    with running("nothing") as job:
        trains(job)
        status, said, found = command(tmp_path, "attach", job.pid, "--seconds", "5")
    assert (status, found) == (3, None)
    assert f"Nothing trains in process {job.pid}" in said


@pytest.mark.sleeps
@pytest.mark.parametrize(("kind", "line"), [("function", OF_FUNCTION), ("child", OF_WORKERS)])
def test_a_script_without_a_loader_is_watched_and_ended(tmp_path, kind, line):
    status, said, found = command(tmp_path, "run", SCRIPT, kind)
    assert status == 0, said
    assert "So it was watched." in said
    assert found["verdict"]["state"] == "input_bound"
    assert 0.5 < found["verdict"]["input_share"]["estimate"] < 0.95  # 30 ms of 40
    assert line in [one["line"] for one in found["lines"]]
    assert (found["ranks"][0]["pid"] != found["pid"]) == (kind == "child")
    assert (found["edit"] is not None) == (kind == "function")

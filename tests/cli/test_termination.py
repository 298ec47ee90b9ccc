"""A diagnosis that is asked to end does so in order: with what was measured, and with nothing left behind."""

import json
import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil
import pytest

JOB = """
import os, time, torch
from torch.utils.data import TensorDataset

def step(batch):
    time.sleep(0.002)
    with open(os.environ["STEPS"], "ab") as file:
        file.write(b".")

def build():
    return {"dataset": TensorDataset(torch.zeros(1000, 4)), "train_step": step, "batch_size": 4, "num_workers": 2}
"""

# Under nohup requests to end are ignored, and so would be this one.
RUN = """
import signal, sys
signal.signal(getattr(signal, sys.argv.pop(1)), signal.SIG_DFL)
signal.signal(signal.SIGINT, signal.default_int_handler)
from bottleneck.cli.main import main
main()
"""


def left_by(pid):
    return [*Path("/dev/shm").glob(f"torch-bottleneck-{pid}-*"), *Path("/dev/shm").glob(f"torch_{pid}_*")]


@pytest.mark.integration
def test_requests_to_end(tmp_path):
    requests = ("SIGINT", "SIGTERM", "SIGHUP")
    with ThreadPoolExecutor(len(requests)) as pool:  # no times are compared
        for _ in pool.map(lambda request: check_end(tmp_path / request, request), requests):
            pass


def check_end(folder, request):
    folder.mkdir()
    (folder / "job.py").write_text(JOB)
    steps = folder / "steps"
    process = subprocess.Popen(
        [sys.executable, "-c", RUN, request, "diagnose", "job.py:build", "--budget", "50s", "--json", "result.json"],
        cwd=folder, env={**os.environ, "STEPS": str(steps)}, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    try:
        deadline = time.monotonic() + 45
        while not steps.exists() or steps.stat().st_size < 600:
            assert time.monotonic() < deadline, "the job never got as far as being measured"
            assert process.poll() is None, process.stderr.read()
            time.sleep(0.1)
        workers = psutil.Process(process.pid).children(recursive=True)
        assert left_by(process.pid) or not Path("/dev/shm").is_dir()
        process.send_signal(getattr(signal, request))
        _, errors = process.communicate(timeout=20)
    finally:
        process.kill()
        process.communicate()
    assert process.returncode == 130, errors
    assert b"Interrupted." in errors
    assert b"Traceback" not in errors
    assert not any(worker.is_running() and worker.status() != psutil.STATUS_ZOMBIE for worker in workers)
    assert not [left for pid in (process.pid, *(worker.pid for worker in workers)) for left in left_by(pid)]
    assert json.loads((folder / "result.json").read_text())["schema_version"] == 1

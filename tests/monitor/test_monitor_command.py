"""`bottleneck monitor`: unmodified scripts, watched to their end, in separate processes."""

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parent / "scripts" / "stalls.py"
SOURCE = SCRIPT.read_text().splitlines()

pytestmark = [pytest.mark.integration, pytest.mark.untimed]


def start(folder, *arguments, launcher=(), script=SCRIPT):
    command = [sys.executable, "-m", *launcher, "bottleneck", "monitor", "--out", "events.jsonl", script, *arguments]
    return subprocess.Popen(
        list(map(str, command)), cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def run(folder, *arguments, **settings):
    process = start(folder, *arguments, **settings)
    out, err = process.communicate(timeout=120)
    return subprocess.CompletedProcess(arguments, process.returncode, out, err)


def events_of(path, kind):
    # Of a job that was killed, the last line may be cut.
    lines = [line for line in path.read_text().split("\n")[:-1] if line]
    return [event for event in map(json.loads, lines) if event["event"] == kind]


def line_with(comment):
    return next(number for number, line in enumerate(SOURCE, 1) if line.endswith(comment))


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_a_slow_sample_a_stalling_worker_and_a_slow_checkpoint_are_named(tmp_path, method):
    done = run(tmp_path, "--start", method)
    assert (done.returncode, done.stdout) == (0, "trained 250\n"), done.stderr
    path = tmp_path / "events.jsonl"
    found = [one for one in events_of(path, "slow_batch") if one["seconds"] > 0.2]
    slow = {one["line"]: one for one in found if one["file"] == str(SCRIPT)}
    sample, stall = slow[line_with("# the slow sample")], slow[line_with("# the worker that stalls")]
    assert (sample["stage"], sample["slowest"]) == ("decode", 777)
    assert 777 in sample["indices"]
    assert sample["slowest_s"] == pytest.approx(0.4, abs=0.2)
    assert (stall["stage"], stall["worker"]) == ("other", 1)
    (saved,) = events_of(path, "checkpoint")
    assert saved["line"] == line_with("# the slow checkpoint")
    assert 0.4 <= saved["seconds"] < 0.8
    (epoch,) = events_of(path, "epoch")
    assert epoch["start_s"] < 60
    assert "stalls.py:" in done.stderr  # the report


def test_what_was_seen_a_second_before_a_kill_is_in_the_file(tmp_path):
    process = start(tmp_path, "--epochs", "50", "--progress", tmp_path / "progress")
    try:
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline and not steps_until(tmp_path / "progress", time.time() - 3):
            time.sleep(0.1)
        killed_s = time.time()
    finally:
        process.kill()
        process.communicate()
    assert process.returncode == -signal.SIGKILL
    written = sum(one["batches"] for one in events_of(tmp_path / "events.jsonl", "waits"))
    assert written >= steps_until(tmp_path / "progress", killed_s - 1) > 0
    shown = subprocess.run(
        [sys.executable, "-m", "bottleneck", "report", "events.jsonl"],
        cwd=tmp_path, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert "Watched, not tried" in shown.stdout


def steps_until(path, at):
    lines = [line.split() for line in path.read_text().split("\n")[:-1]] if path.exists() else []
    return max((int(step) for step, when in lines if float(when) <= at), default=0)


def test_two_ranks_write_a_file_each(tmp_path):
    launcher = ("torch.distributed.run", "--nproc-per-node", "2", "--master-port", "29761", "-m")
    done = run(tmp_path, "--ddp", "--samples", "800", launcher=launcher)
    assert done.returncode == 0, done.stderr
    for name, rank in (("events.jsonl", 0), ("events.rank1.jsonl", 1)):
        assert {one["rank"] for one in events_of(tmp_path / name, "waits")} == {rank}
        assert sum(one["batches"] for one in events_of(tmp_path / name, "waits")) == 100
    shown = subprocess.run(
        [sys.executable, "-m", "bottleneck", "report", "events.jsonl", "--format", "json"],
        cwd=tmp_path, capture_output=True, text=True, check=True,
    )  # fmt: skip
    report = json.loads(shown.stdout)
    assert (report["world"], [one["rank"] for one in report["loaders"]]) == (2, [0, 1])
    assert {one["rank"] for one in report["worst"] if one["slowest"] == 777} == {0, 1}


@pytest.mark.parametrize(("end", "status", "said"), [("5", 1, "5"), ("raise", 1, "ValueError: of the script")])
def test_a_script_ends_as_by_itself(tmp_path, end, status, said):
    settings = ("--samples", "80", "--workers", "0", "--seconds", "0", "--end", end)
    plain = subprocess.run([sys.executable, SCRIPT, *settings], capture_output=True, text=True, check=False)
    done = run(tmp_path, *settings)
    assert (done.returncode, done.stdout) == (plain.returncode, plain.stdout) == (status, "trained 10\n")
    assert said in done.stderr
    assert done.stderr.startswith(plain.stderr)
    assert events_of(tmp_path / "events.jsonl", "summary")[-1]["ended"]


def test_a_request_to_end_ends_it_at_once_as_without_us(tmp_path):
    process = start(tmp_path, "--epochs", "50", "--progress", tmp_path / "progress")
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and not steps_until(tmp_path / "progress", time.time()):
        time.sleep(0.1)
    process.terminate()
    out, _ = process.communicate(timeout=30)
    assert (process.returncode, out) == (-signal.SIGTERM, "")

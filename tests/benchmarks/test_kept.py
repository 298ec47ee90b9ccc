"""What the bench keeps: its parts, and the lines from a GPU that survive being cut off."""

import itertools
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace

import pytest
import torch
from click.testing import CliRunner

from benchmarks import bench, kept
from benchmarks.checks import Check
from benchmarks.gpu_evidence import LINES, PAGE, PARTS, append_line, ended, read_lines, render_page, run_parts
from benchmarks.gpu_job import Job, Settings
from benchmarks.gpu_parts import samples_per_s
from benchmarks.kept import Part, merged, read, to_markdown, write
from tests.support.clock import FakeClock

# --- parts --------------------------------------------------------------------------------------------------


VERDICTS = Part(
    "verdicts", "2026-01-02", {"cores": "2", "steady": "0.7 ms"}, (("Planted", "| a |"), ("More", "| b |")),
    (Check("right", "all", "21 | 21", held=True),), "revision a1",
)  # fmt: skip
SPEED = Part(
    "speed",
    "2026-01-03",
    {"cores": "2", "steady": "1.2 ms"},
    (("Time", "| c |"),),
    (Check("time", "60 s", "70", False, ("slow_load: 70 s",)),),
    "revision b2",
)
ORDER = ("verdicts", "speed")


def test_a_part_taken_again_takes_the_place_of_the_old_one():
    again = replace(VERDICTS, taken="2026-02-01")
    assert merged([VERDICTS, SPEED], again, ORDER) == [again, SPEED]
    assert merged([SPEED], VERDICTS, ORDER) == [VERDICTS, SPEED]


def test_parts_are_read_as_they_were_written(tmp_path):
    path = tmp_path / "results.json"
    assert read(path) == []
    write(path, [VERDICTS, SPEED])
    assert read(path) == [VERDICTS, SPEED]
    assert (tmp_path / "RESULTS.md").read_text() == to_markdown([VERDICTS, SPEED])


def test_the_page_says_when_each_part_was_taken_and_what_all_share_once():
    page = to_markdown([VERDICTS, SPEED])
    assert page.count("| cores") == 1
    assert "Taken on 2026-01-02 with revision a1; steady 0.7 ms." in page
    assert "Taken on 2026-01-03 with revision b2; steady 1.2 ms." in page
    assert page.count("Taken on") == 2
    assert page.index("**missed**") < page.index("## Planted") < page.index("## Time")


def test_only_what_was_run_is_kept_anew(tmp_path, monkeypatch):
    path = tmp_path / "results.json"
    monkeypatch.setattr(bench, "RESULTS", path)
    monkeypatch.setattr(bench, "describe_steadiness", lambda: "steady")
    monkeypatch.setattr(bench, "PARTS", {
        "verdicts": lambda report, quick: report.add("Planted", "| new |", VERDICTS.checks),
        "speed": lambda report, quick: pytest.fail("not asked for"),
    })  # fmt: skip
    write(path, [VERDICTS, SPEED])
    result = CliRunner().invoke(bench.main, ["--part", "verdicts"])
    assert result.exit_code == 0, result.output
    first, second = read(path)
    assert first.sections == (("Planted", "| new |"),)
    assert second == SPEED
    assert CliRunner().invoke(bench.main, ["--part", "verdicts", "--quick"]).exit_code == 0
    assert CliRunner().invoke(bench.main, ["--part", "nothing"]).exit_code == 2


def test_a_missed_bar_is_the_exit_status(tmp_path, monkeypatch):
    monkeypatch.setattr(bench, "RESULTS", tmp_path / "results.json")
    monkeypatch.setattr(bench, "describe_steadiness", lambda: "steady")
    monkeypatch.setattr(bench, "PARTS", {"speed": lambda report, quick: report.add("Time", "| c |", SPEED.checks)})
    result = CliRunner().invoke(bench.main, [])
    assert result.exit_code == 1
    assert "Missed: time" in result.output


def test_the_results_in_the_tree_are_those_that_are_kept():
    parts = kept.read(bench.RESULTS)
    assert {part.name for part in parts} <= set(bench.PARTS)
    page = bench.RESULTS.with_name("RESULTS.md").read_text(encoding="utf-8")
    assert page == to_markdown(parts, list(bench.PARTS))


# --- evidence from a GPU ------------------------------------------------------------------------------------


def test_a_line_that_was_cut_off_is_left_out(tmp_path):
    append_line(tmp_path, "proofs", "capture", holds=True)
    with (tmp_path / LINES).open("a") as file:
        file.write('{"part": "proofs", "na')
    assert read_lines(tmp_path) == [{"part": "proofs", "name": "capture", "holds": True}]


def test_a_part_is_done_once_it_has_ended(tmp_path):
    append_line(tmp_path, "machine", "versions", torch="2.11")
    append_line(tmp_path, "machine", "end", status="ok", seconds=3.0)
    append_line(tmp_path, "proofs", "capture", holds=True)
    assert ended(read_lines(tmp_path)) == {"machine"}


def test_without_a_device_a_part_that_needs_one_says_so(tmp_path):
    run_parts([part for part in PARTS if part.needs_cuda], tmp_path, 60.0, has_cuda=False)
    assert {line["status"] for line in read_lines(tmp_path)} == {"needs a CUDA device"}


def test_the_page_says_what_was_missed():
    lines = [
        {"part": "planted", "name": "copy_slow", "holds": False, "efficiency": "0.81", "took_s": 12.3456},
        {"part": "planted", "name": "device_bound", "holds": True, "samples": [12345, {"device": 1600}]},
        {"part": "planted", "name": "end", "status": "ok", "seconds": 20},
    ]
    page = render_page(lines)
    assert "- copy slow (**missed**): efficiency 0.81; took s 12.35\n" in page
    assert "- device bound (held): samples 12,345, device 1,600\n" in page
    assert "## Machine" not in page


@pytest.mark.integration
@pytest.mark.untimed
def test_another_call_goes_on_where_the_last_one_was_killed(tmp_path):
    command = [sys.executable, "-m", "benchmarks.gpu_evidence", "--out", str(tmp_path), "--seconds", "60"]
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": ""}
    first = subprocess.Popen(command, start_new_session=True, env=environment, stderr=subprocess.DEVNULL)
    until_s = time.monotonic() + 60
    while not ended(read_lines(tmp_path)) and time.monotonic() < until_s:
        time.sleep(0.1)
    os.killpg(first.pid, signal.SIGKILL)
    first.wait()
    subprocess.run(command, check=True, env=environment, capture_output=True, timeout=120)
    lines = read_lines(tmp_path)
    assert ended(lines) >= {"machine", "proofs", "changes", "planted"}
    assert [line["name"] for line in lines if line["part"] == "machine"].count("versions") == 1
    assert "needs a CUDA device" in (tmp_path / PAGE).read_text()


def test_a_plain_loop_counts_after_its_warm_up_and_waits_for_the_device_at_both_ends():
    clock, log = FakeClock(), []

    def steps():
        for number in itertools.count():
            clock.advance(1.0 if number < 5 else 0.5)  # slow at first
            log.append("step")
            yield 10

    rate = samples_per_s(steps(), 10.0, warm_up_s=5.0, synchronize=lambda: log.append("wait"), clock=clock)
    assert rate == pytest.approx(20.0)
    assert log.count("wait") == 2
    assert (log[5], log[-1]) == ("wait", "wait")


@pytest.mark.parametrize("changes", [{}, {"uint8": True, "autocast": True}], ids=["float32", "bytes"])
def test_the_job_trains(changes):
    settings = replace(Settings(workers=0, batch_size=2, side=16), **changes)
    job = Job(
        settings,
        torch.device("cpu"),
        lambda: torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(3 * 16 * 16, 1000)),
    )
    before = [parameter.detach().clone() for parameter in job.model.parameters()]
    assert [next(job.steps()), next(job.steps_on_device(1))] == [2, 2]
    assert any(not torch.equal(*pair) for pair in zip(before, job.model.parameters(), strict=True))
    (images, labels), dtype = next(iter(job.loader())), torch.uint8 if changes else torch.float32
    assert (images.shape, images.dtype, labels.dtype) == ((2, 3, 16, 16), dtype, torch.int64)

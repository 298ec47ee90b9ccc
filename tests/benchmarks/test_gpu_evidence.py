"""The evidence from a GPU: how it is judged, the page that is made of it, and the run; one test rehearses all of it."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import click
import psutil
import pytest

from benchmarks import gpu_page
from benchmarks.gpu_checks import BARS, HEADERS, check_run, row
from benchmarks.gpu_evidence import run_parts
from benchmarks.gpu_lines import LINES, NAMES, PAGE, PARTS, REHEARSED, ended, read_lines, runs_of, shown_run
from benchmarks.gpu_page import jobs_table, keep_lines, to_page, with_table, write_pages

ROOT = Path(__file__).resolve().parents[2]
H100 = "NVIDIA H100 80GB HBM3"
AT, MACHINE = "2027-01-02T03:04:05+00:00", {"processor": "a processor", "cores": "16 usable of 16"}


# --- lines that hold every bar ------------------------------------------------------------------------------


def plain(rate, **facts):
    return {"samples_per_s": rate, "efficiency": 0.36, "copy_ms": 11.0, "host_ms": 4.0, "stolen": 0.0, **facts}


def advice(id_, gain):
    return {"id": id_, "gain": [gain, 1.0, gain], "proposed": None}


DIAGNOSIS = {
    "few_workers": {
        "bottleneck": None,
        "contributors": ["load", "augment"],
        "efficiency": [0.37, 0.34, 0.40],
        "advice": [advice("more-workers", 2.5)],
        "state_s": 9.0,
        "took_s": 28.0,
    },
    "enough_workers": {
        "bottleneck": "compute",
        "efficiency": [0.365, 0.36, 0.37],
        "advice": [advice("mixed-precision", 2.0)],
        "took_s": 15.0,
    },
    "fast_step": {
        "bottleneck": "load+augment",
        "efficiency": [0.34, 0.3, 0.4],
        "advice": [advice("uint8-until-device", 2.5)],
        "took_s": 30.0,
    },
    "copies": {
        "bottleneck": "copy",
        "efficiency": [0.40, 0.3, 0.5],
        "advice": [advice("pin-memory", 2.5)],
        "took_s": 20.0,
        "cost_s": {"copy": [0.012, 0.011, 0.013]},
        "warnings": [],
    },
}
COMMON = {"state": "input_bound", "samples_per_s": {"raw": 812.0}, "host_ms": 4.1, "stolen": 0.0}
FACTS = {
    "machine": {},
    **{
        part: {
            "plain_before": plain(790.0),
            "diagnosis": {**COMMON, **found},
            "plain_after": plain(810.0),
            "plain_changed": plain(2000.0),
        }
        for part, found in DIAGNOSIS.items()
    },
    "tune_script": {
        "a1": plain(380.0),
        "tuning": {
            "gain": [2.8, 2.7, 2.9],
            "rungs": [{"samples_per_s": [390.0, 380.0, 400.0]}],
            "took_s": 68.0,
            "host_ms": 4.0,
            "trials": [{"setting": "num_workers=6", "pairs": 3}, {"setting": "num_workers=12+autocast", "pairs": 2}],
        },
        "b1": plain(1100.0),
        "a2": plain(400.0),
        "b2": plain(1080.0),
    },
    "run_script": {
        "plain": plain(5000.0),
        "run": {
            "status": 0,
            "efficiency": [0.38, 0.3, 0.4],
            "told": {"compiled": 1, "wrong_images": 0},
            "host_ms": 4.0,
        },
    },
    "memory": {
        "kept": {
            "kept_bytes": 66 * 2**20,
            "kept_bytes_once_cleared": 2**20,
            "trials": {"cuda_graphs": "dropped"},
        },
        "sharded": {"put_back": True},
    },
}


def lines_of(part, card=H100, status="ok", **changed):
    """The lines of a run of a part, with changes to some of them; `lost` are the names of those it never came to."""
    lost = changed.pop("lost", ())
    found = {name: {**facts, **changed.get(name, {})} for name, facts in FACTS[part].items() if name not in lost}
    lines = [{"name": "begin", "at": AT, "card": card, "code": "revision a1", "machine": MACHINE}]
    lines += [{"name": name, **facts} for name, facts in found.items()]
    lines += [{"name": "end", "status": status, "seconds": 40.0}] if status else []
    return [{"part": part, **line} for line in lines]


def judged(part, **changed):
    return {
        check.what.rpartition(": ")[2]: check.verdict for check in check_run(shown_run(lines_of(part, **changed), part))
    }


# --- bars ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("part", NAMES)
def test_all_bars_are_held_by_what_is_right(part):
    assert set(judged(part).values()) <= {"held"}


@pytest.mark.parametrize(
    ("part", "changed", "missed"),
    [
        ("few_workers", {"diagnosis": {"contributors": []}}, "name"),
        ("few_workers", {"diagnosis": {"contributors": ["load", "handoff"]}}, "name"),
        ("few_workers", {"diagnosis": {"efficiency": [0.328, 0.30, 0.36]}}, "efficiency"),
        ("few_workers", {"diagnosis": {"efficiency": [0.36, 0.30, 0.42]}}, "half width of the efficiency"),
        ("few_workers", {"diagnosis": {"state_s": None}}, "state"),
        ("few_workers", {"diagnosis": {"state_s": 12.1}}, "state"),
        ("few_workers", {"diagnosis": {"took_s": 31.0}}, "end"),
        ("few_workers", {"diagnosis": {"advice": [advice("more-workers", 2.8)]}}, "gain of more-workers"),
        ("few_workers", {"diagnosis": {"advice": []}}, "gain of more-workers"),
        ("enough_workers", {"diagnosis": {"efficiency": [0.371, 0.36, 0.38]}}, "efficiency"),
        ("enough_workers", {"diagnosis": {"took_s": 20.5}}, "end"),
        ("enough_workers", {"diagnosis": {"advice": [advice("mixed-precision", 2.6)]}}, "gain of mixed-precision"),
        ("fast_step", {"diagnosis": {"bottleneck": "compute"}}, "name"),
        ("fast_step", {"plain_changed": {"samples_per_s": 1700.0}}, "gain of uint8-until-device"),
        ("copies", {"diagnosis": {"cost_s": {"copy": [0.0085, 0.0, 0.02]}}}, "copy, by events"),
        ("copies", {"diagnosis": {"cost_s": {}}}, "copy, by events"),
        ("copies", {"diagnosis": {"efficiency": [0.42, 0.3, 0.5]}}, "efficiency"),
        ("copies", {"diagnosis": {"warnings": ["costs-do-not-add-up"]}}, "costs-do-not-add-up"),
        (
            "tune_script",
            {"tuning": {"rungs": [{"samples_per_s": [565.0, 500.0, 600.0]}]}},
            "its baseline, by the script itself",
        ),
        ("tune_script", {"tuning": {"gain": [1.97, 1.9, 2.04]}}, "its gain, by the patched script"),
        ("tune_script", {"tuning": {"gain": None}}, "its gain, by the patched script"),
        (
            "tune_script",
            {"tuning": {"trials": [{"setting": "num_workers=12", "pairs": 0}]}},
            "the most workers that were tried",
        ),
        ("run_script", {"run": {"status": 1}}, "status"),
        ("run_script", {"run": {"told": {"compiled": 2, "wrong_images": 0}}}, "compilations"),
        ("run_script", {"run": {"told": {"compiled": 1, "wrong_images": 3}}}, "wrong images"),
        ("run_script", {"run": {"efficiency": [0.40, 0.3, 0.5]}}, "efficiency"),
        ("memory", {"kept": {"kept_bytes_once_cleared": 5 * 2**20}}, "memory kept by a tuning"),
        ("memory", {"kept": {"kept_bytes": 131 * 2**20}}, "workspaces kept by its recordings"),
        (
            "memory",
            {"kept": {"trials": {"cuda_graphs": "not_applicable"}}},
            "workspaces kept by its recordings",
        ),
        ("memory", {"sharded": {"put_back": False}}, "a sharded model, after its diagnosis"),
    ],
)
def test_a_bar_that_is_missed_is_the_only_one(part, changed, missed):
    assert {what for what, verdict in judged(part, **changed).items() if verdict != "held"} == {missed}
    assert judged(part, **changed)[missed] == "**missed**"


def test_what_was_cut_off_is_missed_or_not_compared_and_never_held():
    found = judged("few_workers", lost=("diagnosis", "plain_after", "plain_changed"), status="")
    assert set(found.values()) == {"**missed**"}
    assert judged("tune_script", lost=("b1", "a2", "b2"))["its gain, by the patched script"] == "not compared"
    assert set(judged("run_script", lost=("run",)).values()) == {"**missed**"}


def test_a_figure_is_compared_only_with_those_of_an_equally_fast_host():
    slower = {"host_ms": 4.4, "samples_per_s": 500.0, "efficiency": 0.2}
    assert judged("few_workers", plain_before=slower)["efficiency"] == "held"
    both = judged("few_workers", plain_before=slower, plain_after=slower)
    assert both["efficiency"] == both["gain of more-workers"] == "not compared"
    assert both["name"] == "held"
    assert judged("copies", plain_changed={"host_ms": 3.0})["gain of pin-memory"] == "not compared"
    assert (
        judged("tune_script", a1={"host_ms": 3.0}, a2={"host_ms": 3.0})["its baseline, by the script itself"]
        == "not compared"
    )


# --- the page -----------------------------------------------------------------------------------------------


def test_each_job_is_a_row_with_its_card():
    found = dict(zip(HEADERS, row("few_workers", shown_run(lines_of("few_workers"), "few_workers")), strict=True))
    assert found == {
        "job": "ResNet-50, 3 workers",
        "card": H100,
        "plain loop": "800/s",
        "tool": "812/s",
        "waits for": "augment and load",
        "gain promised": "2.50x",
        "gain real": "2.50x",
        "answered in": "28 s",
    }
    tuned = row("tune_script", shown_run(lines_of("tune_script"), "tune_script"))
    assert tuned[2:] == ("390/s", "390/s", "–", "2.80x", "2.79x", "68 s")
    unchanged = row("tune_script", shown_run(lines_of("tune_script", tuning={"gain": None}), "tune_script"))
    assert unchanged[5:7] == ("–", "–")


def test_a_row_is_of_the_last_complete_run_and_mixes_no_cards():
    fast = {"plain_before": {"samples_per_s": 2000.0}, "plain_after": {"samples_per_s": 2000.0}}
    lines = [*lines_of("few_workers"), *lines_of("few_workers", "NVIDIA H200", **fast)]
    assert row("few_workers", shown_run(lines, "few_workers"))[1:3] == ("NVIDIA H200", "2,000/s")
    lines += lines_of("few_workers", "another card", status="", lost=("diagnosis", "plain_after"))
    assert row("few_workers", shown_run(lines, "few_workers"))[1] == "NVIDIA H200"
    assert [run.status for run in runs_of(lines, "few_workers")] == ["ok", "ok", "cut off with the call"]


def test_the_page_begins_with_the_jobs_and_keeps_older_lines_below():
    older = {"part": "proofs", "name": "channels_last", "holds": False, "found": "a layout"}
    page = to_page([older, *lines_of("copies", took_s=1), *lines_of("copies")])
    table, bars, section, below = (page.index(text) for text in ("| job ", "## Bars", "## 38 MB", "## Older lines"))
    assert table < bars < section < below < page.index("- channels last (**missed**): found a layout")
    assert page.count("| 38 MB") == 6  # its row, and its five bars
    assert page.count("- plain before") == 2
    assert "Not measured yet: enough_workers, fast_step, few_workers, machine, memory" in page
    assert jobs_table([]).count("–") == len(gpu_page.ROWS) * (len(HEADERS) - 1)


def test_the_page_in_the_tree_is_that_of_the_lines_that_are_kept():
    lines = read_lines(gpu_page.KEPT)
    assert gpu_page.PAGE.read_text(encoding="utf-8") == to_page(lines)
    readme = gpu_page.README.read_text(encoding="utf-8")
    assert with_table(readme, lines) == readme


def test_lines_are_kept_once_and_shown_in_the_readme(tmp_path):
    kept, page, readme, folder = (tmp_path / name for name in ("kept.jsonl", "GPU.md", "README.md", "out"))
    folder.mkdir()
    readme.write_text("before\n<!--gpu-table-->\n<!--/gpu-table-->\nafter\n", encoding="utf-8")
    write_pages(kept, page, readme)
    assert readme.read_text(encoding="utf-8") == "before\n<!--gpu-table-->\n<!--/gpu-table-->\nafter\n"
    texts = [json.dumps(line) + "\n" for line in lines_of("copies")]
    (folder / LINES).write_text("".join(texts), encoding="utf-8")
    assert keep_lines(folder, kept) == len(texts)
    assert keep_lines(folder, kept) == 0
    write_pages(kept, page, readme)
    assert jobs_table(read_lines(kept)) in readme.read_text(encoding="utf-8")
    assert page.read_text(encoding="utf-8") == to_page(lines_of("copies"))


def test_nothing_of_a_rehearsal_is_kept(tmp_path):
    with pytest.raises(click.ClickException, match="no lines"):
        keep_lines(tmp_path, tmp_path / "kept")
    text = "".join(json.dumps(line) + "\n" for line in lines_of("copies", REHEARSED))
    (tmp_path / LINES).write_text(text, encoding="utf-8")
    with pytest.raises(click.ClickException, match="rehearsal"):
        keep_lines(tmp_path, tmp_path / "kept")


# --- the run ------------------------------------------------------------------------------------------------


CHILD = """
import json, sys, time
folder, slow, name = sys.argv[1:]
def line(what, **facts):
    with open(folder + "/evidence.jsonl", "a") as file:
        file.write(json.dumps({"part": name, "name": what, **facts}) + "\\n")
if name == "copies":
    sys.exit(3)
line("ready")
told = sys.stdin.readline()
line("found", seconds=float(told))
if name == slow:
    time.sleep(60)
"""
FEW = [part for part in PARTS if part.name in ("machine", "copies", "memory")]


@pytest.mark.integration
@pytest.mark.untimed
def test_parts_start_at_once_and_run_one_after_the_other_each_within_its_time(tmp_path):
    command = [sys.executable, "-c", CHILD, str(tmp_path), "memory"]
    run_parts(FEW, tmp_path, 4.0, lambda: {"card": H100}, command)
    lines = read_lines(tmp_path / LINES)
    names = [(line["part"], line["name"]) for line in lines]
    assert sorted(names[:2]) == [("machine", "ready"), ("memory", "ready")]
    assert [name for name in names[2:] if name[1] != "found"] == [
        (part, name) for part in ("machine", "copies", "memory") for name in ("begin", "end")
    ]
    statuses = {line["part"]: line["status"] for line in lines if line["name"] == "end"}
    assert statuses == {"machine": "ok", "copies": "failed with status 3", "memory": "cut off at its limit"}
    given_s = {line["part"]: line["seconds"] for line in lines if line["name"] == "found"}
    # What the others leave over is the last one's.
    assert given_s["memory"] > 4.0 * 50 / (14 + 38 + 50)
    assert ended(lines) == {"machine", "copies", "memory"}


@pytest.mark.integration
@pytest.mark.untimed
def test_no_child_stays_where_there_is_no_gpu(tmp_path):
    def describe():
        raise click.ClickException("no GPU")

    command = [sys.executable, "-c", CHILD, str(tmp_path), ""]
    with pytest.raises(click.ClickException):
        run_parts(FEW, tmp_path, 60.0, describe, command)
    assert not ended(read_lines(tmp_path / LINES))
    assert not [child for child in psutil.Process().children() if str(tmp_path) in " ".join(child.cmdline())]


LEFT = {
    "machine": {"host", "copy_pinned", "copy_pageable"},
    **{part: {"plain_before", "on_device", "diagnosis", "plain_after", "plain_changed"} for part in BARS},
    "tune_script": {"a1", "tuning", "b1", "a2", "b2"},
    "run_script": {"plain", "run"},
    "memory": {"kept", "sharded"},
}
"""The lines that each part leaves."""


@pytest.mark.integration
@pytest.mark.untimed
@pytest.mark.timeout(600)
def test_a_rehearsal_that_is_killed_goes_on_and_every_part_leaves_its_lines(tmp_path):
    command = [sys.executable, "-m", "benchmarks.gpu_evidence", "--rehearse", "--out", str(tmp_path)]
    command += ["--seconds", "420"]  # a limit, for machines on which others work
    quiet = {"cwd": ROOT, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    first = subprocess.Popen(command, start_new_session=True, **quiet)
    try:
        wait_for(lambda: any(line["name"] == "plain_before" for line in read_lines(tmp_path / LINES)), 100)
    finally:
        os.kill(first.pid, signal.SIGKILL)
        first.wait()
    wait_for(lambda: not any(str(tmp_path) in " ".join(one.info["cmdline"] or ()) for one in processes()), 10)
    subprocess.run(command, check=True, timeout=480, **quiet)
    lines = read_lines(tmp_path / LINES)
    assert [line["part"] for line in lines if line["name"] == "begin"] == ["machine", "few_workers", *NAMES[1:]]
    for part in NAMES:
        run = shown_run(lines, part)
        assert run.status == "ok", part
        assert {line["name"] for line in run.lines} == {"begin", "end", *LEFT[part]}
    for part in BARS:
        assert {"host_ms", "stolen", "phases", "rounds", "took_s"} <= shown_run(lines, part)["diagnosis"].keys()
        assert {"host_ms", "efficiency", "worker_ms"} <= shown_run(lines, part)["plain_before"].keys()
    run = shown_run(lines, "run_script")
    assert (run["run"]["status"], run["run"]["told"]["compiled"], run["run"]["told"]["wrong_images"]) == (0, 1, 0)
    assert shown_run(lines, "memory")["sharded"]["put_back"] is True
    assert (tmp_path / PAGE).read_text(encoding="utf-8") == to_page(lines)


def processes():
    return psutil.process_iter(["cmdline"])


def wait_for(holds, limit_s):
    until_s = time.monotonic() + limit_s
    while not holds():
        assert time.monotonic() < until_s
        time.sleep(0.2)

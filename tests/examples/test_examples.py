"""Every example runs, at a small size."""

import functools
import importlib
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.looks import diagnose_until

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
SMALL = {
    "image_folder": {"images": 32, "size": 32, "batch_size": 4, "num_workers": 1},
    "seed_ladder": {"images": 256, "size": 32, "batch_size": 4},
    "text_padding": {"sentences": 500, "longest": 48, "width": 16, "batch_size": 8},
    "marked_stages": {"images": 32, "size": 32, "batch_size": 4, "num_workers": 1},
    "iterable_shards": {"images": 32, "shards": 2, "size": 32, "batch_size": 4, "num_workers": 1},
    "train": {"images": 256, "batch_size": 8, "num_workers": 1},
}


@pytest.fixture(autouse=True)
def photographs_go_elsewhere(monkeypatch, tmp_path_factory):
    # One folder for the whole run, so that the photographs are drawn once.
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.getbasetemp() / "photographs"))


def build(name: str, **sizes):
    return importlib.import_module(f"examples.{name}").build(**sizes)


def test_every_example_is_tested():
    assert {path.stem for path in EXAMPLES.glob("*.py")} == set(SMALL)


@pytest.mark.parametrize("name", SMALL)
def test_what_it_builds_can_be_run(name):
    from bottleneck.job.checks import check

    check(build(name, **SMALL[name]))


@functools.cache
def diagnosed(name: str):
    return diagnose_until(
        lambda diagnosis: diagnosis.verdict.efficiency is not None and diagnosis.verdict.efficiency.estimate < 1.5,
        build(name, **SMALL[name]),
        (4.0, 15.0, 30.0),
        quick=True,
    )


@pytest.mark.integration
@pytest.mark.parametrize("name", SMALL)
def test_it_can_be_diagnosed(name):
    diagnosis = diagnosed(name)
    assert diagnosis.verdict.state in ("input_bound", "device_bound", "undecided")
    assert 0 < diagnosis.verdict.efficiency.estimate < 1.5
    raw = next(e for e in diagnosis.experiments if e.name == "raw")
    assert raw.coupled.samples_per_s > 0


def stages_of(diagnosis) -> list[str]:
    return [stage.name for stage in diagnosis.stages]


@pytest.mark.integration
def test_marked_stages_have_rows_of_their_own():
    diagnosis = diagnosed("marked_stages")
    assert stages_of(diagnosis) == [
        "compute", "handoff", "collate", "mix_up", "other", "augment_pixels", "decode", "read"
    ]  # fmt: skip
    assert not [w for w in diagnosis.warnings if w.id in ("mark-not-called", "mark-not-used", "mark-output-changed")]


@pytest.mark.integration
def test_a_stage_that_is_marked_within_a_stream_has_a_row():
    assert stages_of(diagnosed("iterable_shards")) == ["compute", "handoff", "collate", "other", "decode"]


def run_train(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(EXAMPLES / "train.py"), *arguments]
    environment = {**os.environ, "PYTHONPATH": str(EXAMPLES.parent)}  # as if the package were installed
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=False)


@pytest.mark.integration
def test_the_training_script_diagnoses_itself():
    done = run_train("--images", "1000", "--diagnose", "--budget", "3s")
    assert done.returncode == 0, done.stderr
    assert "one step" in done.stdout
    assert "epoch" not in done.stdout.splitlines()[0]

"""The pass of profiling names the planted hot function, and costs a diagnosis nothing where py-spy fails."""

import time

import pytest
import torch
from torch.utils.data import DataLoader, Dataset

from bottleneck.job.cuts import find_sites
from bottleneck.job.marks import stage
from bottleneck.loader.switched import SwitchedLoader
from bottleneck.measure import start
from bottleneck.measure.ledger import Ledger
from bottleneck.measure.options import MeasureOptions, ProfileOptions
from bottleneck.measure.passes import profile, pyspy
from tests.loader.staged_datasets import record_with
from tests.support import sessions
from tests.support.sessions import pipeline_of, warnings_of

pytestmark = pytest.mark.integration
PERMISSION = "Error: Permission Denied: Try running again with elevated permissions"


def hot_decode(image):
    until = time.perf_counter() + 0.006
    while time.perf_counter() < until:
        sum(range(200))
    return image


def slow_disk(index):
    time.sleep(0.02)
    return torch.full((4,), float(index))


class Augment:
    def __call__(self, image):
        return hot_decode(image) + 1


class Computing(Dataset):
    def __init__(self):
        self.transform = Augment()

    def __len__(self):
        return 10_000

    def __getitem__(self, index):
        return self.transform(torch.full((4,), float(index)))


class Waiting(Computing):
    def __init__(self):
        self.transform = torch.nn.Identity()

    def __getitem__(self, index):
        return self.transform(slow_disk(index))


class Marked(Computing):
    @stage("my decode")
    def decode(self, image):
        return hot_decode(image)

    def __getitem__(self, index):
        return self.decode(torch.full((4,), float(index)))


@pytest.fixture(autouse=True)
def in_a_second(monkeypatch):
    monkeypatch.setattr(profile, "_MIN_S", 1)


def run(dataset, *, idle=False, **options):
    """Return the ledger after the pass over a loader that has recorded, as within a diagnosis."""
    loader = DataLoader(dataset, **{"batch_size": 4, "num_workers": 1, **options})
    wrapped = SwitchedLoader(loader, find_sites(dataset), 0, 30.0, at_start=pyspy.allow_tracing)
    wrapped.allow_caches(10**7)
    ledger = Ledger({}, {})
    try:
        wrapped.start()
        record_with(wrapped)
        profile.profile(wrapped, ProfileOptions(idle=idle), 4.0, ledger)
    finally:
        wrapped.close()
    needs_py_spy(ledger)
    return ledger


def run_within_a_diagnosis(dataset, profile=ProfileOptions(), workers=1):  # noqa: B008 - it is immutable
    pipeline = pipeline_of(dataset, train_step=lambda batch: time.sleep(0.01), num_workers=workers)
    return sessions.run(pipeline, MeasureOptions(budget_s=4.0, profile=profile))


def top(found):
    assert found.evidence.profile.functions, found.measurement().warnings
    return found.evidence.profile.functions[0]


@pytest.fixture
def fake_py_spy(tmp_path, monkeypatch):
    def use(script):
        program = tmp_path / "py-spy"
        program.write_text(f"#!/bin/sh\n{script}\n")
        program.chmod(0o755)
        monkeypatch.setattr(profile, "find_py_spy", lambda: str(program))

    return use


# --- with py-spy -------------------------------------------------------------------------------------------


def needs_py_spy(found):
    for warning in found.measurement().warnings:
        if warning.id == "profile-failed" and "may not look" in warning.message:
            pytest.skip(warning.message)


def test_a_function_that_computes_tops_the_table():
    found = run(Computing(), num_workers=2)
    spot = top(found)
    assert (spot.function, spot.stage) == ("hot_decode", "augment")
    assert spot.file.endswith("test_profiling.py")
    assert spot.own_share > 0.6
    seen, files = found.evidence.profile, found.profile_files
    assert (seen.sampler, seen.processes, seen.in_workers) == ("py-spy", 2, True)
    names = [f"worker-{worker}.{suffix}" for suffix in ("speedscope.json", "svg") for worker in (0, 1)]
    assert list(files) == names
    assert all("stage:augment" in content and "hot_decode" in content for content in files.values())


def test_a_function_that_waits_tops_the_table():
    found = run(Waiting(), idle=True)
    spot = top(found)
    assert (spot.function, spot.stage) == ("slow_disk", "load")
    assert spot.own_share > 0.6
    assert "slow_disk" in found.profile_files["worker-0.svg"]


def test_a_job_without_workers_is_profiled_from_outside():
    found = run(Computing(), num_workers=0)
    spot = top(found)
    assert spot.function == "hot_decode"
    assert spot.own_share > 0.6
    assert spot.stage == "augment"
    assert not found.evidence.profile.in_workers
    assert set(found.profile_files) == {"worker-0.svg", "worker-0.speedscope.json"}


def test_marked_stages_are_named():
    found = run(Marked())
    assert (top(found).function, top(found).stage) == ("hot_decode", "my decode")


# --- without it --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("script", "words"),
    [
        (f'echo "{PERMISSION}" >&2; exit 1', "it may not look into the process"),
        ("trap '' INT; exec sleep 60", "did not end"),
    ],
)
def test_a_py_spy_that_fails_costs_nothing(fake_py_spy, monkeypatch, script, words):
    monkeypatch.setattr(profile, "GRACE_S", 0.3)
    monkeypatch.setattr(pyspy, "_LAST_WORDS_S", 0.2)
    fake_py_spy(script)
    started = time.monotonic()
    outcome = run_within_a_diagnosis(Computing())
    assert outcome.failure is None
    assert [e.name for e in outcome.measurement.experiments if e.coupled]
    assert words in warnings_of(outcome)["profile-failed"]
    assert outcome.profile_files == {}
    assert time.monotonic() - started < 40


@pytest.mark.parametrize("asked_for", [True, False])
def test_workers_allow_to_be_looked_into_only_for_a_profile(monkeypatch, tmp_path, asked_for):
    monkeypatch.setattr(start, "allow_tracing", (tmp_path / "allowed").touch)
    loader = DataLoader(Computing(), batch_size=4, num_workers=1, multiprocessing_context="fork")
    options = MeasureOptions(profile=ProfileOptions() if asked_for else None)
    wrapped = start.open_loader(loader, (), options, 30.0)
    try:
        wrapped.next_batch()
    finally:
        wrapped.close()
    assert (tmp_path / "allowed").exists() == asked_for

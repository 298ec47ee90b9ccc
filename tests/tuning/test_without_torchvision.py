"""Jobs that need no torchvision are measured and tuned without it."""

import sys

import pytest
import torch

from bottleneck import doctor
from bottleneck.cli.main import run
from bottleneck.errors import ExitStatus
from bottleneck.tuner.changes import BUILT_IN
from tests.tuning.jobs import Pictures, here, table_job


@pytest.fixture(autouse=True)
def no_torchvision(monkeypatch):
    for name in [*sys.modules]:
        if name.partition(".")[0] == "torchvision":
            monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "torchvision", None)


class ToFloats:
    """A transform of the user's own."""

    def __call__(self, image):
        return torch.tensor(list(image.tobytes()), dtype=torch.float32)


@pytest.mark.parametrize("dataset", [None, Pictures(ToFloats())], ids=["tensors", "pictures"])
def test_a_tuning_asks_each_change_whether_it_applies(dataset):
    job = here(table_job(dataset))
    asked = [(change.propose(job, {}), change.why_not(job)) for change in BUILT_IN]
    assert [reason for _, reason in asked if "torchvision" in (reason or "")]


def test_the_demo_says_what_to_install(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    assert run(["demo"]) == ExitStatus.USAGE
    assert "torchvision" in (said := capsys.readouterr().err)
    assert "pip install 'torch-bottleneck[demo]'" in said
    assert not (tmp_path / "cache").exists()


def test_the_doctor_does_not_take_it_for_a_fault(monkeypatch):
    monkeypatch.setattr(doctor, "installed_version", lambda distribution: None)
    found = doctor.examine_torchvision()
    assert (found.status, found.message) == ("ok", "not installed; only the demo needs it")

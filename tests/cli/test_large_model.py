"""A model that fits into memory only once: the command line needs no copy of it, `diagnose` from Python does."""

import json
import sys
from textwrap import dedent

import pytest

from bottleneck.api import diagnose
from bottleneck.cli.main import run
from bottleneck.errors import MeasurementError
from bottleneck.job.target import build_pipeline
from bottleneck.measure.keep import preserved as keep
from bottleneck.measure.keep.preserved import preserved

JOB = """
import torch
from torch import nn
from torch.utils.data import TensorDataset
from bottleneck.job.pipeline import Pipeline

model = nn.Linear(64, 64)

def build():
    return Pipeline(
        dataset=TensorDataset(torch.ones(4096, 64), torch.zeros(4096, 64)), model=model, loss_fn=nn.MSELoss(),
        optimizer=torch.optim.SGD(model.parameters(), lr=0.01), device="cpu", batch_size=16,
    )
"""


@pytest.fixture
def fits_once(folder, monkeypatch):
    """A job whose model takes 17 kB, where 1 kB is free."""
    (folder / "large_job.py").write_text(dedent(JOB))
    monkeypatch.setattr(keep, "rank_memory_bytes", lambda: 1000)


@pytest.mark.integration
def test_the_command_line_diagnoses_it(fits_once, folder, capsys):
    with preserved():  # the random numbers and settings of this process, which does not end
        assert run(["diagnose", "large_job:build", "--budget", "3s", "--json", "result.json"]) == 0, capsys.readouterr()
    result = json.loads((folder / "result.json").read_text())
    assert result["verdict"]["state"]
    assert result["evidence"]["training"]["put_back"] > 0  # each round still begins with the same weights
    assert not {"ended-early", "weights-not-put-back"} & {warning["id"] for warning in result["warnings"]}
    weight = sys.modules["large_job"].model.weight
    assert weight.grad is not None  # nothing was put back in the end


@pytest.mark.integration
def test_python_refuses_it_and_names_the_command_line(fits_once):
    with pytest.raises(MeasurementError, match="iB of memory") as caught:
        diagnose(build_pipeline("large_job:build"), budget="3s")
    assert "`bottleneck diagnose` keeps no copy" in caught.value.remedy
    assert sys.modules["large_job"].model.weight.grad is None

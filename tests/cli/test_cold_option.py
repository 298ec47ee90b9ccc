"""`--cold` and `diagnose(cold=True)` reach the measuring, and are off unless asked for."""

import pytest

import bottleneck
from bottleneck.api import Attempt, Diagnosis
from bottleneck.cli.main import run
from tests.support.results_factory import make_result

JOB = {"dataset": [1, 2, 3, 4], "train_step": print, "batch_size": 2}


@pytest.fixture
def asked(folder, monkeypatch):
    (folder / "job.py").write_text("def build(): return {'dataset': [1, 2], 'train_step': print, 'batch_size': 2}\n")
    calls = []

    def attempt_diagnosis(pipeline, options, progress=None):
        calls.append(options)
        return Attempt(Diagnosis(**vars(make_result())), None)

    monkeypatch.setattr(bottleneck.api, "attempt_diagnosis", attempt_diagnosis)
    return calls


def test_cold_files_are_measured_where_that_is_asked_for(asked):
    assert run(["diagnose", "job:build", "--cold"]) == 0
    assert run(["diagnose", "job:build"]) == 0
    bottleneck.diagnose(JOB, cold=True)
    bottleneck.diagnose(JOB)
    assert [options.cold for options in asked] == [True, False, True, False]

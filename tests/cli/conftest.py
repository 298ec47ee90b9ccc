"""Fixtures of the command line's tests."""

import pytest

import bottleneck.api
from bottleneck.api import Attempt, Diagnosis
from tests.support.results_factory import make_result

JOB = """
import os
print("hello from the module")

def build():
    os.write(1, b"hello from a child\\n")
    return {"dataset": [1, 2, 3, 4], "train_step": print, "batch_size": 2}
"""


class Measuring:
    """Stands in for `attempt_diagnosis`: keeps what it is asked, and answers with a result that is given."""

    def __init__(self):
        self.calls = []
        self.answer(make_result())

    def answer(self, result, failure=None, **made):
        self.attempt = Attempt(Diagnosis(**vars(result)), failure, **made)

    def __call__(self, pipeline, options, progress=None):
        self.calls.append((pipeline, options, progress))
        return self.attempt

    @property
    def options(self):
        return [options for _, options, _ in self.calls]


@pytest.fixture
def asked(folder, monkeypatch):
    """The requests to the measurement, in a working directory with a job."""
    (folder / "job.py").write_text(JOB)
    measuring = Measuring()
    monkeypatch.setattr(bottleneck.api, "attempt_diagnosis", measuring)
    return measuring

"""What ends the diagnosis of a script, and what is known of it then; the measuring is invented."""

from types import SimpleNamespace

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

from bottleneck.api import Attempt
from bottleneck.errors import MeasurementError, PipelineError
from bottleneck.measure.options import MeasureOptions
from bottleneck.script import diagnosing
from bottleneck.script.diagnosing import Diagnosing
from tests.support.results_factory import make_result


class Stopped(BaseException):
    """In the place of the end of the process."""


def train(diagnosis, most=20, scheduler=False):
    """A script that goes on until it is stopped, or has had so many batches."""
    parameter = torch.nn.Parameter(torch.zeros(1))
    optimizer = torch.optim.SGD([parameter], lr=0.1)
    planned = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=0.1, total_steps=4) if scheduler else None
    with diagnosis:
        for _, _ in zip(range(most), DataLoader(TensorDataset(torch.zeros(40)), batch_size=2), strict=False):
            parameter.grad = torch.ones(1)
            optimizer.step()
            if planned is not None:
                planned.step()


@pytest.fixture
def measured(monkeypatch):
    """Measures five steps, of what the test says."""
    seen = SimpleNamespace(steps=0, pipeline=None, error=None)

    def attempt(pipeline, _options, _progress):
        seen.pipeline = pipeline
        if seen.error is not None:
            raise seen.error
        failure = None
        try:
            for _ in range(5):
                pipeline.train_step([torch.zeros(2)])
                seen.steps += 1
        except MeasurementError as error:
            failure = error
        return Attempt(make_result(), failure)

    monkeypatch.setattr(diagnosing, "attempt_diagnosis", attempt)
    return seen


def stopping(outcomes):
    def finish(outcome):
        outcomes.append(outcome)
        raise Stopped

    return Diagnosing(MeasureOptions(), finish)


@pytest.mark.parametrize("scheduler", [False, True])
def test_the_loop_is_the_train_step_and_ends_with_the_measuring(measured, scheduler):
    outcomes = []
    with pytest.raises(Stopped):
        train(stopping(outcomes), scheduler=scheduler)
    [outcome] = outcomes
    attempt = outcome()
    assert (measured.steps, attempt.failure, attempt.diagnosis.pipeline["source"]) == (5, None, "script")
    assert measured.pipeline.optimizer is not None  # its weights go back in each round


def test_a_job_that_cannot_be_measured_ends_the_script_too(measured):
    measured.error = PipelineError("No.")
    outcomes = []
    with pytest.raises(Stopped):
        train(stopping(outcomes))
    with pytest.raises(PipelineError, match="No"):
        outcomes[0]()


@pytest.mark.parametrize(
    ("error", "said"), [(None, "ended before the measuring"), (OSError("disk full"), "raised while .* disk full")]
)
def test_a_script_that_ends_first_ends_the_measuring(measured, error, said):
    diagnosis = Diagnosing(MeasureOptions(), pytest.fail)
    train(diagnosis, most=4)
    attempt = diagnosis.end(error)
    assert measured.steps == 0  # the loop was still in the first one
    with pytest.raises(MeasurementError, match=said):
        raise attempt.failure


@pytest.mark.parametrize("error", [KeyboardInterrupt(), OSError("disk full")])
def test_a_script_that_ends_before_says_why(error):
    diagnosis = Diagnosing(MeasureOptions(), pytest.fail)
    with diagnosis:
        pass
    with pytest.raises((KeyboardInterrupt, MeasurementError)) as caught:
        diagnosis.end(error)
    assert isinstance(caught.value, KeyboardInterrupt) or "disk full" in str(caught.value)

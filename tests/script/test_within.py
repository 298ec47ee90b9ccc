"""`with bottleneck.diagnosing()`: how its body is left, and what is there afterwards."""

import contextlib
import copy
from types import SimpleNamespace

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

import bottleneck
from bottleneck.api import Attempt
from bottleneck.errors import MeasurementError, UsageError
from bottleneck.script import diagnosing as diagnosing_module
from tests.script.scripts.jobs import make_loader, make_model, train_on
from tests.support.results_factory import make_result


@pytest.fixture
def measured(monkeypatch):
    """Measures five steps."""
    seen = SimpleNamespace(steps=0)

    def attempt(pipeline, options, _progress):
        found = make_result(pipeline={"source": options.source})
        try:
            for _ in range(5):
                pipeline.train_step([torch.zeros(2)])
                seen.steps += 1
        except MeasurementError as error:
            return Attempt(found, error)
        return Attempt(found, None)

    monkeypatch.setattr(diagnosing_module, "attempt_diagnosis", attempt)
    return seen


class Training:
    """A training that notes how far it came."""

    def __init__(self, most=20):
        self.most, self.loader = most, DataLoader(TensorDataset(torch.zeros(40)), batch_size=2)
        parameter = torch.nn.Parameter(torch.zeros(1))
        parameter.grad = torch.ones(1)
        self.optimizer = torch.optim.SGD([parameter], lr=0.1)
        self.scheduler = torch.optim.lr_scheduler.StepLR(self.optimizer, 100)
        self.steps, self.after = 0, False

    def run(self):
        for _, _ in zip(range(self.most), self.loader, strict=False):
            self.optimizer.step()
            self.scheduler.step()
            self.steps += 1
        self.after = True


def test_the_body_is_left_when_the_measuring_is_done(measured):
    training = Training()
    with bottleneck.diagnosing() as run:
        training.run()
    assert (training.steps, training.after, measured.steps) == (8, False, 5)
    assert run.diagnosis.pipeline["source"] == "script"
    assert training.scheduler.last_epoch == 3
    training.run()  # all is as before
    assert (training.steps, training.after, measured.steps) == (28, True, 5)


def test_a_body_that_catches_everything_cannot_go_on_training(measured):
    training = Training()
    with bottleneck.diagnosing() as run:
        for _ in range(3):
            with contextlib.suppress(BaseException):  # as some trainers do
                training.run()
        batches = iter(training.loader)
    assert (training.steps, run.diagnosis.pipeline["source"]) == (8, "script")
    assert list(batches) == []


def test_a_body_that_ends_first_leaves_what_was_measured(measured):
    with pytest.raises(MeasurementError, match="ended before the measuring") as caught, bottleneck.diagnosing() as run:
        Training(most=5).run()
    assert caught.value.diagnosis is run.diagnosis


def test_what_the_body_raises_is_raised_as_it_is(measured):
    with pytest.raises(ZeroDivisionError), bottleneck.diagnosing() as run:
        Training(most=5).run()
        raise ZeroDivisionError
    assert run.diagnosis.pipeline["source"] == "script"


def test_a_body_without_a_loop_says_so():
    with pytest.raises(MeasurementError, match="no pass over a DataLoader"), bottleneck.diagnosing() as run:
        pass
    with pytest.raises(MeasurementError, match="Nothing has been measured"):
        _ = run.diagnosis


@pytest.mark.parametrize("options", [{"skip_steps": 0}, {"budget": "soon"}, {"seed": -1}])
def test_bad_options_are_refused(options):
    with pytest.raises(UsageError), bottleneck.diagnosing(**options):
        pytest.fail("it began")


def test_a_loader_that_does_not_feed_the_loop_is_refused(measured):
    training = Training()
    with pytest.raises(UsageError, match="'TensorDataset'"), bottleneck.diagnosing(loader="Tensor"):
        training.run()
    assert (training.steps, measured.steps) == (10, 0)


def test_one_at_a_time():
    with pytest.raises(UsageError, match="runs already"), bottleneck.diagnosing(), bottleneck.diagnosing():
        pytest.fail("two began")


@pytest.mark.integration
def test_the_training_is_left_as_it_was():
    def train(model, optimizer, steps):
        done = 0
        while done < steps:
            for images, labels in make_loader(num_workers=0, shuffle=False):
                train_on(model, optimizer, images, labels)
                done += 1
                if done == steps:
                    break

    model, _ = make_model()
    model.append(torch.nn.BatchNorm1d(10))  # its buffers are the model's, and no optimizer's
    same = copy.deepcopy(model)
    optimizer, other = (torch.optim.SGD(one.parameters(), lr=1e-3, momentum=0.9) for one in (model, same))
    train(same, other, steps=3)
    with bottleneck.diagnosing(budget="5s") as run:
        train(model, optimizer, steps=100_000)
    assert run.diagnosis.verdict.state == "input_bound"
    found = model.state_dict()
    assert all(torch.equal(value, found[name]) for name, value in same.state_dict().items())

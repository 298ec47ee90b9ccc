"""The pass of tracing within a diagnosis: by itself where the device holds the job, and never at its cost."""

import gzip
import json
import threading
from types import SimpleNamespace

import pytest
import torch
from torch import nn
from torch.autograd.profiler import profile
from torch.utils.data import Dataset

from bottleneck.job.description import Pipeline
from bottleneck.measure.ladder import Arm
from bottleneck.measure.options import MeasureOptions
from bottleneck.measure.passes import trace
from bottleneck.measure.passes.trace import TraceRequest, steps_to_trace
from bottleneck.results.evidence import TracedSteps, Traces
from bottleneck.results.records import Judgement
from tests.measure.kineto_events import Events
from tests.support import sessions
from tests.support.sessions import warnings_of


class Numbers(Dataset):
    def __len__(self):
        return 10_000

    def __getitem__(self, index):
        return torch.full((4,), float(index))


class Sum(nn.Linear):
    def forward(self, x):
        return super().forward(x).sum()


def run(**arguments):
    outcome = diagnosed(**arguments)
    assert outcome.failure is None
    assert outcome.measurement.experiments[0].coupled, "the diagnosis is complete"
    return outcome


def diagnosed(*, state="device_bound", trace=False, workers=0, step=None, **fields):
    if step is not None:
        fields["train_step"] = step
    pipeline = Pipeline(dataset=Numbers(), batch_size=4, num_workers=workers, device="cpu", **fields)
    judgement = Judgement(state, None, precise=True)
    return sessions.run(pipeline, MeasureOptions(budget_s=2.0, trace=trace), lambda _: judgement)


def multiply(batch):
    torch.mm(batch, batch.T)


@pytest.mark.parametrize(
    ("step_s", "asked_for", "steps"),
    [(0.0001, False, 3), (0.015, False, 3), (0.05, False, 2), (5.0, False, 1), (0.001, True, 10), (5.0, True, 1)],
)
def test_a_slow_job_is_traced_for_a_step_or_two_and_a_quick_one_not_for_thousands(step_s, asked_for, steps):
    assert steps_to_trace(step_s, asked_for=asked_for) == steps


@pytest.mark.parametrize(("step_s", "steps"), [(0.01, 5), (2.0, 1), (60.0, 1)])
def test_a_dear_step_is_run_as_often_as_it_is_traced(monkeypatch, step_s, steps):
    ran = []
    serve = SimpleNamespace(serve=lambda: SimpleNamespace(batch=None))
    bench = SimpleNamespace(
        prepare=lambda arm: ran.append("to prepare"),
        loader=SimpleNamespace(rest=lambda: None),
        device=serve,
        step=lambda batch: ran.append("a step"),
        synchronize=lambda: None,
    )
    events = Events().steps((0, 1000)).operator("aten::mm", 10, 50)
    monkeypatch.setattr(trace, "record_trace", lambda run, device: (run(), json.dumps(events.document()))[1])
    ladder = SimpleNamespace(device=Arm(None, "device"))
    made = trace.trace(bench, ladder, torch.device("cpu"), TraceRequest(asked_for=False, step_s=lambda arm: step_s))
    assert made.evidence.device.steps
    assert made.evidence.raw == TracedSteps()
    assert len(ran) == steps


@pytest.mark.integration
def test_ctrl_c_in_a_traced_step_ends_the_diagnosis_with_what_was_measured():
    def interrupted(batch):
        if is_traced():
            raise KeyboardInterrupt

    outcome = diagnosed(step=interrupted)
    assert isinstance(outcome.failure, KeyboardInterrupt)
    assert outcome.measurement.experiments[0].coupled
    assert not is_traced()


@pytest.mark.integration
def test_a_job_that_the_device_holds_is_traced_by_itself():
    outcome = run(step=multiply)
    made = outcome.measurement.evidence.trace
    assert (made.device.steps, made.raw) == (3, TracedSteps())
    [product] = [row for row in made.device.top if row.name == "aten::mm"]
    assert product.calls_per_step == 1
    assert outcome.measurement.evidence.model.computed_dtypes == {"float32": 3}
    assert outcome.traces == ()
    assert not warnings_of(outcome).keys() & {"trace-failed", "model-unknown"}


@pytest.mark.integration
def test_another_job_is_traced_only_where_that_is_asked_for():
    assert run(step=multiply, state="input_bound").measurement.evidence.trace == Traces()
    outcome = run(step=multiply, state="input_bound", trace=True, workers=1)
    assert outcome.measurement.evidence.trace.device.steps
    assert outcome.measurement.evidence.trace.raw.steps
    assert [file.experiment for file in outcome.traces] == ["device", "raw"]
    for file in outcome.traces:
        names = {event.get("name") for event in json.loads(gzip.decompress(file.content))["traceEvents"]}
        assert {"aten::mm", "bottleneck: train step", "ProfilerStep#9"} <= names
    assert "bottleneck: next batch of the loader" in names


@pytest.mark.integration
def test_facts_about_the_model_come_with_every_diagnosis():
    outcome = run(state="input_bound", model=Sum(4, 2))
    assert outcome.measurement.evidence.model.parameters == 10
    assert not outcome.measurement.evidence.model.own_train_step


# --- what goes wrong ---------------------------------------------------------------------------------------


def failure_of(step):
    outcome = run(step=step)
    assert outcome.measurement.evidence.trace == Traces()
    return warnings_of(outcome)["trace-failed"]


def is_traced():
    return torch._C._autograd._profiler_enabled()


def fails(batch):
    if is_traced():
        raise ValueError("the step has enough\nof it")


def leaves(batch):
    if is_traced():
        raise SystemExit(3)


def profiles_itself(batch):
    if is_traced():
        with profile():
            multiply(batch)


def hangs(batch):
    if is_traced():
        threading.Event().wait(60)


@pytest.mark.integration
@pytest.mark.parametrize(
    ("step", "words"),
    [
        (fails, "There is no trace of device: ValueError: the step has enough."),
        (leaves, "There is no trace of device: SystemExit: 3."),
        (profiles_itself, "There is no trace of device: the train step uses torch's profiler itself."),
        (hangs, "There is no trace of device: it took too long."),
    ],
)
def test_what_goes_wrong_in_a_traced_step_costs_a_line_and_no_more(step, words, monkeypatch):
    if step is hangs:
        monkeypatch.setattr(trace, "_PATIENCE_S", 0.5)
    assert failure_of(step) == words
    assert not is_traced()


@pytest.mark.integration
def test_a_model_that_cannot_be_looked_at_costs_a_line(monkeypatch):
    def refuse(*_):
        raise TypeError("of no known kind")

    monkeypatch.setattr("bottleneck.measure.passes.passes.describe_model", refuse)
    outcome = run(step=multiply)
    assert warnings_of(outcome)["model-unknown"] == "The model could not be described (TypeError: of no known kind)."

"""The pass of tracing within a diagnosis: automatic if the device limits the job, and never at its cost."""

import gzip
import json
import os
import platform
import tempfile
import warnings
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from torch.autograd import profiler as autograd_profiler
from torch.autograd.profiler import profile  # what torch.profiler, slow to import, is made of
from torch.utils.data import Dataset

from bottleneck.job.pipeline import Pipeline
from bottleneck.measure.ledger import Ledger
from bottleneck.measure.options import MeasureOptions
from bottleneck.measure.passes import trace
from bottleneck.measure.passes.trace import summarise
from bottleneck.results.evidence import TracedSteps, Traces
from bottleneck.results.records import Judgement
from tests.support import sessions
from tests.support.sessions import warnings_of


class Numbers(Dataset):
    def __len__(self):
        return 10_000

    def __getitem__(self, index):
        return torch.full((4,), float(index))


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


def traced(step, *, step_s=0.02, asked_for=False, device="cpu"):
    """The ledger after tracing a train step that no diagnosis is around."""
    bench = SimpleNamespace(
        prepare=lambda arm: None,
        loader=SimpleNamespace(rest=lambda: None, next_batch=lambda: (None, 1)),
        transfer=lambda batch: batch,
        device=SimpleNamespace(serve=lambda: SimpleNamespace(batch=None)),
        step=step,
        synchronize=lambda: None,
    )
    ledger = Ledger({}, {})
    ledger.seconds_per_batch = lambda arm: step_s
    trace.trace(bench, torch.device(device), ledger, asked_for=asked_for)
    return ledger


def warned(ledger):
    return {warning.id: warning.message for warning in ledger.measurement().warnings}


@pytest.mark.parametrize(("step_s", "steps"), [(0.01, 4), (2.0, 1), (60.0, 1)])
def test_a_dear_step_is_run_as_often_as_it_is_traced(step_s, steps):
    ran = []
    made = traced(ran.append, step_s=step_s).evidence.trace
    assert made.device.steps
    assert made.raw == TracedSteps()
    assert len(ran) == steps


# --- what the profiler shows ---------------------------------------------------------------------------------


def learn(_):
    a = torch.randn(16, 16, requires_grad=True)
    (a @ a).sum().backward()
    a.sum().item()


def learn_in_16_bits(_):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        torch.mm(torch.ones(8, 8), torch.ones(8, 8))


def test_operators_and_their_types_are_seen():
    made = traced(learn)
    device = made.evidence.trace.device
    assert not warned(made)
    assert device.steps == 3
    calls = {row.name: row.calls_per_step for row in device.top}
    assert (calls["aten::mm"], calls["aten::sum"]) == (3, 2)
    assert sum(row.share for row in device.top) == pytest.approx(1, abs=0.05)
    assert device.products_s_per_step > 0
    assert (device.device_busy_share, device.launches_per_step, device.synchronisations) == (None, None, ())
    assert made.evidence.model.computed_dtypes.keys() == {"float32"}
    assert "bfloat16" in traced(learn_in_16_bits).evidence.model.computed_dtypes


def row(key, *, count=1, host_us=0.0, device_us=0.0, of="CPU", annotation=False):
    return SimpleNamespace(
        key=key, count=count, self_cpu_time_total=host_us, self_device_time_total=device_us,
        device_type=SimpleNamespace(name=of), is_user_annotation=annotation,
    )  # fmt: skip


ON_A_DEVICE = [
    row("aten::mm", count=4, host_us=100, device_us=6000),
    row("aten::convolution_backward", count=2, host_us=100, device_us=1000),
    row("aten::copy_", count=2, host_us=900, device_us=1000),
    row("aten::linear", count=4, host_us=50),
    row("cudaLaunchKernel", count=6, host_us=60),
    row("ampere_sgemm", count=6, device_us=7000, of="CUDA"),
    row("Memcpy HtoD (Pinned -> Device)", count=2, device_us=1000, of="CUDA"),
    row("ProfilerStep*", count=2, host_us=9000, annotation=True),
    row("ProfilerStep*", count=2, device_us=9000, of="CUDA", annotation=True),
]


def test_on_a_device_its_own_time_counts():
    made = summarise(ON_A_DEVICE, 2, 0.005)
    assert [(found.name, found.calls_per_step, found.device_s_per_step) for found in made.top] == [
        ("aten::mm", 2, 0.003), ("aten::convolution_backward", 1, 0.0005), ("aten::copy_", 1, 0.0005),
    ]  # fmt: skip
    assert [found.share for found in made.top] == [0.75, 0.125, 0.125]
    assert made.device_busy_s_per_step == pytest.approx(0.0035)  # copies are no computing
    assert made.device_busy_share == pytest.approx(0.7)
    assert made.launches_per_step == 3
    assert made.products_s_per_step == pytest.approx(0.0035)


def test_kernels_without_an_operator_are_shown_themselves():
    [kernel] = summarise([row("spin_kernel", count=2, device_us=4000, of="CUDA")], 2, 0.001).top
    assert (kernel.name, kernel.device_s_per_step, kernel.share) == ("spin_kernel", 0.002, 1)
    assert summarise([], 2, 0.001).top == ()


@pytest.fixture
def debug_mode(monkeypatch):
    """torch's debug mode of synchronisation, without a device."""
    modes = [0]
    monkeypatch.setattr(torch.cuda, "get_sync_debug_mode", lambda: modes[-1])
    monkeypatch.setattr(torch.cuda, "set_sync_debug_mode", modes.append)
    return modes


def test_the_line_that_waits_for_the_device_is_named_and_the_mode_put_back(debug_mode):
    def wait(_):
        if debug_mode[-1] == "warn":
            warnings.warn("called a synchronizing CUDA operation (Triggered internally at ...)", stacklevel=1)
            warnings.warn("something else", stacklevel=1)

    made = traced(wait, device="cuda")
    [found] = made.evidence.trace.device.synchronisations
    line = wait.__code__.co_firstlineno + 2
    assert (found.name, found.calls_per_step) == (os.path.relpath(f"{__file__}:{line}"), 1)
    assert debug_mode == [0, "warn", 0]
    assert list(warned(made)) == ["trace-without-device"]


# --- and leaves behind ---------------------------------------------------------------------------------------


def test_the_name_of_the_machine_is_in_no_file():
    files = traced(learn, asked_for=True).traces
    assert list(files) == ["device.json.gz", "raw.json.gz"]
    for content in files.values():
        text = gzip.decompress(content).decode()
        assert json.loads(text).get("host_name", "") == ""
        assert f'"{platform.node()}"' not in text


def test_nothing_is_left_behind(capfd):
    entries = {name: getattr(autograd_profiler, name) for name in ("_enable_profiler", "_disable_profiler")}
    before = set(Path(tempfile.gettempdir()).glob("bottleneck-*")), dict(os.environ)
    assert not warned(traced(learn, asked_for=True))
    assert (set(Path(tempfile.gettempdir()).glob("bottleneck-*")), dict(os.environ)) == before
    assert all(getattr(autograd_profiler, name) is entry for name, entry in entries.items())
    assert not is_traced()
    assert capfd.readouterr().err == ""


def test_a_profiler_that_runs_already_is_left_alone():
    with profile() as theirs:
        (message,) = warned(traced(learn)).values()
        assert message == "There is no trace of device: another torch profiler is active."
        torch.ones(3).sum()
    assert "aten::sum" in {event.name for event in theirs.function_events}


# --- within a diagnosis --------------------------------------------------------------------------------------


@pytest.mark.integration
def test_a_job_that_the_device_holds_is_traced_by_itself():
    outcome = run(step=multiply)
    made = outcome.measurement.evidence.trace
    assert (made.device.steps, made.raw) == (3, TracedSteps())
    [product] = [row for row in made.device.top if row.name == "aten::mm"]
    assert product.calls_per_step == 1
    assert outcome.measurement.evidence.model.computed_dtypes.keys() == {"float32"}
    assert outcome.traces == {}
    assert not warnings_of(outcome).keys() & {"trace-failed"}


@pytest.mark.integration
def test_another_job_is_traced_only_where_that_is_asked_for():
    assert run(step=multiply, state="input_bound").measurement.evidence.trace == Traces()
    outcome = run(step=multiply, state="input_bound", trace=True, workers=1)
    assert outcome.measurement.evidence.trace.device.steps
    assert outcome.measurement.evidence.trace.raw.steps
    assert list(outcome.traces) == ["device.json.gz", "raw.json.gz"]
    for content in outcome.traces.values():
        names = {event.get("name") for event in json.loads(gzip.decompress(content))["traceEvents"]}
        assert {"aten::mm", "bottleneck: train step", "ProfilerStep#9"} <= names
    assert "bottleneck: next batch of the loader" in names


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


@pytest.mark.integration
@pytest.mark.parametrize(
    ("step", "words"),
    [
        (fails, "There is no trace of device: ValueError: the step has enough."),
        (leaves, "There is no trace of device: SystemExit: 3."),
        (profiles_itself, "There is no trace of device: the train step uses torch's profiler itself."),
    ],
)
def test_what_goes_wrong_in_a_traced_step_costs_a_line_and_no_more(step, words):
    assert failure_of(step) == words
    assert not is_traced()

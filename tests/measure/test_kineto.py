"""The real profiler on the CPU: it traces, gives way to other profilers, and leaves nothing behind."""

import json
import os
import platform
import tempfile
from pathlib import Path

import pytest
import torch
from torch.autograd import profiler as autograd_profiler
from torch.autograd.profiler import profile, record_function  # what torch.profiler, slow to import, is made of

from bottleneck.measure.passes import kineto
from bottleneck.measure.passes.chrome_trace import read_trace
from bottleneck.measure.passes.kineto import TraceError, record_trace
from bottleneck.measure.passes.trace_products import computed_types
from bottleneck.measure.passes.trace_summary import STEP, WINDOW, find_steps, summarise

CPU = torch.device("cpu")


def steps():
    a = torch.randn(16, 16, requires_grad=True)
    with record_function(WINDOW):
        for number in range(2):
            with record_function(f"{STEP}{number}"):
                (a @ a).sum().backward()
                a.sum().item()


def nested():
    with profile() as profiler:
        torch.ones(3).sum()
    return profiler


@pytest.fixture(scope="module")
def text():
    return record_trace(steps, CPU)


def test_operators_and_their_types_are_seen(text):
    found = find_steps(read_trace(json.loads(text)))
    made = summarise(found)
    assert made.steps == 2
    assert {"aten::mm", "aten::sum"} <= {row.name for row in made.top}
    assert sum(row.share for row in made.top) == pytest.approx(1, abs=0.05)
    assert sum(row.self_s_per_step for row in made.top) <= made.seconds_per_step
    assert made.device_busy_share is None
    # What a CPU does when it is asked for a number is no wait for a device.
    assert made.synchronisations == ()
    assert computed_types(found) == {"float32": 6}


def test_the_name_of_the_machine_is_not_in_it(text):
    assert json.loads(text).get("host_name", "") == ""
    assert f'"{platform.node()}"' not in text


def test_nothing_is_left_behind(capfd):
    entries = {name: getattr(autograd_profiler, name) for name in ("_enable_profiler", "_disable_profiler")}
    before = set(Path(tempfile.gettempdir()).glob("bottleneck-*")), dict(os.environ)
    record_trace(steps, CPU)
    assert (set(Path(tempfile.gettempdir()).glob("bottleneck-*")), dict(os.environ)) == before
    assert all(getattr(autograd_profiler, name) is entry for name, entry in entries.items())
    assert not torch._C._autograd._profiler_enabled()
    assert capfd.readouterr().err == ""
    assert len(nested().function_events) > 0


def test_a_profiler_that_runs_already_is_left_alone():
    with profile() as theirs:
        with pytest.raises(TraceError, match="another torch profiler is active"):
            record_trace(steps, CPU)
        torch.ones(3).sum()
    assert "aten::sum" in {event.name for event in theirs.function_events}


def test_a_step_that_uses_the_profiler_itself_is_no_reason_to_crash():
    with pytest.raises(TraceError, match="uses torch's profiler itself"):
        record_trace(nested, CPU)
    assert not torch._C._autograd._profiler_enabled()
    assert len(nested().function_events) > 0


def test_a_profiler_that_takes_over_by_another_way_ends_the_trace(monkeypatch):
    def stop():
        torch._C._autograd._disable_profiler()

    with pytest.raises(TraceError, match="took over"):
        record_trace(stop, CPU)


def test_what_the_steps_raise_comes_out_and_the_profiler_has_ended():
    def fail():
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        record_trace(fail, CPU)
    assert not torch._C._autograd._profiler_enabled()


def test_a_trace_that_is_too_large_is_refused(monkeypatch):
    monkeypatch.setattr(kineto, "MOST_BYTES", 100)
    with pytest.raises(TraceError, match="100 bytes"):
        record_trace(steps, CPU)


@pytest.mark.parametrize(("device", "known"), [("cuda", "cuda"), ("cpu", None), ("mps", None)])
def test_work_of_the_device_is_asked_for_where_the_profiler_knows_such_a_device(monkeypatch, device, known):
    def profiler(**arguments):
        assert arguments == {"record_shapes": True, "use_device": known, "use_kineto": True}
        raise TraceError("asked")

    activities = {torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.CUDA}
    monkeypatch.setattr(torch.profiler, "supported_activities", lambda: activities)
    monkeypatch.setattr(autograd_profiler, "profile", profiler)
    with pytest.raises(TraceError, match="asked"):
        record_trace(steps, torch.device(device))


@pytest.mark.parametrize(("version", "kept"), [("12.4", True), ("12.8", False), (None, False)])
def test_cupti_stays_only_beside_cuda_graphs_of_older_versions(monkeypatch, version, kept):
    monkeypatch.setitem(kineto.sys.modules, "torch._inductor", torch)
    monkeypatch.setattr(torch.version, "cuda", version)
    monkeypatch.setenv("TEARDOWN_CUPTI", "1")
    with kineto._cupti_kept(torch.device("cuda" if version else "cpu")):
        assert os.environ["TEARDOWN_CUPTI"] == ("0" if kept else "1")
    assert os.environ["TEARDOWN_CUPTI"] == "1"
    assert "DISABLE_CUPTI_LAZY_REINIT" not in os.environ

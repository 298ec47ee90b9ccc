"""Reading a Chrome trace: what lies within what, and which call the device's work belongs to."""

import pytest

from bottleneck.measure.passes.chrome_trace import busy_s, read_trace
from tests.measure.kineto_events import BACKWARD, Events


def calls(events):
    return {call.name: call for call in read_trace(events.document()).calls}


def test_an_operator_has_its_time_without_the_operators_within_it():
    events = Events().operator("outer", 100, 50).operator("first", 105, 10).operator("second", 120, 20)
    found = calls(events.driver("cudaMalloc", 142, 5))
    assert found["outer"].own_s == pytest.approx(20e-6)
    assert found["first"].own_s == pytest.approx(10e-6)
    assert [each.name for each in found["first"].around][:1] == ["outer"]
    assert (found["outer"].leaf, found["first"].leaf) == (False, True)


def test_what_follows_is_not_within_even_where_the_last_digit_disagrees():
    found = calls(Events().operator("before", 100, 50.001).operator("after", 150, 50))
    assert "before" not in {each.name for each in found["after"].around}


def test_threads_are_kept_apart():
    found = calls(Events().operator("forward", 100, 50).operator("backward", 110, 10, BACKWARD))
    assert list(found["backward"].around) == []
    assert found["forward"].own_s == pytest.approx(50e-6)


def test_a_kernel_is_caused_by_the_launch_with_its_number():
    events = Events().operator("aten::mm", 100, 50).kernel("gemm", 200, 30, launched=110).kernel("lost", 240, 5)
    gemm, lost = read_trace(events.document()).work
    assert gemm.cause.parent.name == "aten::mm"
    assert gemm.seconds == pytest.approx(30e-6)
    assert lost.cause is None


def test_the_device_is_busy_while_any_kernel_runs():
    events = Events().kernel("a", 100, 50).kernel("b", 120, 10).kernel("c", 140, 30).kernel("d", 200, 10)
    trace = read_trace(events.document())
    start_s = trace.work[0].start_s
    assert busy_s(trace.kernels, start_s, start_s + 1) == pytest.approx(80e-6)
    assert busy_s(trace.kernels, start_s + 10e-6, start_s + 105e-6) == pytest.approx(65e-6)


def test_of_several_devices_the_mean_counts():
    events = Events().kernel("a", 100, 50, device=0).kernel("b", 100, 10, device=1)
    trace = read_trace(events.document())
    assert busy_s(trace.kernels, 0.0, 1e9) == pytest.approx(30e-6)


@pytest.mark.parametrize("broken", [None, 3, {}, {"ph": "X"}, {"ph": "X", "ts": "now", "dur": 1}, {"ph": "X", "ts": 1}])
def test_events_without_times_are_left_out(broken):
    event = {"cat": "cpu_op", **broken} if isinstance(broken, dict) else broken
    assert read_trace({"traceEvents": [event]}).calls == ()


def test_a_device_number_that_is_none_is_the_first_device():
    event = {"ph": "X", "cat": "kernel", "name": "k", "ts": 1, "dur": 1, "args": {"device": "?"}}
    assert read_trace({"traceEvents": [event]}).work[0].device == 0

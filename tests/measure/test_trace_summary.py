"""What is kept of a trace: shares of the steps, per step, from events as Kineto writes them for CUDA."""

import pytest

from bottleneck.measure.passes.chrome_trace import read_trace
from bottleneck.measure.passes.trace_products import computed_types, convolves_channels_last
from bottleneck.measure.passes.trace_summary import find_steps, summarise
from tests.measure.kineto_events import BACKWARD, Events
from tests.support.as_json import in_json

summarise = in_json(summarise)


def steps_of(events):
    return find_steps(read_trace(events.document()))


def summary(events):
    return summarise(steps_of(events))


def two_steps():
    """Two steps of 1 ms within a window of 2.5 ms: the device catches up after the last one."""
    return Events(length=2500).steps((0, 1000), (1000, 1000))


def training():
    events = two_steps()
    for begin in (0, 1000):
        events.operator("aten::linear", begin + 10, 100).operator("aten::mm", begin + 20, 80)
        events.kernel("gemm", begin + 300, 400, launched=begin + 30)
        events.operator("aten::mul", begin + 200, 20, BACKWARD)
        events.kernel("elementwise", begin + 700, 100, launched=begin + 205, thread=BACKWARD)
    return events


def test_time_on_the_device_counts_where_there_is_one():
    made = summary(training())
    assert made["steps"] == 2
    assert made["seconds_per_step"] == pytest.approx(1.25e-3)
    assert [row["name"] for row in made["top"]] == ["aten::mm", "aten::mul"]
    assert made["top"][0]["device_s_per_step"] == pytest.approx(400e-6)
    assert made["top"][0]["self_s_per_step"] == pytest.approx(80e-6)
    assert made["top"][0]["share"] == pytest.approx(0.8)
    assert made["top"][0]["calls_per_step"] == 1
    assert made["matrix_s_per_step"] == pytest.approx(400e-6)


def test_the_device_is_busy_for_its_kernels_of_the_whole_window():
    made = summary(training())
    assert made["device_busy_share"] == pytest.approx(1000 / 2500)
    assert made["device_busy_s_per_step"] == pytest.approx(500e-6)
    assert made["launches_per_step"] == 2
    assert made["mean_kernel_s"] == pytest.approx(250e-6)


def test_what_came_before_the_steps_does_not_count():
    events = training()
    events.operator("aten::warm", -500, 100).kernel("warm", -400, 300, launched=-450)
    assert summary(events) == summary(training())


def test_on_the_cpu_own_time_counts_and_nothing_is_said_of_a_device():
    events = two_steps().operator("aten::linear", 10, 100).operator("aten::mm", 20, 80)
    made = summary(events)
    assert [(row["name"], row["device_s_per_step"]) for row in made["top"]] == [
        ("aten::mm", None),
        ("aten::linear", None),
    ]
    assert made["top"][0]["self_s_per_step"] == pytest.approx(40e-6)
    for key in ("device_busy_share", "device_busy_s_per_step", "launches_per_step", "mean_kernel_s"):
        assert made[key] is None
    assert made["operators_per_step"] == 0.5
    assert made["synchronisations"] == []


def test_work_without_an_operator_has_its_own_name():
    made = summary(two_steps().kernel("triton_poi_fused_0", 100, 10, launched=50, by="cuLaunchKernel"))
    assert made["top"][0]["name"] == "triton_poi_fused_0"
    assert made["launches_per_step"] == 0.5


def test_a_graph_is_one_launch():
    events = two_steps().driver("cudaGraphLaunch", 10, 5, correlation=99)
    for start in (100, 200):
        events.add("kernel", "in_graph", start, 50, (0, 7), device=0, correlation=99)
    assert summary(events)["launches_per_step"] == 0.5


# --- waiting for the device --------------------------------------------------------------------------------


def with_item(events, begin):
    events.operator("aten::item", begin + 800, 150).operator("aten::_local_scalar_dense", begin + 805, 140)
    events.copy("Memcpy DtoH (Device -> Pageable)", begin + 930, 2, launched=begin + 810, size_bytes=4)
    return events.driver("cudaStreamSynchronize", begin + 820, 120)


def test_a_wait_is_named_after_what_the_user_called_and_counted_once():
    made = summary(with_item(with_item(training(), 0), 1000))
    [row] = made["synchronisations"]
    assert row["name"] == "aten::item (cudaStreamSynchronize)"
    assert row["calls_per_step"] == 1
    assert row["seconds_per_step"] == pytest.approx(123e-6)


def test_what_the_device_does_nothing_after_a_wait_is_told():
    made = summary(with_item(training(), 0))
    # The wait ends at 940, and the next kernel begins at 1300.
    assert made["synchronisations"][0]["idle_after_s_per_step"] == pytest.approx(360e-6 / 2)


def test_a_device_that_is_still_at_work_after_a_wait_is_not_idle():
    events = with_item(training(), 0).kernel("of another stream", 850, 400, launched=840)
    assert summary(events)["synchronisations"][0]["idle_after_s_per_step"] == pytest.approx(50e-6 / 2)


def test_after_the_last_work_nothing_is_said_to_be_idle():
    events = two_steps().kernel("only", 100, 10, launched=50).driver("cudaStreamSynchronize", 900, 50)
    assert summary(events)["synchronisations"][0]["idle_after_s_per_step"] == 0


def test_waiting_at_the_end_of_all_steps_is_ours():
    assert summary(training().driver("cudaDeviceSynchronize", 2050, 400))["synchronisations"] == []


def test_a_wait_outside_of_operators_has_the_name_of_the_call():
    [row] = summary(training().driver("cudaDeviceSynchronize", 900, 50))["synchronisations"]
    assert row["name"] == "cudaDeviceSynchronize"


@pytest.mark.parametrize(
    ("name", "size_bytes", "waits"),
    [
        ("Memcpy HtoD (Pageable -> Device)", 1 << 20, True),
        ("Memcpy HtoD (Pageable -> Device)", 1 << 10, False),
        ("Memcpy HtoD (Pinned -> Device)", 1 << 20, False),
        ("Memcpy DtoH (Device -> Pageable)", 4, True),
        ("Memcpy DtoH (Device -> Pinned)", 1 << 20, False),
    ],
)
def test_the_host_waits_for_copies_of_memory_that_is_not_pinned(name, size_bytes, waits):
    events = training().operator("aten::to", 850, 60).copy(name, 870, 30, launched=855, size_bytes=size_bytes)
    assert bool(summary(events)["synchronisations"]) is waits


# --- the optimizer, types and layouts ----------------------------------------------------------------------


def test_the_optimizer_is_known_by_its_annotation():
    events = training().annotation("Optimizer.step#AdamW.step", 860, 100)
    events.operator("aten::_fused_adamw_", 870, 50).kernel("fused_adam", 900, 70, launched=880)
    made = summary(events)["optimizer"]
    assert (made["name"], made["fused"], made["foreach"]) == ("AdamW", True, False)
    assert made["host_s_per_step"] == pytest.approx(50e-6)
    assert made["device_s_per_step"] == pytest.approx(35e-6)
    assert made["operators_per_step"] == 0.5
    assert summary(training())["optimizer"] is None


def test_lists_of_tensors_count_also_where_torch_takes_them_one_by_one():
    events = training().annotation("Optimizer.step#SGD.step", 860, 100)
    events.operator("aten::_foreach_add_", 870, 50).operator("aten::add_", 875, 5)
    made = summary(events)["optimizer"]
    assert (made["foreach"], made["operators_per_step"]) == (True, 0.5)


def test_filling_gradients_with_zeros_is_seen():
    events = training().annotation("Optimizer.zero_grad#SGD.zero_grad", 860, 100)
    assert summary(events)["clearing"]["operators_per_step"] == 0
    for start in (865, 875):
        events.operator("aten::zero_", start, 5)
    assert summary(events)["clearing"]["operators_per_step"] == 1


def product(events, name, start, duration, kind, shape=(8, 16, 4, 4), strides=(256, 16, 4, 1)):
    arguments = {"Input type": [kind, kind, "Scalar"], "Input Dims": [list(shape)], "Input Strides": [list(strides)]}
    return events.operator(name, start, duration, **arguments)


def test_under_autocast_the_type_is_that_of_the_innermost_product():
    events = product(two_steps(), "aten::linear", 10, 100, "float")
    product(events, "aten::addmm", 20, 50, "c10::BFloat16")
    assert computed_types(steps_of(events)) == {"bfloat16": 1}
    assert computed_types(steps_of(product(two_steps(), "aten::mm", 10, 5, "float"))) == {"float32": 1}
    assert computed_types(steps_of(two_steps().operator("aten::mm", 10, 5))) == {}


def test_what_only_sounds_like_a_convolution_is_none():
    events = product(two_steps(), "aten::_convert_indices_from_coo_to_csr", 10, 5, "float")
    assert computed_types(steps_of(events)) == {}


@pytest.mark.parametrize(
    ("shape", "strides", "last"),
    [
        ((8, 16, 4, 4), (256, 16, 4, 1), False),
        ((8, 16, 4, 4), (256, 1, 64, 16), True),
        ((8, 1, 4, 4), (16, 1, 4, 1), None),  # one channel: no difference
        ((8, 16, 1, 1), (16, 1, 1, 1), None),
        ((8, 16), (16, 1), None),
    ],
)
def test_the_layout_of_convolutions_is_told_by_strides(shape, strides, last):
    events = product(two_steps(), "aten::cudnn_convolution", 10, 5, "c10::Half", shape, strides)
    assert convolves_channels_last(steps_of(events)) is last


def test_conversions_between_layouts_are_added_up():
    events = two_steps().operator("aten::cudnn_convolution", 10, 30)
    events.kernel("void cudnn::ops::nchwToNhwcKernel<__half>", 100, 40, launched=15)
    made = summary(events)
    assert made["layout_s_per_step"] == pytest.approx(20e-6)
    assert made["convolution_s_per_step"] == pytest.approx(20e-6)


@pytest.mark.parametrize("events", [{"traceEvents": []}, Events().document()], ids=["empty", "no steps"])
def test_a_trace_without_steps_is_none(events):
    assert find_steps(read_trace(events)) is None

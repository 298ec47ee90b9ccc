"""What is read off a model, an optimizer and torch's settings, and that nothing of it is changed."""

from types import SimpleNamespace

import pytest
import torch
from torch import nn

from bottleneck.job.description import Pipeline
from bottleneck.measure.batch_cache import CachedBatch
from bottleneck.measure.facts.model_facts import cpu_multiplies_bfloat16, describe_model
from bottleneck.measure.passes.chrome_trace import read_trace
from bottleneck.measure.passes.trace_summary import find_steps, summarise
from bottleneck.results.evidence import TracedSteps
from tests.measure.kineto_events import Events
from tests.support.as_json import said

CPU = torch.device("cpu")


def facts(*, batches=(), events=None, device=CPU, ours_bytes=0, **fields):
    steps = find_steps(read_trace(events.document())) if events is not None else None
    summary = summarise(steps) if steps is not None else TracedSteps()
    return said(describe_model(Pipeline(dataset=[1], **fields), device, tuple(batches), steps, summary, ours_bytes))


def small_network():
    return nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Conv2d(8, 8, 1), nn.Flatten(), nn.Linear(8, 2))


def traced(**arguments):
    return Events().steps((0, 1000)).operator("aten::addmm", 10, 50, **arguments)


def test_a_model_is_counted():
    model = nn.Linear(3, 2).to(torch.bfloat16)
    made = facts(model=model, loss_fn=nn.MSELoss())
    assert made["parameters"] == 8
    assert made["parameter_bytes"] == 16
    assert made["dtypes"] == {"bfloat16": 8}
    assert (made["own_train_step"], made["compiled"], made["convolutions"], made["channels_last"]) == (
        False, False, 0, None,
    )  # fmt: skip
    assert facts(model=small_network(), loss_fn=print)["convolutions"] == 2


def test_with_a_train_step_alone_what_cannot_be_known_is_none():
    made = facts(train_step=print)
    assert made["own_train_step"]
    for key in ("parameters", "dtypes", "convolutions", "channels_last", "optimizer", "optimizer_fused", "autocast"):
        assert made[key] is None


def test_parameters_that_are_not_there_yet_are_left_out():
    assert facts(model=nn.Sequential(nn.LazyConv2d(8, 3), nn.Linear(3, 2)), loss_fn=print)["parameters"] == 8


@pytest.mark.parametrize(
    ("kind", "autocast", "types"),
    [("float", False, {"float32": 1}), ("c10::BFloat16", True, {"bfloat16": 1}), ("c10::Half", True, {"float16": 1})],
)
def test_autocast_is_told_by_what_is_computed(kind, autocast, types):
    made = facts(model=nn.Linear(3, 2), loss_fn=print, events=traced(**{"Input type": [kind, kind]}))
    assert made["autocast"] is autocast
    assert made["computed_dtypes"] == types


def test_a_model_of_16_bits_needs_no_autocast():
    model = nn.Linear(3, 2).to(torch.bfloat16)
    events = traced(**{"Input type": ["c10::BFloat16"]})
    assert facts(model=model, loss_fn=print, events=events)["autocast"] is None


def test_without_a_trace_autocast_is_unknown():
    assert facts(model=nn.Linear(3, 2), loss_fn=print)["autocast"] is None


@pytest.mark.parametrize("layout", [torch.channels_last, torch.contiguous_format])
def test_the_layout_of_weights_is_told_without_a_trace(layout):
    model = small_network().to(memory_format=layout)
    assert facts(model=model, loss_fn=print)["channels_last"] is (layout is torch.channels_last)


def test_an_optimizer_is_described_by_itself_and_better_by_its_trace():
    model = nn.Linear(3, 2)
    fields = {"model": model, "loss_fn": print, "optimizer": torch.optim.Adam(model.parameters(), fused=True)}
    made = facts(**fields)
    assert (made["optimizer"], made["optimizer_fused"], made["optimizer_foreach"]) == ("Adam", True, None)
    events = traced().annotation("Optimizer.step#AdamW.step", 100, 100).operator("aten::_foreach_add_", 110, 5)
    made = facts(**fields, events=events)
    assert (made["optimizer"], made["optimizer_fused"], made["optimizer_foreach"]) == ("AdamW", False, True)


def test_groups_that_differ_leave_it_unknown():
    weights = [nn.Parameter(torch.ones(2)) for _ in range(2)]
    optimizer = torch.optim.SGD([{"params": weights[:1], "foreach": True}, {"params": weights[1:]}], lr=0.1)
    made = facts(model=nn.Linear(3, 2), loss_fn=print, optimizer=optimizer)
    assert made["optimizer_foreach"] is None


def test_a_compiled_model_is_known_by_its_mark_or_its_trace():
    model = nn.Sequential(nn.Linear(3, 2))
    model[0].__dict__["_compiled_call_impl"] = print  # as module.compile() leaves it
    assert facts(model=model, loss_fn=print)["compiled"]
    step = torch.nn.Identity()
    step.__dict__["_torchdynamo_orig_callable"] = print
    assert facts(train_step=step)["compiled"]
    assert not facts(train_step=print, events=traced())["compiled"]
    assert facts(train_step=print, events=traced().operator("Torch-Compiled Region: 0/0", 100, 50))["compiled"]


def batch(*shape):
    return CachedBatch([torch.zeros(shape)], 2)


def test_shapes_are_fixed_where_all_batches_have_the_same():
    fields = {"model": nn.Linear(3, 2), "loss_fn": print}
    assert facts(**fields, batches=[batch(2, 3), batch(2, 3)])["fixed_shapes"] is True
    assert facts(**fields, batches=[batch(2, 3), batch(2, 4)])["fixed_shapes"] is False
    assert facts(**fields, batches=[batch(2, 3)])["fixed_shapes"] is None


def test_settings_are_read(monkeypatch):
    made = facts(train_step=print)
    assert made["matmul_precision"] == torch.get_float32_matmul_precision()
    assert made["cudnn_benchmark"] is torch.backends.cudnn.benchmark

    def refused():
        raise RuntimeError("mix of the legacy and the new API")

    monkeypatch.setattr(torch, "get_float32_matmul_precision", refused)
    assert facts(train_step=print)["matmul_precision"] in ("highest", "high", None)


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("processor : 0\nflags\t\t: fpu avx512_bf16 sse\n", True),
        ("flags\t\t: fpu avx2\n", False),
        ("Features\t: fp asimd bf16\n", True),
        ("nothing of the kind\n", None),
    ],
)
def test_what_the_processor_multiplies(tmp_path, text, answer):
    (tmp_path / "cpuinfo").write_text(text)
    assert cpu_multiplies_bfloat16(tmp_path) is answer


def test_a_system_without_such_a_file_does_not_tell(tmp_path):
    assert cpu_multiplies_bfloat16(tmp_path) is None


def test_nothing_is_changed():
    model = small_network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    before = list(vars(model)), [list(vars(part)) for part in model.modules()], dict(optimizer.param_groups[0])
    facts(model=model, loss_fn=print, optimizer=optimizer)
    after = list(vars(model)), [list(vars(part)) for part in model.modules()], dict(optimizer.param_groups[0])
    assert before == after


def test_what_the_diagnosis_holds_on_the_device_is_not_the_jobs(monkeypatch):
    # Guards: a peak with 8 to 32 cached batches in it, so that a larger batch was not advised.
    properties = SimpleNamespace(total_memory=80, major=9, minor=0)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: properties)
    monkeypatch.setattr(torch.cuda, "max_memory_allocated", lambda device: 50)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (20, 80))
    made = facts(train_step=print, device=torch.device("cuda:0"), ours_bytes=30)
    assert (made["peak_device_bytes"], made["device_free_bytes"], made["device_bytes"]) == (20, 50, 80)

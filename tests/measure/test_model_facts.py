"""What is read off a model, the processor and the device, and that nothing of it is changed."""

from types import SimpleNamespace

import pytest
import torch
from torch import nn

from bottleneck.job.description import Pipeline
from bottleneck.measure.facts.model_facts import cpu_multiplies_bfloat16, describe_model
from bottleneck.results.evidence import ModelFacts


def facts(*, device="cpu", ours_bytes=0, **fields):
    return describe_model(Pipeline(dataset=[1], **fields), torch.device(device), ours_bytes)


def test_a_compiled_model_is_known_by_its_mark():
    model = nn.Sequential(nn.Linear(3, 2))
    assert facts(model=model, loss_fn=print).compiled is False
    model[0].__dict__["_compiled_call_impl"] = print  # as module.compile() leaves it
    assert facts(model=model, loss_fn=print).compiled
    step = torch.nn.Identity()
    step.__dict__["_torchdynamo_orig_callable"] = print
    assert facts(train_step=step).compiled
    assert facts(train_step=print).compiled is False


def test_of_a_device_that_is_not_known_nothing_is_said():
    assert facts(train_step=print, device="meta") == ModelFacts(compiled=False)


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
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Linear(8, 2))
    before = list(vars(model)), [list(vars(part)) for part in model.modules()]
    facts(model=model, loss_fn=print)
    assert (list(vars(model)), [list(vars(part)) for part in model.modules()]) == before


def test_what_the_diagnosis_holds_on_the_device_is_not_the_jobs(monkeypatch):
    # Guards: a peak with 8 to 32 cached batches in it, so that a larger batch was not advised.
    properties = SimpleNamespace(total_memory=80, major=9, minor=0)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: properties)
    monkeypatch.setattr(torch.cuda, "max_memory_allocated", lambda device: 50)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (20, 80))
    made = facts(train_step=print, device="cuda:0", ours_bytes=30)
    assert (made.peak_device_bytes, made.device_free_bytes, made.device_bytes) == (20, 50, 80)
    assert made.device_capability == (9, 0)

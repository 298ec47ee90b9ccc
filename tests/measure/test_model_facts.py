"""What is read off the process, the processor and the device."""

import sys
from types import SimpleNamespace

import pytest
import torch

from bottleneck.measure.after_rounds import cpu_multiplies_bfloat16, describe_model
from bottleneck.results.evidence import ModelFacts


def compiled(monkeypatch, graphs):
    utils = SimpleNamespace(counters={"stats": {"unique_graphs": graphs}})
    monkeypatch.setitem(sys.modules, "torch._dynamo.utils", utils)


@pytest.mark.parametrize(("graphs", "known"), [(0, False), (3, True)])
def test_of_a_device_that_is_not_known_there_is_what_was_compiled_and_traced(monkeypatch, graphs, known):
    compiled(monkeypatch, graphs)
    assert describe_model(torch.device("meta"), {}) == ModelFacts(compiled=known)
    types = {"float32": 3}
    assert describe_model(torch.device("meta"), types) == ModelFacts(compiled=known, computed_dtypes=types)


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


@pytest.fixture
def device(monkeypatch):
    """A CUDA device of 80 bytes, of which 50 were in use at most and 20 are free."""
    properties = SimpleNamespace(total_memory=80, major=9, minor=0)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: properties)
    monkeypatch.setattr(torch.cuda, "max_memory_allocated", lambda device: 50)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (20, 80))
    return torch.device("cuda:0")


def test_what_the_diagnosis_holds_on_the_device_is_not_the_jobs(device):
    # Guards: a peak with 8 to 32 cached batches in it, so that a larger batch was not advised.
    made = describe_model(device, {}, ours_bytes=30)
    assert (made.peak_device_bytes, made.device_free_bytes, made.device_bytes) == (20, 50, 80)
    assert made.device_capability == (9, 0)


def test_a_device_that_a_step_has_broken_costs_no_diagnosis(device, monkeypatch):
    def refuse(device):
        raise RuntimeError("CUDA error: an illegal memory access was encountered")

    monkeypatch.setattr(torch.cuda, "mem_get_info", refuse)
    made = describe_model(device, {})
    assert (made.device_free_bytes, made.device_bytes) == (None, 80)

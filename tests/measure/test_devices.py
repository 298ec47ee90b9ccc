"""The speed of copies from pinned memory to a device; the device is invented."""

from types import SimpleNamespace

import pytest
import torch

from bottleneck.measure.device import devices_of, free_device_bytes, make_synchronize, pinned_bytes_per_s
from bottleneck.measure.passes.after_rounds import cpu_multiplies_bfloat16, describe_model
from bottleneck.results.evidence import ModelFacts
from tests.support.clock import FakeClock

CPU, FIRST, SECOND = torch.device("cpu"), torch.device("cuda:0"), torch.device("cuda:1")

CUDA = torch.device("cuda", 0)


def test_copies_of_pinned_memory_are_timed_until_the_device_has_them(monkeypatch):
    clock, made, taking_s = FakeClock(), [], iter([0.5, 0.002, 0.004, 0.002])  # the first sets the driver up
    under_way = []

    class Sent(torch.Tensor):
        def copy_(self, source, non_blocking=False):
            assert non_blocking
            under_way.append(next(taking_s))
            return self

    def empty(size, *, dtype, device="cpu", pin_memory=False):
        made.append((device, pin_memory))
        return torch.zeros(size, dtype=dtype).as_subclass(Sent)

    def synchronize(device):
        assert device == CUDA
        clock.advance(sum(under_way))
        under_way.clear()

    monkeypatch.setattr(torch, "empty", empty)
    monkeypatch.setattr(torch.cuda, "synchronize", synchronize)
    assert pinned_bytes_per_s(CUDA, clock) == pytest.approx(2**25 / 0.002)
    assert made == [("cpu", True), (CUDA, False)]


# --- several devices of one process ------------------------------------------------------------------------


def test_memory_that_torch_holds_and_uses_for_nothing_is_free(monkeypatch):
    # Guards: with 80 GB in torch's own cache, one batch was kept instead of eight.
    def refuse(device):
        raise RuntimeError("no CUDA")

    memory = {"mem_get_info": lambda device: (2, 80), "memory_reserved": lambda device: 70}
    cuda = torch.device("cuda")
    monkeypatch.setattr(torch, "cuda", SimpleNamespace(**memory, memory_allocated=lambda device: 30))
    assert free_device_bytes(cuda) == 42
    monkeypatch.setattr(torch, "cuda", SimpleNamespace(mem_get_info=memory["mem_get_info"]))
    assert free_device_bytes(cuda) == 2
    monkeypatch.setattr(torch, "cuda", SimpleNamespace(mem_get_info=refuse))
    assert free_device_bytes(cuda) is None
    assert free_device_bytes(torch.device("cpu")) is None


def test_every_device_of_the_job_is_waited_for(monkeypatch):
    # Guards: a model over several devices, where only that of the batch was waited for.
    waited = []
    monkeypatch.setattr(torch, "cuda", SimpleNamespace(synchronize=waited.append))
    make_synchronize(FIRST, (FIRST, SECOND, CPU))()
    assert waited == [FIRST, SECOND]
    waited.clear()
    make_synchronize(FIRST)()
    assert waited == [FIRST]
    waited.clear()
    make_synchronize(CPU)()
    assert waited == []


def test_the_devices_of_a_model_and_of_what_an_optimizer_trains():
    model = torch.nn.Sequential(torch.nn.Linear(1, 1), torch.nn.Linear(1, 1, device="meta"))
    optimizer = torch.optim.SGD(torch.nn.Linear(1, 1, device="meta").parameters())
    assert devices_of(model) == (CPU, torch.device("meta"))
    assert devices_of(None, optimizer) == (torch.device("meta"),)
    assert devices_of(len, None) == ()


# --- readings of the process, the processor and the device --------------------------------------------------


def test_of_a_device_that_is_not_known_there_is_what_was_traced():
    types = {"float32": 3}
    assert describe_model(torch.device("meta"), ModelFacts(computed_dtypes=types)) == ModelFacts(computed_dtypes=types)


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


def test_a_device_of_nvidias_has_its_capability(monkeypatch):
    properties = SimpleNamespace(major=9, minor=0)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: properties)
    assert describe_model(CUDA, ModelFacts()).device_capability == (9, 0)

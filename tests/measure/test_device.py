"""How fast a device is sent what lies in pinned memory; the device is made up."""

import pytest
import torch

from bottleneck.measure.device import pinned_bytes_per_s
from tests.support.clock import FakeClock

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


def test_no_other_device_is_timed_and_none_without_room(monkeypatch):
    def refuse(*_, **__):
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(torch, "empty", refuse)
    assert pinned_bytes_per_s(torch.device("cpu")) is None
    assert pinned_bytes_per_s(CUDA) is None

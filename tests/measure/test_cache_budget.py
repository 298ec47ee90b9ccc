"""What caches may take, by the size of a batch and the memory that is free."""

from types import SimpleNamespace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from bottleneck.errors import MeasurementError
from bottleneck.measure.cache_budget import CacheBudget, choose_budget
from bottleneck.measure.device import device_can_pin, free_device_bytes

MB, GB, GIB = 10**6, 10**9, 1 << 30


def choose(batch, workers=2, *, given=None, free=24 * GIB, device_shares=False):
    return choose_budget(batch, workers, given=given, free_bytes=free, device_shares=device_shares)


def total(budget, workers, device_shares):
    return workers * budget.worker_bytes + (2 if device_shares else 1) * budget.host_bytes


@pytest.mark.parametrize("workers", [1, 2, 16, 64])
@pytest.mark.parametrize("batch", [38 * MB, 154 * MB, 308 * MB, 500 * MB])
def test_with_memory_for_it_each_worker_gets_three_batches_and_the_main_process_eight(batch, workers):
    # Guards: a batch of 154 MB was refused, and 16 workers had no room for one of 77 MB.
    budget = choose(batch, workers, free=1000 * GB)
    assert budget.worker_bytes >= 3 * batch
    assert budget.host_bytes >= 8 * batch


def test_a_batch_of_500_mb_works_on_an_ordinary_machine():
    budget = choose(500 * MB, workers=2, free=23 * GIB)
    assert budget.worker_bytes >= 3 * 500 * MB
    assert budget.host_bytes >= 6 * 500 * MB


def test_small_batches_get_a_gib_or_a_tenth_of_little_memory():
    assert total(choose(1 * MB), 2, device_shares=False) == pytest.approx(GIB, rel=1e-6)
    assert total(choose(1 * MB, free=2 * GB), 2, device_shares=False) == pytest.approx(0.2 * GB, rel=1e-6)


def test_what_the_user_gives_is_all_there_is():
    budget = choose(300 * MB, workers=2, given=8 * GB, free=1 * GB)
    assert total(budget, 2, device_shares=False) == pytest.approx(8 * GB, rel=1e-6)


def test_where_there_is_room_for_one_batch_only_the_main_process_gets_it():
    assert choose(10 * MB, workers=4, given=10 * MB) == CacheBudget(0, 10 * MB, 10 * MB)


@pytest.mark.parametrize(
    "options", [{"given": 10 * MB - 1}, {"free": 20 * MB - 2}, {"given": 19 * MB, "device_shares": True}]
)
def test_a_batch_that_does_not_fit_is_refused_with_a_remedy_that_works(options):
    with pytest.raises(MeasurementError, match="One batch takes") as caught:
        choose(10 * MB, **options)
    wanted = int(caught.value.remedy.split("--cache-bytes ")[1].split("MiB")[0]) << 20
    assert f"cache_bytes={wanted >> 20} << 20" in caught.value.remedy
    budget = choose(10 * MB, **options | {"given": wanted})
    assert budget.worker_bytes >= 3 * 10 * MB
    assert budget.host_bytes >= 8 * 10 * MB


@given(
    batch=st.integers(1, 10 * GB), workers=st.integers(1, 256), free=st.integers(0, 4000 * GB),
    allowed=st.none() | st.integers(1, 4000 * GB), device_shares=st.booleans(),
)  # fmt: skip
def test_the_caches_never_take_more_than_they_may(batch, workers, free, allowed, device_shares):
    try:
        budget = choose(batch, workers, given=allowed, free=free, device_shares=device_shares)
    except MeasurementError:
        assert (2 if device_shares else 1) * batch > (free // 2 if allowed is None else allowed)
        return
    taken = total(budget, workers, device_shares)
    if allowed is not None:
        assert taken <= allowed
    else:
        assert taken <= max(free // 4, (2 if device_shares else 1) * batch)
    assert budget.host_bytes >= batch
    assert budget.worker_bytes >= 0


def test_on_the_device_a_quarter_of_its_own_free_memory_is_the_most():
    budget = CacheBudget(0, 100, 100)
    assert budget.on_device(None) == 100
    assert budget.on_device(1000) == 100
    assert budget.on_device(200) == 50


def test_a_device_without_memory_of_its_own_has_none_to_tell(monkeypatch):
    assert free_device_bytes(torch.device("cpu")) is None
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (123, 456))
    assert free_device_bytes(torch.device("cuda")) == 123


@pytest.mark.parametrize(("kind", "pins"), [("cuda", True), ("xpu", True), ("mps", False), (None, False)])
def test_which_accelerators_pin(monkeypatch, kind, pins):
    # Guards: for MPS the loader warns, and pins nothing.
    current = None if kind is None else torch.device(kind)
    accelerator = SimpleNamespace(is_available=lambda: kind is not None, current_accelerator=lambda: current)
    monkeypatch.setattr(torch, "accelerator", accelerator)
    assert device_can_pin() is pins

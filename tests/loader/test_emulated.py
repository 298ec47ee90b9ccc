"""Emulated workers hand over copies of recorded batches, leave the user's random numbers alone, and end."""

import pytest
import torch

from bottleneck.loader import emulated
from bottleneck.loader.emulated import EmulatedLoader, Work


@pytest.mark.integration
@pytest.mark.untimed
def test_batches_come_in_turn_as_copies_and_the_workers_end():
    batches = [({"x": torch.full((4, 2), float(n)), "names": ["a"] * n}, n) for n in (1, 2, 3)]
    before = torch.get_rng_state()
    loader = EmulatedLoader(batches, Work(0.001, 0.001), 2)
    try:
        loader.work()
        given = [loader.next_batch() for _ in range(6)]
        first = emulated.PREFETCH * 2  # those that came without work were dropped
        assert [samples for _, samples in given] == [1 + (first + at) % 3 for at in range(6)]
        for batch, samples in given:
            assert batch["x"].tolist() == [[float(samples)] * 2] * 4
            assert batch["names"] == ["a"] * samples
            assert batch["x"].is_shared()
        loader.rest()
        loader.next_batch()
    finally:
        loader.close()
    assert torch.equal(before, torch.get_rng_state())
    assert not batches[0][0]["x"].is_shared()


@pytest.mark.parametrize("work", [Work(0.004, 0.0), Work(0.001, 0.003)])
def test_work_takes_the_time_that_it_says_of_a_core_and_of_the_clock(work, monkeypatch):
    spent = {"cpu_s": 0.0, "wall_s": 0.0}

    def thread_time():
        spent["cpu_s"] += 0.0001
        return spent["cpu_s"]

    monkeypatch.setattr(emulated.time, "thread_time", thread_time)
    monkeypatch.setattr(emulated.time, "sleep", lambda seconds: spent.update(wall_s=seconds))
    work.do()
    assert spent["cpu_s"] == pytest.approx(work.cpu_s, abs=0.0003)
    assert spent["wall_s"] == work.wait_s
    assert work.total_s == pytest.approx(0.004)

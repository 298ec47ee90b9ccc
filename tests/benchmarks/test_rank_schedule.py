"""The simulated schedule of many ranks: every request is counted, and time is lost to the slowest rank."""

from __future__ import annotations

from dataclasses import replace

import pytest

from benchmarks.rank_schedule import Schedule, simulate

FEW = Schedule(8)
ALIKE = replace(FEW, spread=0.0)


def test_the_store_is_busy_as_long_as_its_requests_take():
    found = simulate(FEW)
    assert found.store_busy_s == pytest.approx(found.requests.sum() * FEW.service_s)


def test_every_rank_says_that_it_is_here_and_hears_what_comes_next():
    found = simulate(ALIKE)
    assert min(found.requests) >= 4
    assert found.bytes_moved.min() > 0


def test_agreeing_takes_nothing_of_a_block_and_grows_with_the_ranks():
    few, many = simulate(ALIKE), simulate(replace(ALIKE, world=64))
    assert few.round_s == pytest.approx(FEW.block_s + few.agreeing_s)
    assert few.slowest_s == 0.0
    assert many.agreeing_s > 2 * few.agreeing_s > 0


def test_a_slow_store_keeps_up_with_many_ranks():
    # Guards: pauses that do not grow with the ranks, with which a thousand ask for more than a store can answer.
    slow = simulate(Schedule(512, visits=1, service_s=60e-6))
    assert slow.store_busy_s < 0.7 * slow.round_s
    assert slow.agreeing_s < 0.5 * slow.round_s


def test_the_slowest_rank_is_waited_for():
    assert simulate(replace(FEW, spread=0.1)).slowest_s > simulate(replace(FEW, spread=0.01)).slowest_s > 0

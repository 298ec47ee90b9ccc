"""The simulated schedule of many ranks: every request is counted, and a store that has too many is what slows it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from benchmarks.rank_schedule import Schedule, simulate

FEW = Schedule(8, visits=2)


def test_the_first_rank_asks_for_each_word_and_the_others_for_one():
    alike = replace(FEW, spread=0.0, agreements=0, visits=1, shortest_pause_s=1.0, longest_pause_s=1.0)
    found = simulate(alike)
    # Of rank 0: an announcement, its word, of each rank a look and the word, and the answer.
    assert found.requests[0] == 1 + 1 + 2 * alike.world + 1
    # Of the others: the announcement, the word and the answer, with a look or two before what they wait for.
    assert set(found.requests[1:]) <= {5, 6, 7}


def test_the_store_is_busy_as_long_as_its_requests_take():
    found = simulate(FEW)
    assert found.store_busy_s == pytest.approx(found.requests.sum() * FEW.service_s)


def test_agreeing_takes_nothing_of_a_block_and_grows_with_the_ranks():
    few, many = simulate(replace(FEW, spread=0.0)), simulate(replace(FEW, spread=0.0, world=64))
    assert few.round_s == pytest.approx(2 * FEW.block_s + few.agreeing_s)
    assert few.slowest_s == 0.0
    assert many.agreeing_s > 2 * few.agreeing_s > 0


def test_longer_pauses_ask_less():
    patient = replace(FEW, shortest_pause_s=2e-3, longest_pause_s=2e-2)
    assert simulate(patient).requests[1:].sum() < simulate(FEW).requests[1:].sum()


def test_the_slowest_rank_is_waited_for():
    assert simulate(replace(FEW, spread=0.1)).slowest_s > simulate(replace(FEW, spread=0.01)).slowest_s > 0

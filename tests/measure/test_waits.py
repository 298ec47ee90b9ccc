"""Waits are told as they were; a stall is one only where it is far from usual, and has a period only beyond chance."""

import random

import pytest

from bottleneck.measure.evidence.waits import find_period, find_stalls, summarise_waits
from tests.support.as_json import in_json

find_stalls = in_json(find_stalls)
summarise_waits = in_json(summarise_waits)


def test_percentiles_of_the_wait():
    waits = summarise_waits([n / 100 for n in range(101)])
    assert waits == {
        "p50": 0.5, "p95": 0.95, "p99": pytest.approx(0.99), "max": 1.0, "count": 101, "mean": pytest.approx(0.5),
    }  # fmt: skip
    assert summarise_waits([0.25]) == {"p50": 0.25, "p95": 0.25, "p99": 0.25, "max": 0.25, "count": 1, "mean": 0.25}


def blocks_of(wait_of, blocks=8, batches=20):
    return [[wait_of(block, batch) for batch in range(batches)] for block in range(blocks)]


def test_a_long_wait_every_fifth_batch_is_a_stall_with_that_period():
    noise = random.Random(1)
    blocks = blocks_of(lambda block, batch: 0.1 if batch % 5 == block % 5 else 0.002 + 0.001 * noise.random())
    stalls = find_stalls(blocks, seconds=8 * 20 * 0.03, workers=1)
    assert stalls["count"] == 32
    assert stalls["period_batches"] == 5
    assert stalls["period_s"] == pytest.approx(5 * 0.03)
    assert stalls["lost_share"] == pytest.approx(32 * 0.0975 / 4.8, rel=0.02)
    assert 0.003 < stalls["threshold_s"] < 0.1


def test_bursts_of_the_workers_are_no_stalls():
    # Guards: with four workers that are the slower part, one batch in four is waited for, and the others come at once.
    noise = random.Random(2)
    blocks = blocks_of(lambda block, batch: 0.080 + 0.004 * noise.random() if batch % 4 == 0 else 0.0001)
    assert find_stalls(blocks, seconds=8 * 20 * 0.02, workers=4)["count"] == 0
    assert find_stalls(blocks, seconds=8 * 20 * 0.02, workers=1)["count"] == 40


def test_even_waits_have_no_stalls_and_lose_nothing():
    noise = random.Random(3)
    blocks = blocks_of(lambda block, batch: 0.010 + 0.002 * noise.random())
    stalls = find_stalls(blocks, seconds=8 * 20 * 0.02, workers=2)
    assert (stalls["count"], stalls["lost_share"], stalls["period_batches"], stalls["period_s"]) == (0, 0.0, None, None)


def test_stalls_by_chance_have_no_period():
    found = 0
    for seed in range(200):
        noise = random.Random(seed)
        positions = [[n for n in range(20) if noise.random() < 0.15] for _ in range(12)]
        found += find_period(positions, batches=240) is not None
    assert found <= 4  # a hundredth is allowed


def test_a_few_stalls_that_happen_to_lie_alike_have_no_period():
    # Guards: of four distances, most are often near each other.
    found = 0
    for seed in range(400):
        noise = random.Random(seed)
        positions = [[n for n in range(20) if noise.random() < 0.3] for _ in range(2)]
        found += find_period(positions, batches=40) is not None
    assert found <= 6


def test_a_period_needs_distances_within_a_block():
    assert find_period([[3], [7], [1], [9], [4], [2]], batches=120) is None
    assert find_period([[1, 11], [2, 12], [3, 13]], batches=60) is None  # too few
    assert find_period([[1, 11], [2, 12], [3, 13], [0, 10], [5, 15]], batches=100) == 10


def test_of_a_few_batches_nothing_is_said():
    assert find_stalls([[0.1, 0.2, 3.0]], seconds=4.0, workers=1) is None
    assert find_stalls([], seconds=0.0, workers=0) is None


def test_stalls_of_less_than_a_part_of_the_step_are_not_told():
    blocks = blocks_of(lambda block, batch: 0.005 if batch % 5 == 0 else 0.001)
    assert find_stalls(blocks, seconds=8 * 20 * 0.1, workers=1)["count"] == 0
    assert find_stalls(blocks, seconds=8 * 20 * 0.01, workers=1)["count"] == 32

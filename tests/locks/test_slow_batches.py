"""The job that an H100 had, 256 pictures a batch and 1.25 s of work for a worker, replayed as whole diagnoses."""

import json
import statistics

import pytest

from tests.locks.kept import text_now
from tests.measure.uneven_workers import UnevenWorkers

WORKER_S, STEP_S, RECEIVE_S = 1.25, 0.138, 0.001


def long_run(workers, worker_s, cv):
    """The efficiency of a long run."""
    losses = [UnevenWorkers(workers, worker_s, cv, STEP_S, seed).long_run_loss(3000) for seed in range(3)]
    return min(1 - statistics.mean(losses), STEP_S / (STEP_S + RECEIVE_S))


@pytest.fixture(scope="module")
def diagnoses():
    return [json.loads(line) for line in text_now("slow").splitlines()]


def test_each_has_a_state_within_12_s_and_ends_within_its_budget(diagnoses):
    # Guards: a state after 57 s, a name after 98, and an end after 169.
    for found in diagnoses:
        assert found["state_s"] < 12.0, found
        assert found["took_s"] < found["budget_s"] + 2.0, found


def test_each_rests_on_four_rounds_and_is_known_to_five_points(diagnoses):
    # Guards: two rounds that are read with Student's 12.7: 0.358 (0.238-0.538).
    for found in diagnoses:
        _, low, high = found["efficiency"]
        assert found["rounds"] >= 4, found
        assert (high - low) / 2 <= 0.05, found


def test_the_long_run_is_within_the_interval(diagnoses):
    outside = []
    for found in diagnoses:
        _, low, high = found["efficiency"]
        truth = long_run(found["workers"], WORKER_S, found["cv"])
        outside += [] if low - 0.005 <= truth <= high + 0.005 else [(found, truth)]
    assert len(outside) <= 0.1 * len(diagnoses), outside


def test_the_stage_is_named_and_its_gain_is_that_of_a_long_run_without_it(diagnoses):
    for found in diagnoses:
        truth = long_run(found["workers"], WORKER_S, found["cv"])
        if truth > 0.95:
            assert found["state"] == "device_bound", found
            continue
        assert (found["state"], found["named"]) == ("input_bound", "augment"), found
        gain = long_run(found["workers"], 0.4 * WORKER_S, found["cv"]) / truth
        assert found["gain"] is None or found["gain"][0] == pytest.approx(gain, rel=0.1), (found, gain)

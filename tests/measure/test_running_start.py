"""A job too slow to be switched about is measured as it was started."""

import pytest

from bottleneck.loader import modes
from bottleneck.measure.ledger import Ledger
from bottleneck.measure.start import RUNNING_ROUNDS, is_slow, measure_running_start, too_slow_for_stages
from tests.measure.uneven_workers import DEVICE, RAW, UnevenWorkers


def started(**job):
    made = UnevenWorkers(**job)
    made.switch(modes.ALL)
    began_s = made.now_s
    made.next_batch()
    made.log.clear()
    return made, made.now_s - began_s


@pytest.mark.parametrize(("worker_s", "loss", "off"), [(50.0, 0.0, 0.02), (80.0, 0.2, 0.1)])
def test_64_workers_at_a_second_get_a_state_from_a_running_start(worker_s, loss, off):
    # Guards: to record and to switch takes each worker a minute, and no budget is enough for both.
    job, _ = started(workers=64, worker_s=worker_s, cv=0.05, step_s=1.0)
    ledger = Ledger({}, {})
    measure_running_start(job.bench, ledger)
    blocks = {arm: ledger.blocks[arm] for arm in (RAW, DEVICE)}
    for found in blocks.values():
        assert [block.round for block in found] == list(range(1, RUNNING_ROUNDS + 1))
    pace = {arm: sum(b.seconds for b in found) / sum(b.batches for b in found) for arm, found in blocks.items()}
    assert 1 - pace[DEVICE] / pace[RAW] == pytest.approx(loss, abs=off)


def test_nothing_is_switched_before_raw_has_been_measured():
    job, first_s = started(workers=16, worker_s=14.0, cv=0.1, step_s=1.0)
    measure_running_start(job.bench, Ledger({}, {}))
    assert job.log.count("switch") == 0
    assert job.log.count("rest") == 1
    assert "next" not in job.log[job.log.index("rest") :]
    assert job.now_s - 10.0 - first_s < 60.0


def test_which_jobs_are_slow():
    assert is_slow(60.0, 300.0)
    assert is_slow(14.0, 55.0)
    assert not is_slow(2.0, 55.0)


def test_a_budget_that_is_enough_for_the_stages_is_said_where_this_one_is_not():
    assert too_slow_for_stages(2.0, spent_s=5.0, budget_s=55.0) is None
    id_, message = too_slow_for_stages(60.0, spent_s=200.0, budget_s=300.0)
    assert id_ == "too-slow-for-stages"
    assert "--budget 19m" in message

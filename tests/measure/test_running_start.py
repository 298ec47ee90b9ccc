"""A job with slow batches is measured as it was started, before anything is switched or recorded."""

import time
from dataclasses import replace
from types import SimpleNamespace

import pytest

from bottleneck.analysis.analyse import judge
from bottleneck.loader import modes
from bottleneck.measure.ladder import Ladder, Rung
from bottleneck.measure.ledger import Ledger
from bottleneck.measure.options import MeasureOptions
from bottleneck.measure.rounds.visit import Counters
from bottleneck.measure.running import FirstBatch, RunningStart, slow_from_s, warning_if_too_slow
from bottleneck.results.records import Stage
from tests.measure.uneven_workers import DEVICE, RAW, UnevenWorkers
from tests.support.datasets import Photos
from tests.support.sessions import blocks, pipeline_of, run, warnings_of

ENDS = Ladder(
    (Rung("device", None, DEVICE), Rung("raw", None, RAW)),
    (Stage.between("compute", None, "device"), Stage.between("input", "device", "raw")), (),
)  # fmt: skip


def quiet_counters():
    """Counters that count nothing."""
    nothing = SimpleNamespace(
        read=lambda: None, add=lambda *_: None, begin_round=lambda: None, begin_block=lambda *_: None,
        end_block=lambda *_: None, begin=lambda: None, end=lambda **_: None,
    )  # fmt: skip
    return Counters(
        nothing, nothing, nothing, nothing, SimpleNamespace(begin_block=lambda: None, end_block=lambda: 0.0)
    )


class Started:
    """A job whose first batch has come, in invented time."""

    def __init__(self, budget_s=55.0, **job):
        self.job = UnevenWorkers(**job)
        self.job.switch(modes.ALL)
        began_s = self.job.now_s
        self.job.next_batch()
        self.job.log.clear()
        self.first = FirstBatch(job["worker_s"], self.job.now_s)
        self.ledger = Ledger({}, {"num_workers": job["workers"]})
        self.ledger.ladder = ENDS
        self.told = []
        start = RunningStart(
            self.job.bench, self.ledger, quiet_counters(), judge,
            lambda _, **known: self.told.append((self.job.now_s - began_s, known)), began_s + 0.45 * budget_s,
        )  # fmt: skip
        self.found = start.measure(self.first)
        self.seconds = self.job.now_s - began_s

    @property
    def loss(self):
        pace = {
            arm: sum(b.seconds for b in blocks) / sum(b.batches for b in blocks)
            for arm, blocks in self.ledger.blocks.items()
        }
        return 1 - pace[DEVICE] / pace[RAW]

    @property
    def state_s(self):
        return next(at_s for at_s, known in self.told if known.get("state"))


@pytest.mark.parametrize(("worker_s", "loss", "off"), [(50.0, 0.0, 0.02), (80.0, 0.2, 0.1)])
def test_64_workers_at_a_second_get_a_state_from_a_running_start(worker_s, loss, off):
    # Guards: to record and to switch takes each worker a minute, and no budget is enough for both.
    started = Started(budget_s=170.0, workers=64, worker_s=worker_s, cv=0.05, step_s=1.0)
    rounds = {arm: {block.round for block in blocks} for arm, blocks in started.ledger.blocks.items()}
    assert rounds[RAW] == rounds[DEVICE] == set(range(1, started.found.rounds + 1))
    assert started.loss == pytest.approx(loss, abs=off)


def test_nothing_is_switched_before_raw_has_been_measured():
    started = Started(workers=16, worker_s=14.0, cv=0.1, step_s=1.0)
    log = started.job.log
    assert log.count("switch") == 0
    assert log.count("rest") == 1
    assert "next" not in log[log.index("rest") :]


@pytest.mark.parametrize("workers", [3, 8, 16])
@pytest.mark.parametrize("cv", [0.05, 0.15])
def test_256_pictures_a_batch_have_a_state_within_12_s_and_four_blocks(workers, cv):
    # Guards: on an H100 such a job had its state after 57 s, because a first round visits 14 experiments.
    job = {"workers": workers, "worker_s": 1.25, "cv": cv, "step_s": 0.138}
    losses = []
    for seed in range(12):
        started = Started(seed=seed, **job)
        assert started.state_s < 12.0
        assert len(started.ledger.blocks[RAW]) >= 4
        assert started.seconds < 30.0
        losses.append(started.loss)
    truth = UnevenWorkers(**job).long_run_loss()
    assert sum(losses) / len(losses) == pytest.approx(truth, abs=0.025)


def test_a_turn_of_very_slow_workers_counts_from_their_first_batch():
    # Guards: workers that the job waits for go on while the main process prepares; another turn takes 12 s.
    started = Started(workers=3, worker_s=4.0, cv=0.0, step_s=0.138)
    assert started.loss == pytest.approx(1 - 3 * 0.138 / 4.0, abs=0.005)
    assert started.seconds < 4.0 * (1 + 4) + 4.0


def test_a_loader_that_got_ahead_meanwhile_is_not_taken_for_one_that_keeps_up():
    # Guards: one worker that loses 17 % to a step of a second starts with a full queue, and 7 % are read.
    started = Started(workers=1, worker_s=1.2, cv=0.0, step_s=1.0)
    assert started.loss == pytest.approx(1 / 6, abs=0.02)


def test_only_the_first_batch_was_slow():
    job = UnevenWorkers(workers=2, worker_s=0.03, cv=0.0, step_s=0.02)
    job.switch(modes.ALL)
    job.next_batch()
    ledger = Ledger({}, {"num_workers": 2})
    ledger.ladder = ENDS
    start = RunningStart(job.bench, ledger, quiet_counters(), judge, lambda *_, **__: None, job.now_s + 20.0)
    assert start.measure(FirstBatch(3.0, job.now_s)) is None
    assert not ledger.blocks
    assert job.now_s < 16.0


@pytest.mark.parametrize(("state", "chance", "settled", "answered"), [
    ("device_bound", 0.995, False, True), ("device_bound", 0.9, True, True), ("device_bound", 0.9, False, False),
    ("input_bound", 1.0, True, False),
])  # fmt: skip
def test_a_job_that_its_device_clearly_limits_needs_no_stages(state, chance, settled, answered):
    found = Started(workers=16, worker_s=1.25, cv=0.0, step_s=0.138).found
    leaning = replace(found.judgement.leaning, state=state, chance=chance)
    judged = replace(found.judgement, state=state, settled=settled, leaning=leaning)
    assert replace(found, judgement=judged).is_device_bound == answered


def test_batches_of_the_main_process_are_slow_where_the_budget_is_not_enough_to_record_them():
    assert slow_from_s(2, 8.0) == slow_from_s(2, 170.0) == slow_from_s(0, 1.0) == 0.4
    assert slow_from_s(0, 10.0) == 2.0
    assert slow_from_s(0, 170.0) == 34.0


class Slow(Photos):
    def load(self, index):
        time.sleep(0.4)
        return super().load(index)


@pytest.mark.integration
@pytest.mark.sleeps
def test_a_short_budget_is_kept_where_the_main_process_takes_long_for_a_batch():
    # Guards: a budget of 8 s took 45 s where a batch takes 4, for recording, observing and further blocks.
    outcome = run(pipeline_of(Slow(), num_workers=0), MeasureOptions(budget_s=4.0), judge=judge)
    assert outcome.measurement.cost.seconds < 8.0  # three batches of 1.6 s, and a start
    assert "give it --budget" in warnings_of(outcome)["too-slow-for-stages"]
    assert [len(blocks(outcome)[name]) for name in ("device", "raw")] == [2, 2]


def test_a_budget_that_is_enough_for_the_stages_is_said_where_this_one_is_not():
    assert warning_if_too_slow(2.0, spent_s=5.0, budget_s=55.0) is None
    warning = warning_if_too_slow(60.0, spent_s=200.0, budget_s=300.0)
    assert warning.id == "too-slow-for-stages"
    assert "--budget 19m" in warning.message

"""The climb against simulated jobs of which the best settings are known, and what pairs of blocks say."""

import math
import random
from dataclasses import dataclass

import pytest
from scipy.stats import mstats

from bottleneck.errors import MeasurementError
from bottleneck.results.records import Block
from bottleneck.results.tuning import Pair
from bottleneck.tuning.change import Change, build, labels
from bottleneck.tuning.changes.loader import next_count
from bottleneck.tuning.climb import MOST_PAIRS, Climb, OutOfTime, Verdict, gain, judge, log_gains


@dataclass
class SimulatedJob:
    """Loads with some workers while it trains: the slower of the two decides. A pipeline is a plain dict here."""

    load_s: float
    step_s: float

    def pace_s(self, pipeline):
        """The time of a sample."""
        load_s = self.load_s * pipeline.get("load", 1.0) / pipeline.get("num_workers", 1)
        return max(load_s, self.step_s * pipeline.get("step", 1.0)) * pipeline.get("all", 1.0)


def factor(name, key, by, **fields):
    """A change that multiplies a time of the simulated job."""
    return Change(name, lambda pipeline: {**pipeline, key: pipeline.get(key, 1.0) * by}, **fields)


def workers(limit):
    """The search for the number of workers, on a pipeline that is a dict."""
    return Change(
        "num_workers",
        lambda pipeline, value: {**pipeline, "num_workers": value},
        next_value=lambda here, judged: next_count(here.get("num_workers", 1), 1, judged, limit),
    )


def climbed(job, changes, attempts_at_most=100):
    """Climb, and return the climb and the labels of each attempt."""
    attempts, noise = [], random.Random(0)

    def block(pipeline):
        return Block(0, 100, 100 * job.pace_s(pipeline) * math.exp(noise.gauss(0, 0.01)), 10)

    def measure(base, changed, tried):
        if len(attempts) == attempts_at_most:
            raise OutOfTime
        attempts.append(" + ".join(labels(tried)))
        try:
            jobs = build({}, base), build({}, changed)
        except MeasurementError as error:
            return Verdict("failed", lacked_memory="memory" in str(error))
        pairs = []
        while (outcome := judge(pairs)) is None:
            pairs.append(Pair(*map(block, jobs)))
        return Verdict(outcome, gain(pairs).estimate)

    climb = Climb(changes, lambda change, settings, judged: change.propose(build({}, settings), judged), list, measure)
    climb.run()
    return climb, attempts


@pytest.fixture(autouse=True)
def plain_pipelines(monkeypatch):
    monkeypatch.setattr(
        "bottleneck.tuning.change.Setting.apply",
        lambda self, pipeline: (
            self.change.apply(pipeline) if self.value is None else self.change.apply(pipeline, self.value)
        ),
    )


def test_workers_are_doubled_until_the_step_decides():
    climb, attempts = climbed(SimulatedJob(load_s=0.08, step_s=0.02), [workers(16)])
    assert labels(climb.best) == ("num_workers=4",)
    assert attempts[:3] == ["num_workers=2", "num_workers=4", "num_workers=8"]
    assert climb.rungs == [climb.best]


def test_each_fix_uncovers_the_next():
    job = SimulatedJob(load_s=0.05, step_s=0.02)
    changes = [factor("quicker-step", "step", 0.5, on="step"), workers(8)]
    climb, attempts = climbed(job, changes)
    # Of no use at first, where loading decides; and kept after more workers.
    assert attempts[0] == "quicker-step"
    assert {setting.change.name for setting in climb.best} == {"num_workers", "quicker-step"}
    assert job.pace_s(build({}, climb.best)) < 0.012


def test_steps_that_pay_only_together_are_found_and_nothing_else_with_them():
    job = SimulatedJob(load_s=0.02, step_s=0.02)
    changes = [
        factor("quicker-load", "load", 0.5),
        factor("idle", "nothing", 1.0, alters="nothing"),
        factor("quicker-step", "step", 0.5, on="step"),
        factor("harmful", "all", 1.5),
    ]
    climb, attempts = climbed(job, changes)
    assert set(labels(climb.best)) == {"quicker-load", "quicker-step"}
    assert "quicker-load + idle + quicker-step" in attempts
    assert set(labels(climb.rungs[-1])) == set(labels(climb.best))
    # Without time to find out which of them are needed, all are kept.
    at = attempts.index("quicker-load + idle + quicker-step") + 1
    assert labels(climbed(job, changes, at)[0].best) == ("quicker-load", "idle", "quicker-step")


def test_what_is_slower_or_fails_is_never_kept_and_a_failure_is_not_repeated():
    def fail(pipeline):
        raise MeasurementError("no compiler")

    job = SimulatedJob(load_s=0.04, step_s=0.02)
    changes = [Change("failing", fail), factor("slower", "all", 1.1), workers(8)]
    climb, attempts = climbed(job, changes)
    assert labels(climb.best) == ("num_workers=2",)
    assert attempts.count("failing") == 1
    assert attempts.count("slower") == 2  # again on top of the workers


def test_a_batch_that_fits_only_on_top_of_a_lower_precision_is_tried_again_there():
    def larger(pipeline, value):
        if "half" not in pipeline:
            raise MeasurementError("out of memory")
        return {**pipeline, "all": 0.5}

    larger_batch = Change("batch_size", larger, next_value=lambda _, judged: None if judged else 64)
    half = Change("half", lambda pipeline: {**pipeline, "half": True, "step": 0.6})
    climb, attempts = climbed(SimulatedJob(load_s=0.001, step_s=0.02), [larger_batch, half])
    assert attempts == ["batch_size=64", "half", "batch_size=64"]
    assert labels(climb.best) == ("half", "batch_size=64")


@pytest.mark.parametrize(
    ("present", "given", "judged", "limit", "wanted"),
    [
        (0, 0, {}, 2, 1),
        (2, 2, {}, 2, 1),  # no core is left: fewer
        (2, 2, {}, 8, 4),
        (4, 2, {4: "kept", 8: "dropped"}, 8, 6),
        (4, 2, {4: "kept", 8: "dropped", 6: "dropped"}, 8, None),
        (1, 1, {2: "dropped"}, 2, 0),
        (0, 1, {2: "dropped", 0: "kept"}, 2, None),
        (8, 8, {16: "failed", 12: "dropped"}, 16, 4),
        (2, 2, {1: "dropped"}, 2, 0),  # what is handed over may cost more than it takes to make
        (2, 2, {1: "dropped", 0: "dropped"}, 2, None),
        (4, 1, {2: "kept", 4: "kept", 8: "dropped", 6: "dropped"}, 8, None),  # more of them paid
    ],
)
def test_which_number_of_workers_is_next(present, given, judged, limit, wanted):
    assert next_count(present, given, judged, limit) == wanted


# --- pairs --------------------------------------------------------------------------------------------------


def noisy_pairs(true_gain, noise, seed, disturbed):
    generator = random.Random(seed)

    def block_s():
        return math.exp(generator.gauss(0, noise)) * (2.0 if generator.random() < disturbed else 1.0)

    while True:
        base_s, changed_s = block_s(), block_s()
        yield Pair(Block(0, 100, base_s), Block(0, 100, changed_s / true_gain))


def decided(true_gain, noise=0.02, seed=0, disturbed=0.0):
    """The outcome, and the pairs that it took."""
    pairs = []
    for pair in noisy_pairs(true_gain, noise, seed, disturbed):
        pairs.append(pair)
        outcome = judge(pairs)
        if outcome is not None:
            return outcome, pairs


@pytest.mark.parametrize(("true_gain", "outcome"), [(1.3, "kept"), (1.0, "dropped"), (0.7, "dropped")])
def test_clear_changes_are_judged_rightly(true_gain, outcome):
    found = [decided(true_gain, seed=seed)[0] for seed in range(100)]
    assert found.count(outcome) >= 90


def test_blocks_that_the_machine_disturbs_hide_no_large_gain_and_make_none():
    large, none = ([decided(true_gain, seed=seed, disturbed=0.1)[0] for seed in range(200)] for true_gain in (1.5, 1.0))
    assert large.count("kept") >= 180
    assert none.count("kept") <= 3


def test_a_change_that_is_far_slower_takes_three_pairs_only():
    assert [len(decided(0.6, seed=seed)[1]) for seed in range(20)] == [3] * 20


@pytest.mark.parametrize("count", [2, 3, 5, 8, 13, 24])
def test_the_interval_is_that_of_tukey_and_mclaughlin(count):
    pairs = [pair for pair, _ in zip(noisy_pairs(1.2, 0.1, count, 0.2), range(count), strict=False)]
    found = gain(pairs)
    low, high = mstats.trimmed_mean_ci(log_gains(pairs), (0.2, 0.2), alpha=0.05)
    assert [math.log(found.low), math.log(found.high)] == pytest.approx([low, high])
    assert math.log(found.estimate) == pytest.approx(mstats.trimmed_mean(log_gains(pairs), (0.2, 0.2)))


def test_three_slow_pairs_that_disagree_settle_nothing():
    pairs = [Pair(Block(0, 100, 1.0), Block(0, 100, seconds)) for seconds in (1.2, 4.0, 1.25)]
    assert gain(pairs).high > 1.02
    assert judge(pairs) is None


def test_what_cannot_be_told_ends_undecided_and_only_then():
    outcome, pairs = decided(1.02, noise=0.02, seed=1)
    assert outcome in ("undecided", "dropped")
    assert len(pairs) <= MOST_PAIRS
    assert judge(pairs[:3]) is None
    assert judge(pairs[:4], most_pairs=4) is not None

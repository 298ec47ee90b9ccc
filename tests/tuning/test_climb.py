"""The climb against simulated jobs of which the best settings are known."""

import pytest

from bottleneck.errors import MeasurementError
from bottleneck.results.tuning import Pair
from bottleneck.tuning.change import Change, build, labels
from bottleneck.tuning.changes.loader import next_count
from bottleneck.tuning.climb import Climb, Verdict, gain, judge
from tests.tuning.simulated_job import SimulatedJob, factor


def workers(limit, given=1):
    """The search for the number of workers, on a pipeline that is a dict."""
    return Change(
        "num_workers",
        lambda pipeline, value: {**pipeline, "num_workers": value},
        next_value=lambda here, judged: next_count(here.get("num_workers", given), given, judged, limit),
    )


def climbed(job, changes, given=None):
    """Climb, and return the climb and the labels of each attempt."""
    given = given or {}
    attempts = []

    def propose(change, settings, judged):
        return change.propose(build(given, settings), judged)

    climb = Climb(changes, propose, by_promise=list)
    steps = climb.steps()
    verdict = None
    try:
        while True:
            attempt = steps.send(verdict)
            attempts.append(" + ".join(labels(attempt.tried)))
            verdict = measured(job, build(given, attempt.base), attempt, given)
    except StopIteration:
        return climb, attempts


def measured(job, base, attempt, given):
    try:
        changed = build(given, attempt.changed)
    except MeasurementError as error:
        return Verdict("failed", lacked_memory="memory" in error.message)
    pairs = []
    while (outcome := judge(pairs)) is None if pairs else True:
        number = len(pairs)
        pairs.append(Pair(job.block(base, number), job.block(changed, number)))
    found = gain(pairs)
    return Verdict(outcome, found.estimate if found else None)


@pytest.fixture(autouse=True)
def plain_pipelines(monkeypatch):
    monkeypatch.setattr(
        "bottleneck.tuning.change.Setting.apply",
        lambda self, pipeline: (
            self.change.apply(pipeline) if self.value is None else self.change.apply(pipeline, self.value)
        ),
    )


def test_workers_are_doubled_until_the_step_decides():
    climb, attempts = climbed(SimulatedJob(load_s=0.08, step_s=0.02, cores=16), [workers(16)])
    assert labels(climb.best) == ("num_workers=4",)
    assert attempts[:3] == ["num_workers=2", "num_workers=4", "num_workers=8"]
    assert climb.rungs == [climb.best]


def test_a_number_between_is_found():
    # Six would do; eight are more than the cores, and slower.
    job = SimulatedJob(load_s=0.12, step_s=0.02, cores=6, contention=1.0)
    assert labels(climbed(job, [workers(16)])[0].best) == ("num_workers=6",)


def test_workers_that_only_contend_are_taken_away():
    job = SimulatedJob(load_s=0.04, step_s=0.02, cores=2, contention=1.0)
    climb, _ = climbed(job, [workers(2, given=8)], given={"num_workers": 8})
    assert labels(climb.best) == ("num_workers=2",)


def test_each_fix_uncovers_the_next():
    job = SimulatedJob(load_s=0.05, step_s=0.02, cores=8)
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


def test_what_is_slower_or_fails_is_never_kept_and_a_failure_is_not_repeated():
    def fail(pipeline):
        raise MeasurementError("no compiler")

    job = SimulatedJob(load_s=0.04, step_s=0.02, cores=8)
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


@pytest.mark.parametrize("seed", range(10))
def test_with_noise_the_climb_ends_within_a_few_per_cent_of_the_best(seed):
    job = SimulatedJob(load_s=0.1, step_s=0.03, cores=8, noise=0.03, seed=seed)
    changes = [workers(8), factor("quicker-step", "step", 0.6, on="step"), factor("idle", "nothing", 1.0)]
    climb, _ = climbed(job, changes)
    assert job.pace_s(build({}, climb.best)) <= 1.05 * max(0.1 / 8, 0.018)


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

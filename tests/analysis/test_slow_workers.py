"""Jobs whose workers take seconds for a batch: their clocks predict, an experiment confirms, few blocks are enough."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bottleneck.analysis.analyse import analyse, judge
from bottleneck.analysis.workers import Timed, Workers
from bottleneck.reports.render import render
from bottleneck.results.evidence import ClockedBatches, DeviceTime, LoadedBatches, StageClock
from bottleneck.results.records import RAW, Interval, Result
from tests.analysis.rule_case import with_stage
from tests.analysis.simulated import Job, measure
from tests.measure.uneven_workers import UnevenWorkers

STEP_S, WORKERS = 0.138, 3
LOAD_S, AUGMENT_S, COLLATE_S = 0.768, 1.280, 0.004
BATCH_S = LOAD_S + AUGMENT_S + COLLATE_S


def workers(number=WORKERS, batch_s=BATCH_S, cv=0.05, batches=24, **stages_s):
    stages_s = stages_s or {"load": LOAD_S, "augment": AUGMENT_S, "collate": COLLATE_S}
    stages = {name: Timed(seconds, cv, max(12, number)) for name, seconds in stages_s.items()}
    return Workers(number, 2 * number, Timed(batch_s, cv, batches), stages)


def long_run_s(number, batch_s, cv=0.05, step_s=STEP_S):
    """Seconds per batch of a long run, by a separate simulation."""
    return step_s / (1 - UnevenWorkers(number, batch_s, cv, step_s).long_run_loss(3000))


# --- the model ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [2, 3, 8, 14])
@pytest.mark.parametrize("stage", ["load", "augment"])
def test_the_predicted_gain_is_that_of_a_long_run(number, stage):
    rest_s = BATCH_S - {"load": LOAD_S, "augment": AUGMENT_S}[stage]
    raw_s = long_run_s(number, BATCH_S)
    truth = raw_s / long_run_s(number, rest_s)
    found = workers(number).gain(stage, raw_s, STEP_S)
    assert found.estimate == pytest.approx(truth, rel=0.03)
    assert found.low <= truth * 1.01
    assert truth * 0.99 <= found.high
    assert found.high / found.low < 1.25


def test_nothing_is_predicted_where_the_clocks_do_not_explain_the_job():
    raw_s = long_run_s(WORKERS, BATCH_S)
    assert workers().gain("handoff", raw_s, STEP_S) is None  # it has no clock in the workers
    assert workers().gain("augment", 1.3 * raw_s, STEP_S) is None  # something else takes a third
    assert workers(load=0.2, augment=0.4).gain("augment", raw_s, STEP_S) is None


def test_what_has_no_clock_gains_at_most_what_the_clocks_leave():
    raw_s = long_run_s(WORKERS, BATCH_S)
    assert workers().most_gain("handoff", raw_s, STEP_S) < 1.05
    unexplained = workers(load=LOAD_S, augment=0.8 * AUGMENT_S)
    assert 1.1 < unexplained.most_gain("handoff", raw_s, STEP_S) < 1.3
    assert workers().most_gain("handoff", 1.3 * raw_s, STEP_S) == float("inf")


def test_a_batch_that_was_timed_alone_says_little():
    raw_s = long_run_s(1, BATCH_S)
    one, many = (replace(workers(1), stages={"augment": Timed(AUGMENT_S, 0.05, n)}) for n in (1, 20))
    one, many = (replace(each, stages={**each.stages, "load": Timed(LOAD_S, 0.05, 20)}) for each in (one, many))
    widths = [(gain := each.gain("augment", raw_s, STEP_S)).high - gain.low for each in (one, many)]
    assert widths[0] > 1.5 * widths[1]


# --- the answer --------------------------------------------------------------------------------------------


def clocked(measured: Result, load_s=LOAD_S, augment_s=AUGMENT_S, cv=0.02, batches=12) -> Result:
    """The same with what the workers' clocks show."""
    times_s = {"load": load_s, "augment": augment_s, "collate": COLLATE_S}
    for stage, seconds in times_s.items():
        measured = with_stage(measured, stage, stage, wall_s_per_batch=seconds / WORKERS)
    stages = tuple(StageClock(stage=stage, seconds_each=seconds, cv=cv) for stage, seconds in times_s.items())
    loaded = LoadedBatches(count=batches, seconds_each=sum(times_s.values()), cv=cv)
    clocks = ClockedBatches(count=WORKERS, stages=stages)
    return replace(measured, evidence=replace(measured.evidence, loaded_batches=loaded, clocked_batches=clocks))


def measured(rounds=3, noise=0.01, without=(), seed=1, load_s=LOAD_S, augment_s=AUGMENT_S, **clocks) -> Result:
    """A job of which device and raw were measured, and the throughput without some stages."""
    raw_s = (load_s + augment_s + COLLATE_S) / WORKERS
    rest_s = {"load": (augment_s + COLLATE_S) / WORKERS, "augment": (load_s + COLLATE_S) / WORKERS}
    ladder = dict.fromkeys(("device", "after_collate", "before_collate"), STEP_S)
    job = Job(
        {**ladder, "before_augment": rest_s["load"], "raw": raw_s}, without=rest_s, pipeline={"num_workers": WORKERS}
    )
    found = measure(job, rounds=rounds, noise=noise, seed=seed)
    experiments = tuple(
        e if e.name in ("device", RAW) else replace(e, coupled=None, drained=None) for e in found.experiments
    )
    experiments = tuple(replace(e, drained=None, workers=None, serving=None) for e in experiments)
    kept = tuple(w if w.stage in without else replace(w, coupled=None) for w in found.without)
    kept = tuple(replace(w, workers=None) for w in kept)
    return clocked(replace(found, experiments=experiments, without=kept), load_s, augment_s, **clocks)


def test_the_clocks_name_the_stage_before_any_experiment_without_it():
    # Guards: on an H100 a job of three workers had no name after 38 s.
    judged = judge(measured())
    assert (judged.state, judged.bottleneck, judged.settled) == ("input_bound", "augment", False)
    assert judged.likely_stages == ("augment", "load")
    assert judged.expected_s["without augment"] == pytest.approx((LOAD_S + COLLATE_S) / WORKERS, rel=0.02)
    assert judged.expected_s["before_augment"] == pytest.approx((AUGMENT_S + COLLATE_S) / WORKERS, rel=0.02)
    assert judged.expected_s["after_collate"] == pytest.approx(STEP_S, rel=0.02)


def test_one_experiment_confirms_it():
    judged = judge(measured(without=("augment",)))
    assert (judged.bottleneck, judged.stands, judged.settled) == ("augment", True, True)


def test_an_experiment_that_contradicts_the_clocks_settles_nothing():
    contradicted = clocked(measured(without=("augment",)), load_s=1.2, augment_s=0.848)
    assert not judge(contradicted).settled


def test_stages_that_take_nearly_as_long_are_both_named():
    result = analyse(measured(without=("augment",), load_s=1.0, augment_s=1.048))
    assert (result.verdict.bottleneck, result.verdict.contributors) == ("augment", ("load",))
    assert judge(measured(without=("augment",), load_s=1.0, augment_s=1.048)).settled
    shorter = analyse(measured(without=("augment",)))
    assert shorter.verdict.contributors == ()


@pytest.mark.parametrize("seed", range(6))
def test_the_efficiency_of_slow_workers_is_as_precise_as_their_batches(seed):
    # Guards: four blocks of three batches that scatter by 15 % are read with Student's 3.2, as 8 points either way.
    job = measured(rounds=4, noise=0.08, seed=seed, cv=0.15, batches=12)
    interval, truth = analyse(job).verdict.efficiency, STEP_S / (BATCH_S / WORKERS)
    assert interval.low <= truth <= interval.high
    assert (interval.high - interval.low) / 2 < 0.03


def test_a_job_much_slower_than_its_clocks_predict_is_between_the_two():
    # Guards: ten workers that share two cores with a step four times as slow beside them: 53 % (45-67), really 26 %.
    job = clocked(measured(rounds=2, noise=0.3), load_s=LOAD_S / 2, augment_s=AUGMENT_S / 2)
    verdict, truth = analyse(job).verdict, STEP_S / (BATCH_S / WORKERS)
    assert verdict.state == "input_bound"
    assert verdict.efficiency.low <= truth < verdict.efficiency.estimate < 1.7 * truth
    assert verdict.efficiency.high >= 1.9 * truth


def test_what_was_not_measured_apart_is_shared_out_by_the_clocks():
    result = analyse(measured(without=("augment",)))
    parts = {part.name: part for part in result.step}
    assert parts["augment"].s_per_batch / parts["load"].s_per_batch == pytest.approx(AUGMENT_S / LOAD_S, rel=0.01)
    assert {name: part.by_clocks for name, part in parts.items() if name in ("augment", "load", "compute")} == {
        "augment": True, "load": True, "compute": False,
    }  # fmt: skip
    assert sum(part.s_per_batch for part in result.step) == pytest.approx(result.coupled(RAW).seconds_per_batch)
    costs = {stage.name: stage.cost_s_per_batch for stage in result.stages}
    assert costs["augment"].low < AUGMENT_S / WORKERS < costs["augment"].high
    assert "by the workers' clocks" in render(result, "text")
    alone = replace(result, pipeline={**result.pipeline, "num_workers": 0})
    assert "by the workers' clocks" not in render(alone, "text")
    assert "by its own clock" in render(alone, "text")


def test_a_state_is_likely_by_the_clocks_before_two_rounds_are_there():
    one_round = replace(measured(rounds=1))
    leaning = judge(one_round).leaning
    assert (leaning.state, leaning.bottleneck) == ("input_bound", None)
    assert leaning.chance > 0.99


# --- a second witness --------------------------------------------------------------------------------------


@pytest.mark.parametrize(("share", "warned"), [(0.205, False), (0.40, True)])
def test_events_of_the_device_are_a_second_witness_of_the_efficiency(share, warned):
    job = measured(without=("augment",))
    seen = DeviceTime(batches=20, efficiency=Interval(share, share - 0.01, share + 0.01))
    result = analyse(replace(job, evidence=replace(job.evidence, device_time=seen)))
    assert any(warning.id == "device-time" for warning in result.warnings) == warned


def test_the_copy_is_said_of_what_a_device_bound_job_loses():
    # Guards: 1.8 % lost on an H100, all of it 154 MB over the bus, which the report did not say.
    job = Job(
        {"device": 0.1380, "host": 0.1407, "raw": 0.1408}, pipeline={"num_workers": 16}, environment={"device": "cuda"}
    )
    sentence = analyse(measure(job, rounds=4, noise=0.0005)).verdict.sentence
    assert "The copy to the device is 2.72 ms of each 141 ms step." in sentence

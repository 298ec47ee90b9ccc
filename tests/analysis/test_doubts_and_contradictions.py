"""Warnings of doubtful numbers, and of two that cannot both be true."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bottleneck.analysis.analyse import analyse, judge
from bottleneck.results.evidence import Evidence
from bottleneck.results.records import Rate, Warning, blocks_of
from tests.analysis.simulated import (
    AUGMENT_BOUND,
    BATCHES,
    DEVICE_BOUND,
    LAST_STRAW,
    Job,
    keep_rounds,
    map_blocks,
    map_coupled,
    measure,
)

# --- doubts -------------------------------------------------------------------------------------------------


CLOSE = Job(coupled={"device": 0.01, "raw": 0.0108})
"""On the edge between two states."""


def ids(measurement):
    return [warning.id for warning in analyse(measurement).warnings]


def test_a_clean_run_has_no_warning():
    for seed in range(20):
        assert ids(measure(AUGMENT_BOUND, noise=0.01, drift=0.1, seed=seed)) == []
        assert ids(measure(DEVICE_BOUND, noise=0.01, drift=0.1, seed=seed)) == []


def test_warnings_of_the_measuring_come_first():
    warning = Warning("fetch", "The dataset cannot be cut.")
    measurement = replace(keep_rounds(measure(AUGMENT_BOUND), 1), warnings=(warning,))

    assert [w.id for w in analyse(measurement).warnings] == ["fetch", "too-few-rounds"]
    assert analyse(measurement).warnings[0] == warning


def test_too_few_rounds_is_said_in_each_case():
    def message(measurement):
        return analyse(measurement).warnings[0].message

    whole = measure(AUGMENT_BOUND)
    assert message(keep_rounds(measure(CLOSE, noise=0.05, seed=3), 3)).startswith("Only 3 rounds of device and raw")
    assert message(keep_rounds(whole, 1)).startswith("Fewer than two whole rounds")
    assert message(keep_rounds(whole, 0)).startswith("device and raw were not measured")
    only_device = Job(coupled={"device": 0.01})
    assert message(measure(only_device)).startswith("raw was not measured")


@pytest.mark.parametrize("job", [AUGMENT_BOUND, DEVICE_BOUND])
@pytest.mark.parametrize("rounds", [2, 3, 5])
def test_a_state_that_stands_needs_no_more_rounds(job, rounds):
    # Guards: a warning in each diagnosis of a job with rounds of 12 s, whose interval says how rough it is.
    measurement = keep_rounds(measure(job, noise=0.002), rounds)
    assert analyse(measurement).verdict.state != "undecided"
    assert "too-few-rounds" not in ids(measurement)


def test_an_open_state_after_four_rounds_says_it_in_its_sentence_alone():
    measurement = keep_rounds(measure(CLOSE, noise=0.05, seed=3), 4)
    assert analyse(measurement).verdict.state == "undecided"
    assert "too-few-rounds" not in ids(measurement)


@pytest.mark.parametrize("rounds", [0, 1, 2])
def test_a_larger_budget_is_no_remedy_for_a_run_that_ended_early(rounds):
    part = keep_rounds(measure(CLOSE, noise=0.05, seed=3), rounds)
    ended = analyse(replace(part, warnings=(Warning("ended-early", "The measurement ended early."),)))
    told = [warning.message for warning in ended.warnings] + [ended.verdict.sentence]
    assert "--budget" in analyse(part).warnings[0].message
    assert "--budget" in analyse(part).verdict.sentence
    assert all("--budget" not in text for text in told)
    assert "loss" not in ended.verdict.sentence  # 'hardly any loss' would say that it is small
    assert "ended early; a warning says why" in ended.verdict.sentence


def test_a_step_of_microseconds_is_shorter_without_the_diagnosis():
    assert "tiny-batches" in ids(measure(Job(coupled={"device": 1e-5, "raw": 1e-4})))
    assert "tiny-batches" not in ids(measure(Job(coupled={"device": 1e-4, "raw": 2e-3})))


def test_halves_that_disagree_block_after_block():
    # The first half runs on what was prefetched: 20 % faster.
    measured = measure(DEVICE_BOUND, noise=0.01)
    unsteady = map_blocks(measured, lambda b: replace(b, first_half_seconds=b.seconds * 0.4))

    (warning,) = analyse(unsteady).warnings

    assert warning.id == "unsteady-blocks"
    assert "device (50 % slower)" in warning.message
    assert "larger --budget" in warning.message

    # A single block is no pattern, and an odd number of batches has no halves.
    single = map_blocks(measured, lambda b: replace(b, first_half_seconds=b.seconds * (0.3 if b.round == 2 else 0.5)))
    assert ids(single) == []
    assert ids(map_blocks(unsteady, lambda b: replace(b, batches=5))) == []


@pytest.mark.parametrize(("drifting", "is_said"), [(("raw",), True), (("device",), False), (("raw", "device"), False)])
def test_a_job_that_gets_faster_from_round_to_round(drifting, is_said):
    def faster(experiment):
        blocks = tuple(replace(b, seconds=b.seconds * 0.93**b.round) for b in blocks_of(experiment.coupled))
        return Rate.of(blocks) if experiment.name in drifting else experiment.coupled

    assert ("trend" in ids(map_coupled(measure(AUGMENT_BOUND, noise=0.01), faster))) == is_said


def test_a_negative_drop():
    job = Job(coupled={**AUGMENT_BOUND.coupled, "host": 0.0120}, without=AUGMENT_BOUND.without)

    (warning,) = analyse(measure(job, noise=0.001)).warnings

    assert warning.id == "negative-drop"
    assert warning.message.startswith("after_collate took 19 % less time than host, although it does more")


@pytest.mark.parametrize(("serving_s", "explains"), [(0.030, True), (0.0101, False), (0.0060, False)])
def test_a_negative_drop_that_serving_explains(serving_s, explains):
    coupled = {"device": 0.010, "before_collate": 0.012, "before_augment": 0.020, "raw": 0.016}
    drained = {"before_collate": 0.002, "before_augment": 0.008, "raw": 0.010}
    job = Job(coupled=coupled, drained=drained, alone={"load": 0.010}, workers=0.010, serving=serving_s)

    found = {one.id: one.message for one in analyse(measure(job, noise=0.001)).warnings}

    assert ("The replay overhead" in found["negative-drop"]) == explains
    assert ("Stop other programs" in found["negative-drop"]) != explains


def test_a_bottleneck_that_was_inferred():
    result = analyse(measure(replace(AUGMENT_BOUND, without={})))
    assert [warning.id for warning in result.warnings] == ["gain-not-measured"]
    assert result.verdict.bottleneck == "augment"
    assert "The gain if augment were free was not measured." in result.verdict.sentence


def test_a_stage_that_could_not_be_chosen():
    gains = {name: s for name, s in AUGMENT_BOUND.without.items() if name not in ("augment", "copy")}

    (warning,) = analyse(measure(replace(AUGMENT_BOUND, without=gains))).warnings

    # The copy takes a hundredth of the step: not worth a word.
    assert warning.id == "gain-not-measured"
    assert warning.message.startswith("The gain if free of augment was not measured")


def test_several_stages_that_hold_the_job_equally():
    job = replace(AUGMENT_BOUND, without=dict.fromkeys(AUGMENT_BOUND.without, 0.0247))
    result = analyse(measure(job))
    assert [warning.id for warning in result.warnings] == ["no-single-gain"]
    assert "no single stage brings a gain" in result.verdict.sentence


def test_time_that_a_hypervisor_took_is_told_where_it_was_much():
    much, little = (replace(measure(AUGMENT_BOUND), evidence=Evidence(stolen_share=share)) for share in (0.12, 0.02))
    (warning,) = analyse(much).warnings
    assert warning.id == "stolen-time"
    assert "gave 12 % of the time of this job's cores to other virtual machines" in warning.message
    assert ids(little) == []


def with_clocks(measurement, **clocks_hz):
    def clocked(experiment):
        hz = clocks_hz.get(experiment.name)
        blocks = experiment.coupled.blocks
        clocked = (replace(b, device_clock_hz=hz and hz * (1 + 0.001 * (b.round % 2))) for b in blocks)
        return replace(experiment, coupled=Rate.of(tuple(clocked)))

    return replace(measurement, experiments=tuple(map(clocked, measurement.experiments)))


def test_clocks_of_the_device_that_differ_are_reported_with_what_they_mean_for_the_upper_bound():
    (higher,) = analyse(with_clocks(measure(AUGMENT_BOUND), device=1.98e9, raw=1.70e9)).warnings
    assert higher.id == "device-clock-differs"
    assert "ran at 1,981 MHz in `device` and at 1,701 MHz in raw. The job's own steps can be 14 % slower" in (
        higher.message
    )
    (lower,) = analyse(with_clocks(measure(AUGMENT_BOUND), device=1.70e9, raw=1.98e9)).warnings
    assert "The upper bound was measured at the lower clock" in lower.message


def test_clocks_that_are_alike_or_not_known_are_not_reported():
    assert ids(with_clocks(measure(AUGMENT_BOUND), device=1.98e9, raw=1.97e9)) == []
    assert ids(with_clocks(measure(AUGMENT_BOUND), device=1.98e9)) == []
    few = keep_rounds(with_clocks(measure(AUGMENT_BOUND), device=1.98e9, raw=1.70e9), 2)
    assert "device-clock-differs" not in ids(few)


# --- numbers that cannot both be true are no result: no state, no name, no share, and a sentence --------------


def verdict_of(job, **options):
    return analyse(measure(job, **options)).verdict


def contradicts(measurement):
    return any(warning.id == "contradiction" for warning in analyse(measurement).warnings)


def test_a_job_that_is_faster_than_its_device_is_no_result():
    # Guards: on batches grouped by length an efficiency of 332 % was printed, as `device_bound`.
    result = analyse(measure(Job(coupled={"device": 0.0332, "raw": 0.0100}), noise=0.01))
    verdict = result.verdict
    assert (verdict.state, verdict.bottleneck, verdict.contributors) == ("undecided", None, ())
    assert verdict.efficiency is verdict.headroom is verdict.epoch_efficiency is None
    parts = ("two numbers contradict each other", "raw reached 3,2", "device, which does less, 9")
    assert all(part in verdict.sentence for part in parts)
    assert result.warnings[0].id == "contradiction"
    assert all(stage.exposed_share is None and stage.gain_if_free is None for stage in result.stages)
    assert result.advice == ()


def test_the_interval_of_a_job_that_is_faster_than_its_loader_alone_holds_both():
    result = analyse(measure(replace(DEVICE_BOUND, drained={"raw": 0.040})))
    assert (result.verdict.state, result.verdict.bottleneck) == ("undecided", None)
    assert 0.73 < result.verdict.efficiency.low < 0.77 < 0.98 < result.verdict.efficiency.high
    assert "the loader alone, which does less" in result.warnings[0].message
    assert verdict_of(replace(DEVICE_BOUND, drained={"raw": 0.0303})).state == "device_bound"


def test_the_loader_alone_may_be_slower_by_one_batch_of_a_block():
    """Its blocks of 20 batches are off by 5 % where one of them belongs to the next block."""
    assert not contradicts(measure(replace(DEVICE_BOUND, drained={"raw": 0.0303 * 1.045}), noise=0.001))
    slow = measure(replace(DEVICE_BOUND, drained={"raw": 0.0303 * 1.08}), noise=0.001)
    assert contradicts(slow)
    short = map_blocks(slow, lambda b: replace(b, batches=2, samples=b.samples * 2 // BATCHES))
    assert not contradicts(short)


def test_a_job_that_both_readings_call_input_bound_is():
    job = measure(replace(AUGMENT_BOUND, drained={**AUGMENT_BOUND.drained, "raw": 0.030}))
    verdict, alone = analyse(job).verdict, verdict_of(AUGMENT_BOUND).efficiency.estimate
    assert (verdict.state, verdict.bottleneck) == ("input_bound", "augment")
    assert verdict.efficiency.low < alone * 24.7 / 30 < alone < verdict.efficiency.high
    assert contradicts(job)


@pytest.mark.parametrize("faster", ["without augment", "after_collate"])
def test_the_upper_bound_is_the_fastest_run_of_the_train_step(faster):
    # Guards: a loss of 43 % was refused because the step took 15 ms alone and 12 ms next to busy workers.
    if faster == "after_collate":
        job = replace(AUGMENT_BOUND, coupled={**AUGMENT_BOUND.coupled, "after_collate": 0.0080})
    else:
        job = replace(AUGMENT_BOUND, without={**AUGMENT_BOUND.without, "augment": 0.0080})
    result = analyse(measure(job))
    assert (result.verdict.state, result.verdict.bottleneck) == ("input_bound", "augment")
    assert result.verdict.upper_bound.experiment == faster
    assert result.verdict.efficiency.estimate == pytest.approx(0.0080 / 0.0247, rel=0.03)
    (message,) = (w.message for w in result.warnings if w.id == "step-slow-alone")
    assert f"`{faster}`, which is the upper bound" in message
    assert analyse(measure(AUGMENT_BOUND)).verdict.upper_bound.experiment == "device"


def test_a_stage_that_seems_to_add_more_than_the_whole_step_leaves_the_answer():
    job = Job(coupled={"device": 0.0100, "host": 0.0500, "after_collate": 0.0110, "raw": 0.0120})
    verdict = verdict_of(job, noise=0.005)
    assert verdict.state == "input_bound"
    assert verdict.efficiency.estimate == pytest.approx(10 / 12, abs=0.02)


def test_a_slower_job_without_a_stage_is_merely_no_gain():
    result = analyse(measure(replace(DEVICE_BOUND, without={"augment": 0.04})))
    assert result.verdict.state == "device_bound"
    assert {s.name: s for s in result.stages}["augment"].gain_if_free.high < 1


def test_an_efficiency_just_over_one_is_cut_there():
    verdict = verdict_of(replace(DEVICE_BOUND, coupled={**DEVICE_BOUND.coupled, "device": 0.0305}), noise=0.02)
    assert verdict.state == "device_bound"
    assert verdict.efficiency.high == 1.0
    assert verdict.headroom.low == 1.0
    assert "(0.0–" in verdict.sentence


def test_numbers_that_agree_contradict_each_other_no_more_often_than_promised():
    level = Job(coupled=dict.fromkeys(DEVICE_BOUND.coupled, 0.03), drained={"raw": 0.03}, without=DEVICE_BOUND.without)
    level = replace(level, without=dict.fromkeys(level.without, 0.03))
    assert sum(contradicts(measure(level, noise=0.1, rounds=6, seed=seed)) for seed in range(200)) <= 10


jobs = st.builds(
    Job,
    coupled=st.fixed_dictionaries({name: st.floats(0.005, 0.05) for name in ("device", "host", "raw")}),
    drained=st.fixed_dictionaries({"raw": st.floats(0.005, 0.05)}),
    without=st.fixed_dictionaries({"copy": st.floats(0.005, 0.05)}),
)


@settings(max_examples=80, deadline=None)
@given(jobs, st.integers(2, 9), st.floats(0.0005, 0.5), st.integers(0, 2**32 - 1))
def test_nothing_over_the_whole_is_shown_and_no_name_stands_without_an_efficiency(job, rounds, noise, seed):
    measurement = measure(job, rounds=rounds, noise=noise, seed=seed)
    result, judgement = analyse(measurement), judge(measurement)
    shares = [result.verdict.efficiency, result.verdict.epoch_efficiency, *(s.exposed_share for s in result.stages)]
    assert all(share is None or share.high <= 1 for share in shares)
    assert judgement.state == result.verdict.state
    if result.verdict.efficiency is None:
        assert (result.verdict.state, result.verdict.bottleneck) == ("undecided", None)
        assert all(stage.gain_if_free is None for stage in result.stages)


@pytest.mark.parametrize("job", [AUGMENT_BOUND, LAST_STRAW, DEVICE_BOUND])
def test_known_jobs_do_not_contradict_themselves(job):
    assert not any(contradicts(measure(job, noise=0.02, drift=0.2, seed=seed)) for seed in range(40))


def test_samples_that_only_the_workers_of_a_diagnosis_keep_leave_no_verdict():
    # Guards: a job that loads everything anew in each epoch was said to reach 75 % (74-77) where it reaches 44 %.
    measured = measure(AUGMENT_BOUND)
    known = replace(measured.evidence.loader, forgotten="self.kept")
    result = analyse(replace(measured, evidence=replace(measured.evidence, loader=known)))
    assert (result.verdict.state, result.verdict.bottleneck, result.verdict.efficiency) == ("undecided", None, None)
    assert "self.kept of the dataset caches samples" in result.verdict.sentence
    assert "persistent_workers=True" in result.verdict.sentence
    assert [warning.id for warning in result.warnings][:1] == ["dataset-keeps-samples"]
    assert result.advice == ()


def test_an_efficiency_whose_whole_interval_is_over_one_is_no_result():
    # Guards: 100 % (100-100) was printed beside an upper bound of 24 samples/s and a job of 30.
    job = Job(coupled={"device": 0.0417, "raw": 0.0329})
    assert sum(contradicts(measure(job, noise=0.03, rounds=3, seed=seed)) for seed in range(20)) >= 15

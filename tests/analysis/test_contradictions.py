"""Numbers that cannot both be true are no result: no state, no name, no share, and a sentence that says which two."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bottleneck.analysis.analyse import analyse, judge
from bottleneck.analysis.attribution import find_contradiction
from bottleneck.analysis.readings import read
from tests.analysis.simulated import AUGMENT_BOUND, BATCHES, DEVICE_BOUND, LAST_STRAW, Job, map_blocks, measure


def verdict_of(job, **options):
    return analyse(measure(job, **options)).verdict


def test_a_job_that_is_faster_than_its_device_is_no_result():
    # Guards: on batches grouped by length an efficiency of 332 % was printed, as `device_bound`.
    result = analyse(measure(Job(coupled={"device": 0.0332, "raw": 0.0100}), noise=0.01))
    verdict = result.verdict
    assert (verdict.state, verdict.bottleneck, verdict.contributors) == ("undecided", None, ())
    assert verdict.efficiency is verdict.headroom is verdict.epoch_efficiency is None
    assert "two numbers contradict each other" in verdict.sentence
    assert "raw got 3,2" in verdict.sentence
    assert "device, which does less, 9" in verdict.sentence
    assert result.warnings[0].id == "contradiction"
    assert all(stage.exposed_share is None and stage.gain_if_free is None for stage in result.stages)
    assert result.advice == ()


def test_a_job_that_is_faster_than_its_loader_alone_is_no_result():
    # Guards: a block that is served from a full queue shows a loss of 1 % where 25 % are lost.
    verdict = verdict_of(replace(DEVICE_BOUND, drained={"raw": 0.040}))
    assert (verdict.state, verdict.bottleneck, verdict.efficiency) == ("undecided", None, None)
    assert "the loader alone, which does less" in verdict.sentence
    assert verdict_of(replace(DEVICE_BOUND, drained={"raw": 0.0303})).state == "device_bound"


def test_the_loader_alone_may_be_slower_by_one_batch_of_a_block():
    """Its blocks of 20 batches are off by 5 % where one of them belongs to the next block."""
    assert (
        find_contradiction(read(measure(replace(DEVICE_BOUND, drained={"raw": 0.0303 * 1.045}), noise=0.001))) is None
    )
    slow = measure(replace(DEVICE_BOUND, drained={"raw": 0.0303 * 1.08}), noise=0.001)
    assert find_contradiction(read(slow)) is not None
    short = map_blocks(slow, lambda b: replace(b, batches=2, samples=b.samples * 2 // BATCHES))
    assert find_contradiction(read(short)) is None


def test_a_job_without_a_stage_is_not_faster_than_its_device():
    verdict = verdict_of(replace(AUGMENT_BOUND, without={**AUGMENT_BOUND.without, "augment": 0.0080}))
    assert verdict.state == "undecided"
    assert "raw without augment" in verdict.sentence


def test_a_stage_does_not_add_more_than_the_whole_step():
    job = Job(coupled={"device": 0.0100, "host": 0.0500, "after_collate": 0.0110, "raw": 0.0120})
    result = analyse(measure(job, noise=0.005))
    assert result.verdict.state == "undecided"
    assert "copy adds 39.8 ms to a step, and the whole step with it takes 12.0 ms" in result.verdict.sentence
    assert all(stage.exposed_share is None for stage in result.stages)


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
    found = [find_contradiction(read(measure(level, noise=0.1, rounds=6, seed=seed))) for seed in range(200)]
    assert sum(contradiction is not None for contradiction in found) <= 10


jobs = st.builds(
    Job,
    coupled=st.fixed_dictionaries({name: st.floats(0.005, 0.05) for name in ("device", "host", "raw")}),
    drained=st.fixed_dictionaries({"raw": st.floats(0.005, 0.05)}),
    without=st.fixed_dictionaries({"copy": st.floats(0.005, 0.05)}),
)


@settings(max_examples=80, deadline=None)
@given(jobs, st.integers(2, 9), st.floats(0.0005, 0.5), st.integers(0, 2**32 - 1))
def test_nothing_over_the_whole_is_shown_and_no_name_stands_beside_a_contradiction(job, rounds, noise, seed):
    measurement = measure(job, rounds=rounds, noise=noise, seed=seed)
    result, judgement = analyse(measurement), judge(measurement)
    shares = [result.verdict.efficiency, result.verdict.epoch_efficiency, *(s.exposed_share for s in result.stages)]
    assert all(share is None or share.high <= 1 for share in shares)
    assert judgement.state == result.verdict.state
    if any(warning.id == "contradiction" for warning in result.warnings):
        assert (result.verdict.state, result.verdict.bottleneck) == ("undecided", None)
        assert all(stage.gain_if_free is None for stage in result.stages)


@pytest.mark.parametrize("job", [AUGMENT_BOUND, LAST_STRAW, DEVICE_BOUND])
def test_known_jobs_do_not_contradict_themselves(job):
    assert not any(find_contradiction(read(measure(job, noise=0.02, drift=0.2, seed=seed))) for seed in range(40))


def test_samples_that_only_the_workers_of_a_diagnosis_keep_leave_no_verdict():
    # Guards: a job that loads everything anew in each epoch was said to reach 75 % (74-77) where it reaches 44 %.
    measured = measure(AUGMENT_BOUND)
    known = replace(measured.evidence.loader, forgotten="self.kept")
    result = analyse(replace(measured, evidence=replace(measured.evidence, loader=known)))
    assert (result.verdict.state, result.verdict.bottleneck, result.verdict.efficiency) == ("undecided", None, None)
    assert "self.kept of the dataset keeps samples" in result.verdict.sentence
    assert "persistent_workers=True" in result.verdict.sentence
    assert [warning.id for warning in result.warnings][:1] == ["dataset-keeps-samples"]
    assert result.advice == ()


def test_an_efficiency_whose_whole_interval_is_over_one_is_no_result():
    # Guards: 100 % (100-100) was printed beside an upper bound of 24 samples/s and a job of 30.
    job = Job(coupled={"device": 0.0417, "raw": 0.0329}, without=dict.fromkeys(("load", "augment", "copy"), 0.0330))
    found = [find_contradiction(read(measure(job, noise=0.04, rounds=3, seed=seed))) for seed in range(20)]
    assert sum(contradiction is not None for contradiction in found) >= 15

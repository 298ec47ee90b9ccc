"""The beginning of each epoch counts: in the efficiency over a whole one, in the state, and in the advice."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bottleneck.analysis.analyse import analyse, judge
from bottleneck.analysis.epochs import find_epoch
from bottleneck.analysis.readings import read
from bottleneck.analysis.settings import lost_per_hour
from bottleneck.results.records import Rate, blocks_of
from tests.analysis.rule_case import WORKERS
from tests.analysis.simulated import AUGMENT_BOUND, DEVICE_BOUND, Job, measure

ANEW = {**WORKERS, "persistent_workers": False}


def gap_of(seconds, *, batches, anew=True, low_s=None, high_s=None, order_s=0.0):
    return {
        "seconds": seconds, "low_s": seconds if low_s is None else low_s, "batches": batches, "order_s": order_s,
        "high_s": seconds if high_s is None else high_s, "persistent_workers": not anew, "started_anew": anew,
    }  # fmt: skip


def job_of(job, *, pipeline=ANEW, **gap):
    return replace(job, pipeline=pipeline, evidence={"epoch_gap": gap_of(**gap)})


def epoch_of(job, **options):
    measurement = measure(job, **options)
    return find_epoch(read(measurement), measurement.evidence, measurement.pipeline)


# 667 steps of 30 ms take 20 s.
SHORT_EPOCHS = job_of(DEVICE_BOUND, seconds=10.0, batches=667.0)


def test_a_job_whose_workers_start_for_a_third_of_each_epoch_is_held_by_its_input():
    result = analyse(measure(SHORT_EPOCHS))
    verdict = result.verdict
    assert (verdict.state, verdict.bottleneck, verdict.judged_by) == ("input_bound", None, "epoch_efficiency")
    assert verdict.efficiency.low > 0.95
    assert verdict.epoch_efficiency.estimate == pytest.approx(0.66, abs=0.01)
    assert verdict.judged == verdict.epoch_efficiency
    assert "to 66.3 % (" in verdict.sentence
    assert "over a whole epoch" in verdict.sentence
    assert "Each epoch of 30.3 s starts with 10.0 s without training: its workers start." in verdict.sentence
    assert judge(measure(SHORT_EPOCHS)).named  # no further rounds would name a stage
    assert not {"gain-not-measured", "no-single-gain"} & {warning.id for warning in result.warnings}
    assert lost_per_hour(result, 3.0).estimate == pytest.approx(1.0, abs=0.05)


def test_what_persistent_workers_gain_follows_from_the_same_numbers():
    result = analyse(measure(SHORT_EPOCHS))
    advice = {item.id: item for item in result.advice}["persistent-workers"]
    kept = job_of(DEVICE_BOUND, seconds=0.048, batches=667.0, anew=False)
    after = analyse(measure(kept)).verdict.epoch_efficiency.estimate
    assert advice.gain.estimate == pytest.approx(after / result.verdict.epoch_efficiency.estimate, rel=0.002)
    vague = analyse(measure(job_of(DEVICE_BOUND, seconds=10.0, batches=667.0, low_s=9.0, high_s=12.0)))
    gain = {item.id: item for item in vague.advice}["persistent-workers"].gain
    assert gain.low < gain.estimate <= gain.high == pytest.approx(advice.gain.high)
    assert advice.how == "DataLoader(..., persistent_workers=True)"


def test_a_stage_is_named_beside_the_edges_of_epochs():
    verdict = analyse(measure(job_of(AUGMENT_BOUND, seconds=10.0, batches=800.0))).verdict
    assert (verdict.state, verdict.bottleneck) == ("input_bound", "augment")
    assert "without training: its workers start." in verdict.sentence
    assert "the throughput within an epoch" in verdict.sentence


def seconds_of_epoch(batches, *, workers, worker_batch_s, step_s, prefetch=2):
    """An epoch played through, batch by batch: all workers begin together, and get a request for each batch taken."""
    done, ended = [], []
    for number in range(batches):
        asked_s = ended[number - prefetch * workers] - step_s if number >= prefetch * workers else 0.0
        free_s = done[number - workers] if number >= workers else 0.0
        done.append(max(asked_s, free_s) + worker_batch_s)
        ended.append(max(done[-1], ended[-1] if ended else 0.0) + step_s)
    return ended[-1]


@pytest.mark.parametrize("batches", [3, 4, 5, 6, 10, 40, 97, 100])
@pytest.mark.parametrize("step_s", [0.010, 0.038, 0.050])
def test_an_epoch_takes_as_long_as_one_that_is_played_through(batches, step_s):
    """Four workers at 40 ms a batch together. What they make in the first wait counts for their last turn only."""
    pace_s = max(step_s, 0.040)
    loader = Job(coupled={"device": step_s, "raw": pace_s}, drained={"raw": 0.040})
    job = job_of(loader, pipeline=WORKERS, seconds=0.160, batches=float(batches), anew=False)
    epoch = epoch_of(job, noise=0)
    assert epoch.seconds == pytest.approx(seconds_of_epoch(batches, workers=4, worker_batch_s=0.160, step_s=step_s))
    assert epoch.gap_s.high == pytest.approx(0.160)  # uneven workers end their last turn one after the other


def test_what_is_not_sure_of_the_beginning_widens_the_interval():
    sharp = analyse(measure(SHORT_EPOCHS)).verdict.epoch_efficiency
    vague = analyse(measure(job_of(DEVICE_BOUND, seconds=10.0, batches=667.0, low_s=1.0, high_s=12.0))).verdict
    assert vague.epoch_efficiency.estimate == sharp.estimate
    assert vague.epoch_efficiency.high > 0.9
    assert vague.epoch_efficiency.low < sharp.low
    assert vague.state == "undecided"
    none = analyse(measure(job_of(DEVICE_BOUND, seconds=10.0, batches=667.0, low_s=0.0, high_s=12.0))).verdict
    assert (none.state, none.judged_by) == ("device_bound", "efficiency")  # it is not clearly lower


def test_the_order_of_the_samples_counts_without_workers():
    job = job_of(
        DEVICE_BOUND, pipeline={**WORKERS, "num_workers": 0}, seconds=8.0, batches=667.0, order_s=8.0, anew=None
    )
    verdict = analyse(measure(job)).verdict
    assert verdict.state == "input_bound"
    assert "the order of the samples is drawn" in verdict.sentence


@pytest.mark.parametrize(
    "gap",
    [None, {}, {"seconds": 1.0, "low_s": 1.0, "batches": None}, {"seconds": -1.0, "batches": 5.0}, {"batches": 5.0},
     {"seconds": 1.0, "batches": 0.0}],
)  # fmt: skip
def test_without_a_length_or_a_gap_there_is_no_efficiency_over_an_epoch(gap):
    verdict = analyse(measure(replace(DEVICE_BOUND, pipeline=WORKERS, evidence={"epoch_gap": gap}))).verdict
    assert (verdict.epoch_efficiency, verdict.judged_by, verdict.state) == (None, "efficiency", "device_bound")


@pytest.mark.parametrize("rounds", [0, 1])
def test_the_beginning_of_an_epoch_is_told_where_the_loader_alone_has_one_block(rounds):
    """Guards: spawned workers start for 1.4 s of each epoch, and the report said 1,495 samples/s for a true 297."""
    spawned = job_of(AUGMENT_BOUND, seconds=1.384, batches=32.0)
    measurement = measure(spawned)

    def cut(experiment):
        drained = Rate.of(blocks_of(experiment.drained)[:rounds]) if experiment.drained else None
        return replace(experiment, drained=drained)

    few = replace(measurement, experiments=tuple(map(cut, measurement.experiments)))
    verdict = analyse(few).verdict
    assert verdict.judged_by == "epoch_efficiency"
    assert "without training: its workers start." in verdict.sentence
    whole = analyse(measurement).verdict.epoch_efficiency
    assert verdict.epoch_efficiency.estimate == pytest.approx(whole.estimate, rel=0.02)

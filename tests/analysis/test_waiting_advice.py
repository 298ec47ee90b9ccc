"""What is said of workers that start anew, of uneven samples and of storage fits the numbers of the run."""

from dataclasses import replace

import pytest

from bottleneck.analysis.analyse import analyse
from bottleneck.results.records import Interval
from tests.analysis.rule_case import WORKERS, result_of
from tests.analysis.rule_cases.waiting import _LOADING, _STALLING, cold
from tests.analysis.rule_cases.waiting import _reads as reads
from tests.analysis.simulated import AUGMENT_BOUND, DEVICE_BOUND, measure


def advice(case):
    return {item.id: item for item in result_of(case).advice}


def test_what_persistent_workers_save_is_what_starting_takes_beyond_a_first_batch():
    # Guards: a batch has to be made either way; with 4 workers at 12 ms it takes 48 ms.
    job = replace(
        DEVICE_BOUND,
        pipeline={**WORKERS, "persistent_workers": False, "dataset_length": 3_200},
        evidence={
            "first_batch_s": 9.0,
            "epoch_gap": {"seconds": 1.0, "persistent_workers": False, "started_anew": True},
        },
    )
    item = advice(job)["persistent-workers"]
    assert item.evidence["first_batch_s"] == 1.0
    assert item.evidence["first_batch_of_kept_workers_s"] == pytest.approx(0.048, rel=0.05)
    assert item.gain.estimate == pytest.approx(1 / (1 - 0.952 / 4.03), rel=0.02)
    slow = replace(job, drained={**job.drained, "raw": 0.26})
    assert "persistent-workers" not in advice(slow)
    assert "persistent-workers" not in advice(replace(job, drained={}))  # what a first batch takes is not known


def test_out_of_order_batches_are_advised_where_pytorch_and_the_loader_have_them():
    assert "in_order=False" in advice(_STALLING)["uneven-samples"].how
    for change in (
        {"environment": {"torch": "2.5.1"}},
        {"environment": {}},
        {"pipeline": {**WORKERS, "in_order": False}},
        {"pipeline": {**WORKERS, "in_order": True, "num_workers": 1}},
    ):
        item = advice(replace(_STALLING, **change))["uneven-samples"]
        assert "in_order" not in item.how
        assert "prefetch_factor=4" in item.how


def test_slow_samples_that_keep_the_device_busy_all_the_same_are_no_news():
    assert "uneven-samples" not in advice(replace(DEVICE_BOUND, pipeline=WORKERS, evidence=_STALLING.evidence))


def test_waits_of_the_main_process_are_no_idle_time_of_a_device_that_works_on_its_own():
    # Guards: with work queued on the device the main process waits, and nothing is lost.
    edge = {**DEVICE_BOUND.coupled, "raw": 0.0323}  # a loss of 7 %, with noise of 4 %: nobody knows
    for device, given in (("cpu", True), ("cuda:0", False)):
        environment = {**_STALLING.environment, "device": device}
        job = replace(_STALLING, coupled=edge, without=DEVICE_BOUND.without, environment=environment)
        result = analyse(measure(job, noise=0.04))
        assert result.verdict.state == "undecided"
        assert ("uneven-samples" in {item.id for item in result.advice}) == given
    on_device = replace(_STALLING, environment={**_STALLING.environment, "device": "cuda:0"})
    assert "20 % of the main process's time" in advice(on_device)["uneven-samples"].why
    assert "20 % of the job's time" in advice(_STALLING)["uneven-samples"].why


def test_storage_is_worth_a_gain_only_where_every_epoch_reads_from_it():
    # A dataset of 110 GB.
    each = advice(cold(0.090, memory_bytes=64e9))["cold-storage"]
    first = advice(cold(0.090, memory_bytes=512e9))["cold-storage"]
    assert each.gain_basis == "measured"
    assert each.gain.estimate == pytest.approx(3.0, rel=0.03)
    assert "every epoch" in each.why
    assert first.gain is None
    assert "first epoch only" in first.why


def test_storage_is_not_part_of_the_job_that_the_verdict_is_about():
    result = result_of(cold(0.090))
    assert (result.verdict.state, result.verdict.bottleneck) == ("device_bound", "compute")
    storage = result.stages[-1]
    assert storage.name == "storage"
    assert storage.finding == "real"
    assert storage.exposed_s_per_batch.estimate == pytest.approx(0.060, rel=0.03)
    assert storage.exposed_share.estimate == pytest.approx(2 / 3, rel=0.03)
    assert isinstance(storage.gain_if_free, Interval)
    assert storage.gain_if_free.estimate == pytest.approx(3.0, rel=0.03)


def test_storage_is_no_bottleneck_also_where_it_would_gain_the_most():
    found = measure(replace(AUGMENT_BOUND, pipeline=WORKERS))
    slow = cold(0.300)
    result = result_of(
        replace(
            found,
            experiments=(*found.experiments, slow.experiments[-1]),
            stages=(*found.stages, slow.stages[-1]),
        )
    )
    assert result.stages[-1].gain_if_free.low > 5
    assert result.verdict.bottleneck == "augment"
    assert result.verdict.contributors == ()


def test_raw_that_finds_in_memory_what_does_not_fit_there_is_doubted():
    def warned(memory_bytes, **evidence):
        found = {**reads("page cache"), **evidence}
        job = replace(_LOADING, environment={"memory_bytes": memory_bytes}, evidence=found)
        return "warm-reads" in {warning.id for warning in result_of(job).warnings}

    assert warned(64e9)
    assert not warned(512e9)
    assert not warned(64e9, cold={"verified": True})

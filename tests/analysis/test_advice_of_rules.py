"""Single rules of advice: their wording, and the cases that they leave alone."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bottleneck.analysis.analyse import analyse
from bottleneck.analysis.edits.edits import changes_for
from bottleneck.analysis.ranks import workers_that_fit
from bottleneck.results.evidence import Contention, RanksTogether
from bottleneck.results.records import Interval
from bottleneck.results.warnings.job import threads_share_cores
from tests.analysis.rule_case import WORKERS, advice_of, held_by, result_of
from tests.analysis.rule_cases.computing import FLOAT32, ITEM, WAITING, threads, traced
from tests.analysis.rule_cases.loading import _DECODES
from tests.analysis.rule_cases.resources import _FULL, _GIB, of, usage
from tests.analysis.rule_cases.waiting import _LOADING, _STALLING, cold
from tests.analysis.rule_cases.waiting import _reads as reads
from tests.analysis.simulated import AUGMENT_BOUND, DEVICE_BOUND, measure
from tests.support.rank_results import make_rank

# --- computing ------------------------------------------------------------------------------------------------


def test_the_gain_follows_from_the_share_of_the_step():
    item = advice_of(traced(model=FLOAT32))["mixed-precision"]
    # 20 of 30 ms are products, of which two thirds go at most.
    assert item.gain.estimate == pytest.approx(30.3 / (30.3 - 20 * 2 / 3), rel=0.03)
    assert item.gain_basis == "estimated"
    assert "estimate" in item.why
    assert "66 %" in item.why


def test_no_gain_is_more_than_the_loader_supplies():
    slow = replace(DEVICE_BOUND, drained={**DEVICE_BOUND.drained, "raw": 0.027})
    item = advice_of(traced(model=FLOAT32, job=slow))["mixed-precision"]
    assert item.gain.estimate == pytest.approx(30.3 / 27, rel=0.03)


def test_a_gain_that_nobody_knows_is_not_claimed():
    item = advice_of(traced({**WAITING, "synchronisations": [ITEM]}))["step-synchronises"]
    assert item.gain is None
    assert "2.0 times (train.py:42)" in item.why


def test_threads_without_a_core_come_first_and_can_be_tried():
    # Guards: the step of pytorch-forecasting's example, which takes five times as long with 10 threads on 2 cores.
    result = result_of(replace(threads(10), pipeline={**WORKERS, "num_workers": 0}))
    first = analyse(result).advice[0]
    assert (first.id, first.gain, first.how) == ("step-threads", None, "torch.set_num_threads(2)")
    assert "with 10 threads on 2 cores:" in first.why
    assert list(changes_for(result, first)) == ["threads"]


def test_threads_without_a_core_come_after_what_limits_an_input_bound_job():
    job = threads(10)
    decodes = replace(_DECODES, environment=job.environment, evidence={**_DECODES.evidence, **job.evidence})
    ids = [item.id for item in result_of(decodes).advice]
    assert ids.index("step-threads") > ids.index("image-decoding")


def test_beside_workers_advice_and_warning_name_the_same_number_of_threads():
    item = advice_of(threads(10))["step-threads"]
    assert "with 10 threads on 2 cores beside 4 workers" in item.why
    assert item.how == "torch.set_num_threads(1)"
    assert item.how in threads_share_cores(10, 4, 2.0).message


def test_on_the_cpu_the_proportions_of_the_trace_count_not_its_times():
    trace = {"device_busy_share": None, "device_busy_s_per_step": None, "seconds_per_step": 0.060,
             "products_s_per_step": 0.020}  # fmt: skip
    model = {**FLOAT32, "cpu_bfloat16": True, "device_capability": None}
    item = advice_of(traced(trace, model, device="cpu"))["mixed-precision"]
    assert item.evidence["products_s_per_step"] == pytest.approx(0.010, rel=0.03)  # a third of 30 ms


# --- cores, memory and the device -----------------------------------------------------------------------------


def given_for(job, evidence, pipeline=None, **environment):
    return advice_of(of(job, evidence, pipeline, **environment))


def test_workers_that_cannot_help_come_with_the_cores_that_would():
    item = given_for(AUGMENT_BOUND, usage(_FULL), device="cuda:0", cpu_cores_available=8)["workers-cannot-help"]
    assert item.evidence["cores_needed"] == 21  # 7.7 cores now, and 2.63 times the throughput
    assert item.why.endswith("This job needs 21 cores per GPU to keep its device busy; there are 8 per GPU.")
    assert "to the device" in item.how
    assert item.gain is None  # all input free is no gain of any edit
    on_cpu = given_for(AUGMENT_BOUND, usage(_FULL), device="cpu")["workers-cannot-help"]
    assert "to the device" not in on_cpu.how


def test_others_who_take_the_cores_are_to_be_stopped_first():
    crowded = {**_FULL, "cores_workers": 3.0, "cores_other": 1.65}
    item = given_for(AUGMENT_BOUND, usage({**crowded, "cores_other": 2.2}))["workers-cannot-help"]
    assert item.title.startswith("Free the cores")
    assert item.evidence["cores_other"] == 2.2
    assert item.gain.high == pytest.approx(5.5 / 3.3)
    seen = given_for(AUGMENT_BOUND, {**usage({**crowded, "cores_other": 2.2}), "core_wait_per_cpu_s": 0.2})
    assert seen["workers-cannot-help"].gain.high == pytest.approx(1.2)  # the rest of the time it did not want a core
    assert given_for(AUGMENT_BOUND, usage(crowded))["workers-cannot-help"].title.startswith("The CPU is saturated")


def test_a_quota_that_stops_the_job_is_the_same_as_full_cores():
    stopped = usage({"throttled_share": 0.5}, quota=4, usable=4)
    given = given_for(AUGMENT_BOUND, stopped, {"num_workers": 6}, cpu_cores_available=4)
    assert {"workers-cannot-help", "too-many-workers"} <= set(given)
    assert given["too-many-workers"].evidence["throttled_share"] == 0.5
    assert given["too-many-workers"].how.endswith("--set num_workers=4")


def test_more_workers_are_not_advised_where_no_core_is_left():
    many = {"cpu_cores_available": 64}
    assert "more-workers" in given_for(AUGMENT_BOUND, usage(), **many)
    assert "more-workers" not in given_for(AUGMENT_BOUND, usage(_FULL), **many)


def test_ranks_of_a_host_share_the_cores_that_more_workers_would_take():
    # Guards: each of eight ranks was advised to take all cores of their host; and as many as fit with no core for its
    # main process, which `rank-contention` took back.
    job = measure(replace(AUGMENT_BOUND, pipeline=WORKERS, environment={"cpu_cores_available": 64}))
    ranks = tuple(make_rank(number, cores=64, cores_of_host=64) for number in range(8))
    alone, shared, crowded = (
        advice_of(replace(job, ranks=of))["more-workers"]
        for of in ((), ranks, tuple(replace(rank, cores_of_host=48) for rank in ranks))
    )
    assert alone.evidence["proposed"] == {"num_workers": 12}
    assert shared.evidence["proposed"] == {"num_workers": workers_that_fit(ranks)} == {"num_workers": 7}
    assert crowded.evidence["proposed"] == {"num_workers": 5}
    assert "8 ranks share the cores" in crowded.why


@pytest.mark.parametrize(("low", "advised"), [(1.1, True), (2.8, False)])
def test_more_workers_are_no_remedy_for_what_ranks_take_from_each_other(low, advised):
    # Guards: ranks whose loaders read one at a time were advised to start more workers.
    job = measure(replace(AUGMENT_BOUND, pipeline=WORKERS, environment={"cpu_cores_available": 64}))
    contention = Contention(ratio=Interval(3.0, low, 3.2))
    told = replace(job, evidence=replace(job.evidence, ranks=RanksTogether(world=4, contention=contention)))
    assert ("more-workers" in advice_of(told)) is advised


def test_what_other_ranks_keep_busy_is_no_processes_of_others():
    crowded = {**_FULL, "cores_workers": 3.0, "cores_other": 2.2}
    found = measure(of(AUGMENT_BOUND, usage(crowded)))
    ranks = replace(found.evidence.ranks, world=2, other_ranks_cores=2.0)
    told = replace(found, evidence=replace(found.evidence, ranks=ranks), ranks=(make_rank(0), make_rank(1)))
    item = advice_of(told)["workers-cannot-help"]
    assert item.title.startswith("The CPU is saturated")
    assert "a rank uses" in item.why


def test_memory_says_how_many_workers_there_is_room_for():
    # Half of it are caches, which are there for the diagnosis only.
    evidence = usage(workers={"private_bytes": 8 * _GIB, "cache_bytes": 4 * _GIB})
    item = given_for(AUGMENT_BOUND, evidence, cpu_cores_available=64, memory_available_bytes=10 * _GIB)["more-workers"]
    assert item.how.endswith("--set num_workers=8")  # 12 would be needed; 80 % of 10 GiB hold 8
    assert "Memory sets the limit" in item.why
    assert item.evidence["worker_private_bytes"] == _GIB


def test_workers_that_are_each_bound_to_a_core_of_their_own_are_left_alone():
    bound = {"affinity_cores": 1, "main_affinity_cores": 8}
    assert "worker-affinity" not in given_for(AUGMENT_BOUND, usage(workers={**bound, "affinity_cores_together": 4}))
    item = given_for(AUGMENT_BOUND, usage(workers={**bound, "affinity_cores_together": 2}))["worker-affinity"]
    assert item.gain.high == pytest.approx(2.0)
    assert "worker-affinity" not in given_for(DEVICE_BOUND, usage(workers={**bound, "affinity_cores_together": 1}))


# --- workers that start again, uneven samples and storage -----------------------------------------------------


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
    item = advice_of(job)["persistent-workers"]
    assert item.evidence["first_batch_s"] == 1.0
    assert item.evidence["first_batch_of_kept_workers_s"] == pytest.approx(0.048, rel=0.05)
    assert item.gain.estimate == pytest.approx(1 / (1 - 0.952 / 4.03), rel=0.02)
    slow = replace(job, drained={**job.drained, "raw": 0.26})
    assert "persistent-workers" not in advice_of(slow)
    assert "persistent-workers" not in advice_of(replace(job, drained={}))  # what a first batch takes is not known


def test_out_of_order_batches_are_advised_where_pytorch_and_the_loader_have_them():
    assert "in_order=False" in advice_of(_STALLING)["uneven-samples"].how
    for change in (
        {"environment": {"torch": "2.5.1"}},
        {"environment": {}},
        {"pipeline": {**WORKERS, "in_order": False}},
        {"pipeline": {**WORKERS, "in_order": True, "num_workers": 1}},
    ):
        item = advice_of(replace(_STALLING, **change))["uneven-samples"]
        assert "in_order" not in item.how
        assert "prefetch_factor=4" in item.how


def test_waits_of_the_main_process_are_no_idle_time_of_a_device_that_works_on_its_own():
    # Guards: with work queued on the device the main process waits, and nothing is lost.
    edge = {**DEVICE_BOUND.coupled, "raw": 0.0323}  # a loss of 7 %, with noise of 4 %: undecided
    for device, given in (("cpu", True), ("cuda:0", False)):
        environment = {**_STALLING.environment, "device": device}
        job = replace(_STALLING, coupled=edge, without=DEVICE_BOUND.without, environment=environment)
        result = analyse(measure(job, noise=0.04))
        assert result.verdict.state == "undecided"
        assert ("uneven-samples" in {item.id for item in result.advice}) == given
    on_device = replace(_STALLING, environment={**_STALLING.environment, "device": "cuda:0"})
    assert "20 % of the main process's time" in advice_of(on_device)["uneven-samples"].why
    assert "20 % of the job's time" in advice_of(_STALLING)["uneven-samples"].why


@pytest.mark.parametrize(
    ("source", "calls", "said"),
    [
        ("read", "PIL.Image.open", "image.draft("),
        ("image", None, "cv2.IMREAD_REDUCED_COLOR_4)"),
        ("image", "torchvision.io.image.decode_jpeg", "side of 258"),
    ],
)
def test_images_are_decoded_small_by_what_decodes_them(source, calls, said):
    photos = {**_DECODES.evidence["loader"], "decoded_pixels_per_sample": 60 * 224 * 224.0}
    line = {"stage": "load", "path": "a.py", "line": 3, "share": 0.9, "library": False, "calls": calls}
    found = {"loader": photos, "lines": [line], "amplification": [{"source": source, "stage": "load"}]}
    result = result_of(replace(_DECODES, evidence=found))
    (item,) = (item for item in result.advice if item.id == "image-decoding")
    assert said in item.how
    assert sum(word in item.how for word in ("cv2", "draft")) == (said != "side of 258")
    assert ("decode_small" in changes_for(result, item)) == ("draft" in said)


def test_a_line_that_collects_is_to_do_so_less_often():
    line = {"stage": "load", "path": "a.py", "line": 3, "code": "gc.collect()", "share": 0.9, "library": False}
    result = result_of(held_by("load", evidence={"collections": {"share": 0.4}, "lines": [line]}))
    (item,) = (item for item in result.advice if item.id == "garbage-collection")
    assert item.how.startswith("if step % 1000 == 0")
    assert not list(changes_for(result, item))  # as many collections would be asked for


def test_storage_is_worth_a_gain_only_where_every_epoch_reads_from_it():
    # A dataset of 110 GB.
    each = advice_of(cold(0.090, memory_bytes=64e9))["cold-storage"]
    first = advice_of(cold(0.090, memory_bytes=512e9))["cold-storage"]
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


def test_raw_that_finds_in_memory_what_does_not_fit_there_is_doubted():
    def warned(memory_bytes, **evidence):
        found = {**reads("page cache"), **evidence}
        job = replace(_LOADING, environment={"memory_bytes": memory_bytes}, evidence=found)
        return "warm-reads" in {warning.id for warning in result_of(job).warnings}

    assert warned(64e9)
    assert not warned(512e9)
    assert not warned(64e9, cold={"verified": True})

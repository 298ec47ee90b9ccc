"""Where advice on cores, memory and the device draws its lines; that each rule fires is in test_every_rule.py."""

from dataclasses import replace

import pytest

from bottleneck.analysis.ranks import workers_that_fit
from bottleneck.results.evidence import Contention, RanksTogether
from bottleneck.results.records import Interval
from tests.analysis.rule_case import WORKERS, result_of
from tests.analysis.rule_cases.resources import _EPOCH, _FULL, _GIB, _MEMORY, of, usage
from tests.analysis.simulated import AUGMENT_BOUND, DEVICE_BOUND, measure
from tests.support.rank_results import make_rank

COPY_BOUND = replace(
    AUGMENT_BOUND,
    coupled={**dict.fromkeys(AUGMENT_BOUND.coupled, 0.0247), "device": 0.0094},
    without={**dict.fromkeys(AUGMENT_BOUND.without, 0.0247), "copy": 0.0095},
)


def advice(job, evidence, pipeline=None, **environment):
    return {a.id: a for a in result_of(of(job, evidence, pipeline, **environment)).advice}


def test_workers_that_cannot_help_come_with_the_cores_that_would():
    item = advice(AUGMENT_BOUND, usage(_FULL), device="cuda:0", cpu_cores_available=8)["workers-cannot-help"]
    assert item.evidence["cores_needed"] == 21  # 7.7 cores now, and 2.63 times the throughput
    assert "about 21" in item.why
    assert "images.to(device)" in item.how
    assert item.gain is None  # all input free is no gain of any edit
    assert "batch_size=32" in item.how


def test_on_the_cpu_nothing_is_moved_to_the_device():
    item = advice(AUGMENT_BOUND, usage(_FULL), device="cpu")["workers-cannot-help"]
    assert "images.to(device)" not in item.how


def test_others_who_take_the_cores_are_to_be_stopped_first():
    crowded = {**_FULL, "cores_workers": 3.0, "cores_other": 1.65}
    item = advice(AUGMENT_BOUND, usage({**crowded, "cores_other": 2.2}))["workers-cannot-help"]
    assert item.title.startswith("Free the cores")
    assert item.evidence["cores_other"] == 2.2
    assert item.gain.high == pytest.approx(5.5 / 3.3)
    seen = advice(AUGMENT_BOUND, {**usage({**crowded, "cores_other": 2.2}), "core_wait_per_cpu_s": 0.2})
    assert seen["workers-cannot-help"].gain.high == pytest.approx(1.2)  # the rest of the time it did not want a core
    assert advice(AUGMENT_BOUND, usage(crowded))["workers-cannot-help"].title.startswith("The CPU is saturated")


def test_a_job_that_mostly_sleeps_gets_little_from_the_cores_of_others():
    crowded = {**_FULL, "cores_main": 0.01, "cores_workers": 0.04, "cores_busy": 8.0, "cores_other": 7.95}

    def given(core_wait):
        return advice(AUGMENT_BOUND, {**usage(crowded), "core_wait_per_cpu_s": core_wait})

    assert given(4.0)["workers-cannot-help"].gain.high == pytest.approx(1.25)  # 0.2 s of each second
    assert "workers-cannot-help" not in given(0.5)


@pytest.mark.parametrize("job", [DEVICE_BOUND, COPY_BOUND])
def test_full_cores_that_hold_nobody_up_are_no_matter(job):
    assert "workers-cannot-help" not in advice(job, usage(_FULL))


def test_a_quota_that_stops_the_job_is_the_same_as_full_cores():
    stopped = usage({"throttled_share": 0.5}, quota=4, usable=4)
    given = advice(AUGMENT_BOUND, stopped, {"num_workers": 6}, cpu_cores_available=4)
    assert {"workers-cannot-help", "too-many-workers"} <= set(given)
    assert given["too-many-workers"].evidence["throttled_share"] == 0.5
    assert given["too-many-workers"].how.endswith("--set num_workers=4")


def test_more_workers_are_not_advised_where_no_core_is_left():
    many = {"cpu_cores_available": 64}
    assert "more-workers" in advice(AUGMENT_BOUND, usage(), **many)
    assert "more-workers" not in advice(AUGMENT_BOUND, usage(_FULL), **many)


def test_ranks_of_a_host_share_the_cores_that_more_workers_would_take():
    # Guards: each of eight ranks was advised to take all cores of their host; and as many as fit with no core for its
    # main process, which `rank-contention` took back.
    job = measure(replace(AUGMENT_BOUND, pipeline=WORKERS, environment={"cpu_cores_available": 64}))
    ranks = tuple(make_rank(number, cores=64, cores_of_host=64) for number in range(8))
    alone, shared, crowded = (
        {a.id: a for a in result_of(replace(job, ranks=of)).advice}["more-workers"]
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
    assert ("more-workers" in {a.id for a in result_of(told).advice}) is advised


def test_what_other_ranks_keep_busy_is_no_processes_of_others():
    crowded = {**_FULL, "cores_workers": 3.0, "cores_other": 2.2}
    found = measure(of(AUGMENT_BOUND, usage(crowded)))
    ranks = replace(found.evidence.ranks, world=2, other_ranks_cores=2.0)
    told = replace(found, evidence=replace(found.evidence, ranks=ranks), ranks=(make_rank(0), make_rank(1)))
    item = {a.id: a for a in result_of(told).advice}["workers-cannot-help"]
    assert item.title.startswith("The CPU is saturated")
    assert "a rank uses" in item.why


def test_memory_says_how_many_workers_there_is_room_for():
    # Half of it are caches, which are there for the diagnosis only.
    evidence = usage(workers={"private_bytes": 8 * _GIB, "cache_bytes": 4 * _GIB})
    item = advice(AUGMENT_BOUND, evidence, cpu_cores_available=64, memory_available_bytes=10 * _GIB)["more-workers"]
    assert item.how.endswith("--set num_workers=8")  # 12 would be needed; 80 % of 10 GiB hold 8
    assert "Memory sets the limit" in item.why
    assert item.evidence["worker_private_bytes"] == _GIB


def test_shared_memory_says_how_many_workers_there_is_room_for():
    evidence = {**usage(shared_memory={"size_bytes": 1e9, "peak_used_bytes": 0}), "payload": {"bytes": 60e6}}
    item = advice(AUGMENT_BOUND, evidence, cpu_cores_available=64)["more-workers"]
    assert item.how.endswith("--set num_workers=6")  # two batches each
    assert "/dev/shm" in item.why


def test_many_workers_that_do_not_get_into_each_others_way_are_left_alone():
    assert "too-many-workers" not in advice(AUGMENT_BOUND, usage(_FULL), {"num_workers": 12})


def test_many_workers_that_wait_for_something_else_than_cores_are_left_alone():
    # Guards: of a slow disk, more workers than cores read more at once.
    waiting = {**usage(), "core_wait_per_cpu_s": 0.9}
    assert "too-many-workers" not in advice(AUGMENT_BOUND, waiting, {"num_workers": 12})


def test_workers_that_are_each_bound_to_a_core_of_their_own_are_left_alone():
    bound = {"affinity_cores": 1, "main_affinity_cores": 8}
    assert "worker-affinity" not in advice(AUGMENT_BOUND, usage(workers={**bound, "affinity_cores_together": 4}))
    item = advice(AUGMENT_BOUND, usage(workers={**bound, "affinity_cores_together": 2}))["worker-affinity"]
    assert item.gain.high == pytest.approx(2.0)
    assert "worker-affinity" not in advice(DEVICE_BOUND, usage(workers={**bound, "affinity_cores_together": 1}))


def test_memory_that_may_only_seem_to_grow_is_left_alone():
    noisy = {**_MEMORY, "private_growth_error_bytes_per_s": 30e6}
    assert "memory-growth" not in advice(AUGMENT_BOUND, usage(workers=noisy), _EPOCH, memory_available_bytes=50 * _GIB)


def test_batches_that_would_not_fit_into_shared_memory():
    evidence = {**usage(shared_memory={"size_bytes": 64e6, "peak_used_bytes": 0}), "payload": {"bytes": 10e6}}
    item = advice(AUGMENT_BOUND, evidence)["shared-memory-full"]
    assert item.evidence["batches_in_flight_bytes"] == 80e6
    assert "shared-memory-full" not in advice(AUGMENT_BOUND, evidence, {"num_workers": 3})


def test_a_device_that_waits_for_its_input_may_run_slowly_and_be_shared():
    slow = {"gpu": {"sm_clock_hz": 1.2e9, "max_sm_clock_hz": 1.98e9, "throttled": ["heat"]}}
    assert not {"gpu-throttled", "gpu-shared"} & set(advice(AUGMENT_BOUND, usage(slow, slow, gpu_other_processes=3)))


def test_clocks_that_are_low_for_want_of_work_are_no_throttling():
    idle = {"gpu": {"sm_clock_hz": 0.3e9, "max_sm_clock_hz": 1.98e9, "throttled": []}}
    assert "gpu-throttled" not in advice(DEVICE_BOUND, usage(device=idle))

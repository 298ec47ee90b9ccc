"""Saturated resources are named with their numbers; without any, the job works too little in parallel."""

import pytest

from bottleneck.analysis.advice.saturation import find_saturation
from tests.support.results_factory import evidence_of

QUIET = {
    "name": "raw", "mode": "coupled", "cores_busy": 3.0, "cores_main": 0.2, "cores_workers": 2.7, "cores_other": 0.1,
    "throttled_share": None, "disk_busy_share": 0.1, "disk_requests_in_flight": 0.2, "disk_rotational": False,
}  # fmt: skip


def find(state="input_bound", quota=None, **raw):
    rows = [{**QUIET, "mode": "drained", "cores_busy": 8.0}, {**QUIET, **raw}]
    cores = {"usable": quota or 8, "quota": quota, "allowed": 8}
    return find_saturation(evidence_of({"utilisation": {"cores": cores, "experiments": rows}}), state)


def test_cores_that_are_all_busy():
    found = find(cores_busy=7.6, cores_workers=7.1)
    assert found.resources == ("cores",)
    assert found.lacks_cores
    assert found.sentence == (
        "Saturated while the job runs: the cores (7.60 of 8 cores busy: workers 7.10, main process 0.20, others 0.10)."
    )


def test_where_nothing_is_used_up_too_little_runs_in_parallel():
    found = find()
    assert found.resources == ()
    assert not found.lacks_cores
    assert found.sentence.startswith("No resource is saturated while the job runs: 3 of 8 cores busy")
    assert found.sentence.endswith("The loader lacks parallelism.")


@pytest.mark.parametrize(("others", "resources"), [(0.1, ()), (4.4, ("cores",))])
def test_others_of_the_whole_diagnosis_count_where_blocks_are_too_short_to_see_them(others, resources):
    row = {**QUIET, "cores_busy": None, "cores_other": None}
    utilisation = {"cores": {"usable": 8, "quota": None, "allowed": 8}, "experiments": [row]}
    found = find_saturation(evidence_of({"utilisation": utilisation, "other_load_cores": others}), "input_bound")
    assert found.resources == resources
    assert f"others {others:.2f}" in found.sentence
    assert found.cores_other == others
    alone = find_saturation(evidence_of({"utilisation": utilisation}), "input_bound")
    assert "others" not in alone.sentence


def test_a_main_process_that_fills_its_core_is_named():
    assert "main process fills one core" in find(cores_main=0.97, cores_workers=0.3).sentence
    assert "main process fills" not in find(cores_main=3.0, cores_workers=0.3).sentence  # a train step on the CPU


def test_a_device_that_holds_the_job_is_used_up_whatever_its_counters_say():
    assert find("device_bound").sentence == "Saturated while the job runs: the device."
    assert find("device_bound", gpu={"busy_share": 0.97}).sentence.endswith("the device (busy 97 % of the time).")
    assert find("input_bound", gpu={"busy_share": 0.97}).resources == ()  # the ladder knows better
    assert find("undecided", gpu={"busy_share": 0.97}).resources == ("device",)
    assert find("undecided", gpu={"busy_share": 0.6}).resources == ()


def test_a_quota_that_stops_the_job():
    found = find(quota=4, throttled_share=0.63)
    assert found.resources == ("quota",)
    assert found.lacks_cores
    assert "stopped the job in 63 % of its periods" in found.sentence
    assert find(quota=4, throttled_share=0.02).resources == ()


@pytest.mark.parametrize(
    ("disk", "used_up"),
    [
        ({"disk_busy_share": 0.98, "disk_requests_in_flight": 7.9}, True),
        ({"disk_busy_share": 0.98, "disk_requests_in_flight": 1.0}, False),  # it could serve more at once
        ({"disk_busy_share": 0.98, "disk_requests_in_flight": 1.0, "disk_rotational": True}, True),
        ({"disk_busy_share": 0.5, "disk_requests_in_flight": 7.9}, False),
        ({"disk_busy_share": None}, False),
    ],
)
def test_a_disk_is_used_up_when_it_is_busy_and_could_not_serve_more_at_once(disk, used_up):
    assert ("disk" in find(**disk).resources) == used_up


def test_where_others_are_not_seen_the_cores_of_the_job_are_the_least_that_is_busy():
    unseen = {"cores_busy": None, "cores_other": None}
    assert find(**unseen, cores_workers=7.5).resources == ("cores",)
    assert find(**unseen).sentence.startswith(
        "No resource is saturated while the job runs: 2.90 of 8 cores busy: workers"
    )

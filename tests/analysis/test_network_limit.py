"""The limit of storage behind a network, by the requests of a job and of a trial with more workers."""

from dataclasses import replace

import pytest

from bottleneck.analysis.network import find_network_limit
from tests.analysis.rule_case import advice_of, held_by
from tests.analysis.rule_cases.networking import LATENCY, NARROW, RATIONED, network
from tests.analysis.rule_cases.waiting import _STALLING
from tests.support.results_factory import evidence_of


def limit(**seen):
    return find_network_limit(evidence_of({"network": network(**seen)}))


@pytest.mark.parametrize(("more", "name"), [(LATENCY, "latency"), (NARROW, "bandwidth"), (RATIONED, "requests")])
def test_a_trial_with_more_requests_at_once_tells_the_limits_apart(more, name):
    assert limit(more=more).name == name


def test_a_stream_that_more_workers_do_not_read_faster_is_limited_by_bandwidth():
    stream = {"requests": 0, "requests_per_s": 0.0, "first_byte_s": None, "transfer_s": None}
    assert limit(job=stream, more={**NARROW, **stream}).name == "bandwidth"


def test_without_a_trial_no_limit_is_named():
    assert limit(more=None) is None


def test_a_source_that_refuses_requests_needs_no_trial_and_a_client_may_wait_between_them():
    assert limit(more=None, share=0.05, job={"refused": 30}).name == "requests"


def test_a_client_that_computes_needs_no_trial():
    assert limit(more=None, computing_share=0.9).name == "client"


def test_waiting_for_a_core_is_not_waiting_for_the_network():
    evidence = {"network": network(more=None, computing_share=0.4), "core_wait_per_cpu_s": 1.0}
    assert find_network_limit(evidence_of(evidence)).name == "client"


def test_requests_that_take_little_of_the_time_limit_nothing():
    assert limit(more=LATENCY, share=0.2) is None


def test_workers_that_already_fill_the_cores_say_nothing_of_the_source():
    evidence = {"network": network(more=NARROW, computing_share=0.45), "utilisation": {"cores": {"usable": 2.0}}}
    assert find_network_limit(evidence_of(evidence)) is None


def test_a_source_that_is_soon_at_its_limit_gives_no_more_than_it_gave_in_the_trial():
    found = limit(more={**LATENCY, "samples_per_s": 120.0})  # three times as fast with four times as many
    assert found.scales
    soon = limit(more={**LATENCY, "samples_per_s": 60.0})
    assert not soon.scales
    assert soon.speedup_of(64) == pytest.approx(1.5)
    assert soon.workers_for(4.0) == 6


def test_a_distant_source_is_read_by_as_many_workers_as_the_step_needs():
    found = limit(more=LATENCY)
    assert found.workers_for(3.0) == 12
    assert found.speedup_of(12) == pytest.approx(3.0)
    assert found.speedup_of(32) == pytest.approx(8.0)


@pytest.mark.parametrize("more", [NARROW, RATIONED])
def test_no_more_workers_or_threads_are_advised_where_they_would_get_no_more(more):
    machine = {"cpu_cores_available": 32}
    given = advice_of(held_by("load", evidence={"network": network(more=more)}, environment=machine))
    plain = advice_of(held_by("load", evidence={}, environment=machine))
    assert "more-workers" in plain
    assert "more-workers" not in given
    assert not any("num_workers=" in advice.how or "ThreadPool" in advice.how for advice in given.values())


def test_no_longer_queue_is_advised_where_nothing_fills_it_faster():
    assert "uneven-samples" in advice_of(_STALLING)
    evidence = {**_STALLING.evidence, "network": network(more=NARROW)}
    assert "uneven-samples" not in advice_of(replace(_STALLING, evidence=evidence))


def test_the_promise_of_more_workers_is_no_more_than_the_trial_showed():
    machine = {"cpu_cores_available": 32}
    soon = {**LATENCY, "samples_per_s": 52.0}
    given = advice_of(held_by("load", slow_s=0.1, evidence={"network": network(more=soon)}, environment=machine))
    assert given["storage-latency"].gain.high <= 1.3 * 1.05
    assert given["more-workers"].gain.high <= 1.3 * 1.05

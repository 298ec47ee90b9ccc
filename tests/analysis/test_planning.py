"""The machine that a job needs: the model of workers, cores and queue, and the plan from a result."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bottleneck.analysis.plan.fit import fit, measured
from bottleneck.analysis.plan.model import Job, predict, supply
from bottleneck.analysis.plan.plan import Asked, amount, plan
from bottleneck.errors import UsageError
from bottleneck.results.records import Interval
from tests.support.results_factory import (
    USAGE,
    make_device_bound_result,
    make_interrupted_result,
    make_plannable_result,
    make_rate,
    make_result,
    make_verdict,
)


def job(**changes) -> Job:
    """2 ms of computing for a sample, 1 ms on the device."""
    fields = {"cpu_s": 2e-3, "wait_s": 0.0, "step_s": 1e-3, "step_cpu_s": 0.0, "hand_cpu_s": 0.0, "hand_s": 0.0}
    return Job(**{**fields, "batch": 16.0, "prefetch": 2.0, "cv": 0.0, **changes})


# --- the model ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "workers", "cores", "per_s"),
    [
        ({}, 1, 4.0, 500),
        ({}, 8, 4.0, 2000),
        ({}, 8, 1.5, 750),
        ({"cpu_s": 1e-9, "wait_s": 4e-3}, 8, 1.0, 2000),
        # Two workers and one core: both compute in 1/5 of the states by weight, one in 2/5 (M/M/1//2).
        ({"wait_s": 2e-3}, 2, 1.0, 400),
        ({"wait_s": 2e-3}, 2, 2.0, 500),
        ({"wait_s": 2e-3}, 2000, 3.0, 1500),
    ],
)
def test_workers_supply_what_their_waiting_and_the_cores_leave(changes, workers, cores, per_s):
    assert supply(job(**changes), workers, cores) == pytest.approx(per_s, rel=1e-3)


@settings(deadline=None)
@given(
    st.floats(1e-5, 1e-2), st.floats(0, 1e-2), st.floats(0, 5e-4), st.floats(0, 0.5),
    st.integers(1, 40), st.floats(0.5, 40),
)  # fmt: skip
def test_no_throughput_is_over_that_of_workers_cores_or_device_and_more_of_them_never_slow_it(
    cpu_s, wait_s, main_s, cv, workers, cores
):
    one = job(cpu_s=cpu_s, wait_s=wait_s, hand_cpu_s=main_s, cv=cv)
    rate = predict(one, workers, cores)
    limits = one.fed_per_s, workers / (cpu_s + wait_s), cores / (cpu_s + main_s)
    assert 0 < rate <= min(limits) * (1 + 1e-6)
    assert predict(one, workers, 2 * cores) >= rate * 0.999
    assert predict(one, workers, cores, limit=rate / 2) == pytest.approx(rate / 2)


def test_batches_are_received_next_to_the_workers_that_begin_the_next_ones():
    slow = job(cv=0.0, cpu_s=1e-3, hand_cpu_s=2e-4)
    few, many = predict(slow, 4, 1.5), predict(slow, 4, 16.0)
    assert many == pytest.approx(slow.fed_per_s)
    assert few < 0.95 * many


@pytest.mark.parametrize(
    ("cv", "cpu_s", "least", "most"),
    [
        (0.0, 4e-3, 0.999, 1.0),
        (0.4, 1e-3, 0.98, 1.0),  # the loader is far faster than the device
        (0.4, 4e-3, 0.75, 0.90),  # as fast
        (0.4, 8e-3, 0.86, 0.95),  # half as fast: batches are taken in order, and one that is late holds others up
        (0.1, 4e-3, 0.98, 0.999),
    ],
)
def test_scatter_costs_the_most_where_loader_and_device_are_as_fast(cv, cpu_s, least, most):
    rate = predict(job(cv=cv, cpu_s=cpu_s), 4, 4.0)
    assert least < rate / min(1000, 4 / cpu_s) <= most


def test_a_faster_device_leaves_what_is_not_its_own_work():
    faster = job(step_cpu_s=5e-4, hand_cpu_s=1e-4, hand_s=2e-4).on(2.0)
    assert (faster.step_s, faster.step_cpu_s, faster.hand_cpu_s, faster.hand_s) == (5e-4, 2.5e-4, 1e-4, 2e-4)
    waiting = job(step_cpu_s=5e-4, device_share=0.5)
    assert (waiting.on(2.0).step_s, waiting.on(2.0).step_cpu_s, waiting.on(1e9).step_cpu_s) == (7.5e-4, 5e-4, 5e-4)


@pytest.mark.parametrize(
    ("traced_s", "counted", "device", "said"),
    [
        (None, None, "cuda", "in its whole step, what the main process does for it included, a sample"),
        (None, 0.75, "cuda", "in the 75 % of its step in which it computed, a sample"),
        (0.00752, 0.75, "cuda", "in the 80 % of its step in which it computed, a sample"),
        (None, 0.75, "cpu", "in its whole step"),
    ],
)
def test_only_what_the_device_was_seen_to_compute_is_faster(traced_s, counted, device, said):
    rows = [{**row, "gpu": {"busy_share": counted}} for row in USAGE["experiments"]]
    trace = {"device": {"device_busy_s_per_step": traced_s}}
    evidence = {"utilisation": {**USAGE, "experiments": rows}, "trace": trace}
    found = plan([make_plannable_result(evidence, environment={"device": device})], ["it"], Asked(device_speed=4))
    assert f"4 times as fast as the device that was measured {said}" in found.assumptions[0]
    assert "the CPU time that was measured on any number of cores" in found.assumptions[0]


# --- what a result says ---------------------------------------------------------------------------------------


def test_the_costs_of_a_sample_are_those_of_the_processes_in_the_job():
    (likely, cheap, dear), source = measured(make_plannable_result(), "it")
    assert likely.cpu_s == pytest.approx(1.7 * 0.02469 / 16)
    assert likely.main_cpu_s == pytest.approx(0.3 * 0.02469 / 16)
    assert likely.step_cpu_s == pytest.approx(0.5 * 0.0094 / 16)
    assert likely.fed_per_s == pytest.approx(16 / 0.00967)
    assert likely.wait_s == pytest.approx(2 * (0.021 - 1.02 * 0.0202 + 0.0019 - 1.02 * 0.0004) / 16)
    assert cheap.cpu_s < likely.cpu_s < 1.8 * 0.0243 / 16 < dear.cpu_s  # the loader alone is a second witness
    assert (source.num_workers, source.cores) == (2, 7.5)  # others took half a core
    assert source.samples_per_s == pytest.approx(648, rel=1e-3)


def test_a_step_on_the_cpu_does_not_go_on_while_a_batch_is_received():
    found, _ = measured(make_plannable_result(environment={"device": "cpu"}), "it")
    assert found[0].hand_s == found[0].hand_cpu_s > 0


def lacking(name, **without):
    rows = [row for row in USAGE["experiments"] if row["name"] != name]
    return make_plannable_result({"utilisation": {**USAGE, "experiments": rows}}, **without)


@pytest.mark.parametrize(
    ("result", "what"),
    [
        (make_interrupted_result(), "the CPU time of its processes"),
        (make_device_bound_result(), "the CPU time of its processes"),
        (make_plannable_result(experiments=()), "the throughput of the job"),
        (make_plannable_result(pipeline={"num_workers": 0}), "worker processes"),
        (lacking("device", environment={"device": "cpu"}), "its train step, which runs on the CPU"),
        (lacking("raw"), "the CPU time of its processes"),
        (replace(make_plannable_result(), verdict=replace(make_verdict(), straggler=3)), "one slows the others down"),
    ],
)
def test_a_result_without_what_is_needed_is_refused_in_a_sentence(result, what):
    with pytest.raises(UsageError, match=f"^it does not show .*{what}"):
        fit([result], ["it"])


def test_numbers_that_no_job_has_are_refused_and_thousands_of_workers_are_planned_at_once():
    with pytest.raises(UsageError, match="has numbers that no job can have"):
        fit([make_plannable_result(pipeline={"num_workers": 2, "prefetch_factor": 1e12})], ["it"])
    with pytest.raises(UsageError, match="has numbers that no job can have"):
        fit([make_plannable_result({"utilisation": {**USAGE, "cores": {"usable": 1e-308}}})], ["it"])
    assert predict(job(wait_s=1e6, cv=0.3), 10**8, 4.0) == pytest.approx(100, rel=0.01)


def at_workers(workers, cores_workers):
    """The same job with other workers, held by them."""
    rows = [{**row, "cores_workers": cores_workers} for row in USAGE["experiments"]]
    base = make_plannable_result({"utilisation": {**USAGE, "experiments": rows}})
    raw = replace(
        base.experiments[-1], coupled=make_rate(0.02469 * 2 / workers), drained=make_rate(0.0243 * 2 / workers)
    )
    pipeline = {**base.pipeline, "num_workers": workers}
    return replace(base, pipeline=pipeline, experiments=(*base.experiments[:-1], raw))


def test_several_results_of_one_job_are_fitted_together():
    one, other = at_workers(2, 1.7), at_workers(4, 3.8)
    both = fit([one, other], ["two", "four"])
    assert both.jobs[0].cpu_s == pytest.approx((1.7 / 648 + 3.8 / 1296) / 2, rel=1e-3)
    assert [source.label for source in both.sources] == ["two", "four"]
    assert both.misfit == max(abs(s.predicted_samples_per_s / s.samples_per_s - 1) for s in both.sources) > 0
    said = plan([one, other], ["two", "four"], Asked()).assumptions
    assert any(sentence.startswith("Fitted to 2 results of this job") for sentence in said)
    stranger = make_plannable_result(pipeline={**one.pipeline, "dataset": "Others"})
    with pytest.raises(UsageError, match="different jobs: dataset is"):
        fit([one, stranger], ["one", "other"])
    elsewhere = replace(one, environment={**one.environment, "device_name": "another device"})
    with pytest.raises(UsageError, match="different devices"):
        fit([one, elsewhere], ["one", "other"])


# --- the plan -------------------------------------------------------------------------------------------------

NEED = 16 / 0.00967 * (1.7 + 0.3) * 0.02469 / 16


@pytest.mark.parametrize(
    ("asked", "used_up", "share", "fed"),
    [
        (Asked(), "device", 0.97, 1),
        (Asked(gpus=8, cores=96), "device", 0.97, 18),
        (Asked(gpus=8, cores=20), "cores", 8 / 0.00967 * 0.0094 / 8 * 2.5 / NEED, 3),
        (Asked(gpus=8, cores=96, storage_bytes_per_s=0.5e9), "storage", 5000 / 8 * 0.0094 / 16, 3),
        (Asked(gpus=1, cores=8, device_speed=4), "cores", None, 0),
    ],
)
def test_what_is_used_up_first_and_how_many_gpus_a_machine_feeds(asked, used_up, share, fed):
    found = plan([make_plannable_result()], ["it"], asked)
    assert found.machine.used_up_first == used_up
    assert found.machine.gpus_fed.estimate == fed
    (row,) = (row for row in found.curve if row.cores == found.machine.cores / found.machine.gpus)
    assert found.machine.gpus * row.samples_per_s.estimate == pytest.approx(found.machine.samples_per_s.estimate)
    if share is not None:
        assert found.machine.efficiency.estimate == pytest.approx(share, rel=0.03)
    assert found.machine.efficiency.low <= found.machine.efficiency.estimate <= found.machine.efficiency.high <= 1


def test_the_sentence_says_what_is_needed_and_what_is_there():
    found = plan([make_plannable_result()], ["it"], Asked(gpus=2, cores=8))
    assert found.cores_per_gpu.estimate == pytest.approx(NEED)
    assert found.sentence.startswith("This job needs 5.1 (")
    assert "cores per GPU to keep its device busy; there are 4 per GPU. 2 GPUs with 8 cores get 2,5" in found.sentence
    assert "used up first: the cores. GPUs that such a machine keeps busy: 1." in found.sentence
    shares = [point.efficiency.estimate for point in found.curve]
    assert shares == sorted(shares)
    assert {4.0, 8.0} <= {point.cores for point in found.curve}
    assert (found.worker_bytes, found.shm_bytes_per_worker) == (200 << 20, 2 * 9633920)


def test_a_million_samples_cost_what_gpus_and_cores_do():
    found = plan([make_plannable_result()], ["it"], Asked(gpus=2, cores=24, gpu_hour_price=3, core_hour_price=0.05))
    rate = found.machine.samples_per_s.estimate
    assert found.machine.price_per_million == pytest.approx((2 * 3 + 24 * 0.05) / 3600 * 1e6 / rate)
    assert found.curve[0].price_per_million > found.curve[-1].price_per_million
    assert plan([make_plannable_result()], ["it"], Asked()).machine.price_per_million is None


@pytest.mark.parametrize(
    ("cores", "others", "said"),
    [
        (0.98, 0.0, "computes on the CPU: its 0.98 cores"),
        (0.3, 7.6, "computes on the CPU: its 0.3 cores"),  # others left it no more
        (0.3, 2.0, "leaves the CPU idle"),
        (0.02, 7.99, "leaves the CPU idle"),
    ],
)
def test_of_a_step_on_the_cpu_it_is_said_whether_it_takes_cores(cores, others, said):
    rows = [{**USAGE["experiments"][0], "cores_main": cores, "cores_other": others}, *USAGE["experiments"][1:]]
    result = make_plannable_result({"utilisation": {**USAGE, "experiments": rows}}, environment={"device": "cpu"})
    assert any(said in sentence for sentence in plan([result], ["it"], Asked()).assumptions)


@pytest.mark.parametrize(("cores", "said"), [(0.125, "0.12"), (0.5, "0.5"), (2, "2"), (6.66, "6.7"), (11.4, "11")])
def test_a_number_of_cores_has_the_digits_that_it_needs(cores, said):
    assert amount(cores) == said


def test_what_was_not_observed_is_missing_or_warned_of():
    found = plan([make_plannable_result({"reads": {}, "payload": {}})], ["it"], Asked(storage_bytes_per_s=1e9))
    assert (found.per_sample.read_bytes, found.per_sample.copied_bytes, found.shm_bytes_per_worker) == (
        None,
        None,
        None,
    )
    assert any("--storage limits nothing" in warning for warning in found.warnings)


def test_a_crowd_during_the_measurement_is_warned_of():
    rows = [{**row, "cores_other": 3.0} for row in USAGE["experiments"]]
    found = plan([make_plannable_result({"utilisation": {**USAGE, "experiments": rows}})], ["it"], Asked())
    assert any("kept 3 of 8 cores busy" in warning for warning in found.warnings)


def test_a_plan_that_misses_what_was_measured_says_so_and_is_the_wider():
    slow = make_plannable_result()
    slow = replace(slow, pipeline={**slow.pipeline, "num_workers": 8})
    found = plan([slow], ["it"], Asked())
    assert any("The plan is" in warning for warning in found.warnings)
    assert isinstance(found.cores_per_gpu, Interval)
    assert found.cores_per_gpu.high > 1.1 * found.cores_per_gpu.estimate
    assert make_result().evidence.utilisation.workers.count is None

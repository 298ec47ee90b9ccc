"""Advice about computing: its gains are bounded by the trace and by the loader, and hostile evidence breaks nothing."""

from dataclasses import replace

import pytest

from bottleneck.analysis.advice import device as compute
from tests.analysis.rule_case import result_of
from tests.analysis.rule_cases.computing import FLOAT32, ITEM, WAITING, traced
from tests.analysis.simulated import DEVICE_BOUND

OURS = {id for rule in compute.RULES for id in rule.ids}


def advice(job):
    return {item.id: item for item in result_of(job).advice}


def test_a_step_with_nothing_to_improve_is_told_to_stay_with_its_input():
    assert list(advice(traced())) == ["faster-step"]


def test_the_gain_follows_from_the_share_of_the_step():
    item = advice(traced(model=FLOAT32))["mixed-precision"]
    # 20 of 30 ms are products, of which a third is taken to go.
    assert item.gain.estimate == pytest.approx(30.3 / (30.3 - 20 / 3), rel=0.03)
    assert item.gain_basis == "estimated"
    assert "estimate" in item.why
    assert "66 %" in item.why


def test_no_gain_is_more_than_the_loader_supplies():
    slow = replace(DEVICE_BOUND, drained={**DEVICE_BOUND.drained, "raw": 0.027})
    item = advice(traced(model=FLOAT32, job=slow))["mixed-precision"]
    assert item.gain.estimate == pytest.approx(30.3 / 27, rel=0.03)


def test_a_larger_batch_gains_what_the_device_has_left_and_at_most_twice():
    model = {"peak_device_bytes": 8e9, "device_free_bytes": 60e9}
    third = {"device_busy_share": 0.6, "device_busy_s_per_step": 0.020}
    assert advice(traced(third, model))["larger-batch"].gain.estimate == pytest.approx(1.5, rel=0.04)
    assert advice(traced(WAITING, model))["larger-batch"].gain.estimate == pytest.approx(2.0, rel=0.04)


def test_the_older_devices_get_the_type_that_they_know():
    older = advice(traced(model={**FLOAT32, "device_capability": [7, 0]}))["mixed-precision"]
    assert "torch.float16" in older.how
    assert "GradScaler" in older.how
    assert "torch.bfloat16" in advice(traced(model=FLOAT32))["mixed-precision"].how


def test_a_gain_that_nobody_knows_is_not_claimed():
    item = advice(traced({**WAITING, "synchronisations": [ITEM]}))["step-synchronises"]
    assert item.gain is None
    assert "2.0 times (train.py:42)" in item.why


def test_on_the_cpu_the_proportions_of_the_trace_count_not_its_times():
    trace = {"device_busy_share": None, "device_busy_s_per_step": None, "seconds_per_step": 0.060,
             "products_s_per_step": 0.020}  # fmt: skip
    model = {**FLOAT32, "cpu_bfloat16": True, "device_capability": None}
    item = advice(traced(trace, model, device="cpu"))["mixed-precision"]
    assert item.evidence["products_s_per_step"] == pytest.approx(0.010, rel=0.03)  # a third of 30 ms

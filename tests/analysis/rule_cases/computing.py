"""The train step: what its trace and its model show, where the device limits the job at 30 ms a step."""

from dataclasses import replace

from tests.analysis.rule_case import WORKERS, RuleCase
from tests.analysis.simulated import DEVICE_BOUND

TRACE = {
    "steps": 5,
    "seconds_per_step": 0.033,
    "device_busy_share": 0.85,
    "device_busy_s_per_step": 0.028,
    "launches_per_step": 200.0,
    "products_s_per_step": 0.020,
    "top": [],
    "synchronisations": [],
}
MODEL = {"computed_dtypes": {"bfloat16": 300, "float32": 20}, "device_capability": [8, 0], "cpu_bfloat16": None}
BUSY = {"device_busy_share": 0.85, "device_busy_s_per_step": 0.028}
WAITING = {"device_busy_share": 0.3, "device_busy_s_per_step": 0.010}
"""The device computes for only a third of the step."""
ITEM = {"name": "train.py:42", "calls_per_step": 2.0}


def traced(trace=(), model=(), job=DEVICE_BOUND, device="cuda:0"):
    """A job with a trace and a model as above, but for these values."""
    evidence = {"trace": {"device": {**TRACE, **dict(trace)}}, "model": {**MODEL, **dict(model)}}
    return replace(job, pipeline=WORKERS, environment={"device": device}, evidence=evidence)


def pair(id, trace=(), model=(), healthy_trace=(), healthy_model=(), **more):
    """An entry whose healthy twin differs by some values of the trace or of the model."""
    return RuleCase(
        id,
        deserves=traced(trace, model, **more),
        healthy=traced({**dict(trace), **dict(healthy_trace)}, {**dict(model), **dict(healthy_model)}, **more),
        stage="compute",
    )


FLOAT32 = {"computed_dtypes": {"float32": 300}}
_ON_CPU = {"device_busy_share": None, "device_busy_s_per_step": None, "launches_per_step": None}
_CPU_MODEL = {**FLOAT32, "device_capability": None, "cpu_bfloat16": True}
_WAITS = {**WAITING, "synchronisations": [ITEM]}


def threads(number, **environment):
    """A job on two cores whose step computes with a number of threads."""
    here = {"device": "cpu", "torch_threads": number, **environment}
    cores = {"utilisation": {"cores": {"usable": 2.0}}}
    return replace(DEVICE_BOUND, pipeline=WORKERS, environment=here, evidence=cores)


CASES = (
    RuleCase("step-threads", deserves=threads(10), healthy=threads(2), stage="compute"),
    RuleCase("step-threads", deserves=threads(3), healthy=threads(10, device="cuda:0"), stage="compute"),
    pair("mixed-precision", model=FLOAT32, healthy_model={"computed_dtypes": {"bfloat16": 300}}),
    # Under autocast, an operator on float32 calls the same one on a smaller type.
    pair("mixed-precision", model=FLOAT32, healthy_model={"computed_dtypes": {"bfloat16": 150, "float32": 150}}),
    pair("mixed-precision", model=FLOAT32, healthy_model={"device_capability": [6, 1]}),
    pair("mixed-precision", model=FLOAT32, healthy_model={"computed_dtypes": None}),
    pair("mixed-precision", model=FLOAT32, healthy_trace={"products_s_per_step": 0.002}),
    # A device that waits for the host gains nothing by computing faster.
    pair("mixed-precision", model=FLOAT32, healthy_trace=WAITING),
    pair("mixed-precision", _ON_CPU, _CPU_MODEL, healthy_model={"cpu_bfloat16": False}, device="cpu"),
    pair("mixed-precision", _ON_CPU, _CPU_MODEL, healthy_model={"cpu_bfloat16": None}, device="cpu"),
    pair("step-synchronises", _WAITS, healthy_trace={"synchronisations": []}),
    pair("step-synchronises", _WAITS, healthy_trace={"synchronisations": [{**ITEM, "calls_per_step": 0.02}]}),
    # A device that computes all the time waits for nothing.
    pair("step-synchronises", _WAITS, healthy_trace=BUSY),
)

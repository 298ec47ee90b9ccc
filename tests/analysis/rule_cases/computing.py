"""The train step: what its trace and its model show, where the device holds the job at 30 ms a step."""

from dataclasses import replace

from tests.analysis.rule_case import WORKERS, RuleCase
from tests.analysis.simulated import DEVICE_BOUND

TRACE = {
    "steps": 5,
    "seconds_per_step": 0.033,
    "device_busy_share": 0.85,
    "device_busy_s_per_step": 0.028,
    "top": [],
    "synchronisations": [],
    "launches_per_step": 200.0,
    "mean_kernel_s": 0.00014,
    "operators_per_step": 300.0,
    "matrix_s_per_step": 0.010,
    "convolution_s_per_step": 0.010,
    "layout_s_per_step": 0.0,
    "optimizer": {"name": "AdamW", "host_s_per_step": 0.001, "device_s_per_step": 0.0005, "operators_per_step": 4.0,
                  "fused": True, "foreach": False},
    "clearing": {"name": "AdamW", "host_s_per_step": 0.0002, "device_s_per_step": 0.0, "operators_per_step": 0.0,
                 "fused": False, "foreach": False},
}  # fmt: skip
MODEL = {
    "parameters": 25_000_000,
    "dtypes": {"float32": 25_000_000},
    "compiled": True,
    "autocast": True,
    "computed_dtypes": {"bfloat16": 300},
    "optimizer": "AdamW",
    "optimizer_fused": True,
    "optimizer_foreach": False,
    "convolutions": 53,
    "channels_last": True,
    "fixed_shapes": True,
    "cudnn_benchmark": True,
    "matmul_precision": "high",
    "peak_device_bytes": 60e9,
    "device_bytes": 80e9,
    "device_free_bytes": 20e9,
    "device_capability": [8, 0],
    "cpu_bfloat16": None,
}
BUSY = {"device_busy_share": 0.85, "device_busy_s_per_step": 0.028}
WAITING = {"device_busy_share": 0.3, "device_busy_s_per_step": 0.010}
"""The device computes for a third of the step."""
ITEM = {"name": "aten::item (cudaStreamSynchronize)", "calls_per_step": 2.0, "seconds_per_step": 0.004,
        "idle_after_s_per_step": 0.0066}  # fmt: skip


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


_FLOAT32 = {"autocast": False, "computed_dtypes": {"float32": 300}}
_NOT_FUSED = {"optimizer_fused": False, "optimizer_foreach": True}
_SLOW_OPTIMIZER = {"optimizer": {**TRACE["optimizer"], "device_s_per_step": 0.006, "fused": False}}
_ZEROS = {**TRACE["clearing"], "device_s_per_step": 0.001, "operators_per_step": 160.0}
_MANY = {**WAITING, "launches_per_step": 2_000.0}
_ON_CPU = {"device_busy_share": None, "device_busy_s_per_step": None, "launches_per_step": None}
_CPU_MODEL = {**_FLOAT32, "device_capability": None, "cpu_bfloat16": True}

CASES = (
    pair("mixed-precision", model=_FLOAT32, healthy_model={"autocast": True, "computed_dtypes": {"bfloat16": 300}}),
    pair("mixed-precision", model=_FLOAT32, healthy_model={"device_capability": [6, 1]}),
    pair("mixed-precision", model=_FLOAT32, healthy_model={"computed_dtypes": None}),
    pair(
        "mixed-precision",
        model=_FLOAT32,
        healthy_trace={"matrix_s_per_step": 0.001, "convolution_s_per_step": 0.001},
    ),
    # A device that waits for the host gains nothing by computing faster.
    pair("mixed-precision", model=_FLOAT32, healthy_trace=WAITING),
    pair("mixed-precision", _ON_CPU, _CPU_MODEL, healthy_model={"cpu_bfloat16": False}, device="cpu"),
    pair("mixed-precision", _ON_CPU, _CPU_MODEL, healthy_model={"cpu_bfloat16": None}, device="cpu"),
    pair(
        "float32-matmul-precision",
        model={**_FLOAT32, "matmul_precision": "highest"},
        healthy_model={"matmul_precision": "high"},
    ),
    pair(
        "float32-matmul-precision",
        model={**_FLOAT32, "matmul_precision": "highest"},
        healthy_model={"device_capability": [7, 5]},
    ),
    pair(
        "float32-matmul-precision",
        model={**_FLOAT32, "matmul_precision": "highest"},
        healthy_model={"computed_dtypes": {"bfloat16": 300}},
    ),
    pair("channels-last", model={"channels_last": False}, healthy_model={"channels_last": True}),
    pair("channels-last", model={"channels_last": False}, healthy_model={"channels_last": None}),
    pair("channels-last", model={"channels_last": False}, healthy_model={"computed_dtypes": {"float32": 300}}),
    pair("channels-last", model={"channels_last": False}, healthy_trace={"convolution_s_per_step": 0.001}),
    pair("cudnn-benchmark", model={"cudnn_benchmark": False}, healthy_model={"cudnn_benchmark": True}),
    pair("cudnn-benchmark", model={"cudnn_benchmark": False}, healthy_model={"fixed_shapes": False}),
    pair("cudnn-benchmark", model={"cudnn_benchmark": False}, healthy_trace={"convolution_s_per_step": 0.0}),
    pair("fused-optimizer", _SLOW_OPTIMIZER, _NOT_FUSED, healthy_model={"optimizer_fused": True}),
    pair("fused-optimizer", _SLOW_OPTIMIZER, _NOT_FUSED, healthy_model={"optimizer": "Lion"}),
    pair("fused-optimizer", _SLOW_OPTIMIZER, _NOT_FUSED, healthy_trace={"optimizer": TRACE["optimizer"]}),
    # Without events of the device the host's times say nothing: it only asks for work.
    pair("fused-optimizer", _SLOW_OPTIMIZER, _NOT_FUSED, healthy_trace=_ON_CPU),
    pair("set-to-none", {"clearing": _ZEROS}, healthy_trace={"clearing": TRACE["clearing"]}),
    pair("set-to-none", {"clearing": _ZEROS}, healthy_trace={"clearing": {**_ZEROS, "operators_per_step": 0.0}}),
    pair("compile", _MANY, {"compiled": False}, healthy_model={"compiled": True}),
    pair("compile", _MANY, {"compiled": False}, healthy_trace={"launches_per_step": 200.0}),
    pair(
        "compile",
        {**_ON_CPU, "operators_per_step": 4_000.0},
        {"compiled": False},
        healthy_trace={"operators_per_step": 300.0},
        device="cpu",
    ),
    pair("cuda-graphs", _MANY, healthy_trace=BUSY),
    pair("cuda-graphs", _MANY, healthy_trace={"launches_per_step": 200.0}),
    pair("cuda-graphs", _MANY, healthy_trace={"synchronisations": [ITEM]}),
    pair("cuda-graphs", _MANY, healthy_model={"fixed_shapes": False}),
    pair("larger-batch", WAITING, {"peak_device_bytes": 8e9, "device_free_bytes": 60e9}, BUSY),
    pair(
        "larger-batch",
        WAITING,
        {"peak_device_bytes": 8e9, "device_free_bytes": 60e9},
        healthy_model={"peak_device_bytes": 60e9},
    ),
    pair(
        "larger-batch",
        WAITING,
        {"peak_device_bytes": 8e9, "device_free_bytes": 60e9},
        healthy_model={"device_free_bytes": 4e9},
    ),
    pair("step-synchronises", {"synchronisations": [ITEM]}, healthy_trace={"synchronisations": []}),
    pair(
        "step-synchronises",
        {"synchronisations": [ITEM]},
        healthy_trace={"synchronisations": [{**ITEM, "calls_per_step": 0.02, "idle_after_s_per_step": 0.0001}]},
    ),
    pair(
        "step-synchronises",
        {"synchronisations": [ITEM]},
        healthy_trace={"synchronisations": [{**ITEM, "idle_after_s_per_step": 0.00001}]},
    ),
)

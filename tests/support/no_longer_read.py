"""Keys that earlier versions saved, and that are not read any more."""

_TRACED = {"convolution_s_per_step", "layout_s_per_step", "matrix_s_per_step", "mean_kernel_s", "operators_per_step"}
_TRACED |= {"clearing", "optimizer"}
NO_LONGER_READ = {
    "": {"handoff", "workers_tried"},
    "utilisation": {"series", "interval_s", "samples", "main"},
    "loader": {
        "dataset_pickle_failure", "descriptor_limit", "descriptors_needed", "omp_num_threads", "pin_thread",
        "shared_memory_bytes_needed", "sharing_strategy", "tokenizers", "tokenizers_parallelism", "worker_threads",
    },
    "profile": {"stacks"},
    "trace.device": _TRACED,
    "trace.raw": _TRACED,
    "model": {
        "autocast", "channels_last", "compiled", "convolutions", "cudnn_benchmark", "device_bytes",
        "device_free_bytes", "dtypes", "fixed_shapes", "matmul_precision", "optimizer", "optimizer_foreach",
        "optimizer_fused", "own_train_step", "parameter_bytes", "parameters", "peak_device_bytes",
    },
}  # fmt: skip
"""The keys, by the place in the evidence."""


def without_what_nobody_reads(evidence):
    """Drop it from the evidence of a saved result, in place."""
    for place, keys in NO_LONGER_READ.items():
        part = evidence
        for name in filter(None, place.split(".")):
            part = part.get(name) or {}
        for key in keys:
            part.pop(key, None)
    usage = evidence.get("utilisation") or {}
    for key in ("shared_bytes", "private_growth_bytes_per_s", "private_growth_error_bytes_per_s"):
        (usage.get("workers") or {}).pop(key, None)
    for experiment in usage.get("experiments", ()):
        for key in ("samples", "runnable_per_core"):
            experiment.pop(key, None)
        for key in ("memory_bytes", "pcie_bytes_per_s"):
            (experiment.get("gpu") or {}).pop(key, None)
    for function in (evidence.get("profile") or {}).get("functions", ()):
        function.pop("waiting_share", None)
    return evidence

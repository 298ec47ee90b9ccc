"""Cores, memory, shared memory and the device."""

from dataclasses import replace

from tests.analysis.rule_case import WORKERS, RuleCase
from tests.analysis.simulated import AUGMENT_BOUND, DEVICE_BOUND

_GIB = 2**30


def usage(raw=None, device=None, *, usable=8, quota=None, workers=None, **more):
    """Evidence of a machine with 8 cores, half of them busy."""
    quiet = {
        "name": "raw", "mode": "coupled", "cores_busy": 4.2, "cores_main": 0.2, "cores_workers": 3.9,
        "cores_other": 0.1, "throttled_share": None, "gpu": None,
    }  # fmt: skip
    return {
        "utilisation": {
            "cores": {"usable": usable, "quota": quota, "allowed": 8},
            "experiments": [{**quiet, **(raw or {})}, {**quiet, "name": "device", **(device or {})}],
            "workers": {"count": 4, "threads": 2, **(workers or {})},
            **more,
        }
    }


def crowd(**workers):
    """Evidence of workers that wait for cores."""
    return {**usage(_FULL, **workers), "core_wait_per_cpu_s": 0.8}


def tried(seconds, *, noise_s=0.004, waits=0.8):
    """A job whose blocks take 0.4 s, and with one thread in each worker as told; a crowd as above alone."""
    blocks = [{"round": n, "samples": 64, "batches": 2} for n in range(4)]
    trial = {
        "as_it_is": [{**block, "seconds": 0.4 + noise_s * (n % 2)} for n, block in enumerate(blocks)],
        "one_thread": [{**block, "seconds": seconds + noise_s * (n // 2)} for n, block in enumerate(blocks)],
    }
    evidence = {**crowd(threads=10), "thread_trial": trial, "loader": {"library_threads": 8}}
    evidence["core_wait_per_cpu_s"] = waits
    return of(AUGMENT_BOUND, evidence)


def of(job, evidence, pipeline=None, **environment):
    return replace(job, evidence=evidence, pipeline={**WORKERS, **(pipeline or {})}, environment=environment)


_FULL = {"cores_busy": 7.9, "cores_workers": 7.4, "cores_main": 0.3}
_CLOCKS = {"sm_clock_hz": 1.2e9, "max_sm_clock_hz": 1.98e9, "throttled": ["heat"]}

CASES = (
    RuleCase("workers-cannot-help", deserves=of(AUGMENT_BOUND, usage(_FULL)), healthy=of(AUGMENT_BOUND, usage())),
    RuleCase(
        "too-many-workers",
        deserves=of(AUGMENT_BOUND, crowd(), {"num_workers": 12}),
        healthy=of(AUGMENT_BOUND, crowd(), {"num_workers": 8}),
    ),
    RuleCase(  # workers that only wait, beside others who take the cores
        "too-many-workers",
        deserves=of(AUGMENT_BOUND, crowd(), {"num_workers": 12}),
        healthy=of(
            AUGMENT_BOUND,
            {**usage({**_FULL, "cores_workers": 1.2, "cores_other": 6.0}), "core_wait_per_cpu_s": 0.8},
            {"num_workers": 12},
        ),
    ),
    RuleCase(
        "thread-oversubscription",
        deserves=of(AUGMENT_BOUND, crowd(workers={"threads": 10})),
        healthy=of(AUGMENT_BOUND, crowd(workers={"threads": 2})),
    ),
    RuleCase("thread-oversubscription", deserves=tried(0.3), healthy=tried(0.398)),
    RuleCase("thread-oversubscription", deserves=tried(0.3, noise_s=0.2), healthy=tried(0.3, noise_s=0.2, waits=0.1)),
    RuleCase(
        "worker-affinity",
        deserves=of(AUGMENT_BOUND, usage(workers={"affinity_cores": 1, "main_affinity_cores": 8})),
        healthy=of(AUGMENT_BOUND, usage(workers={"affinity_cores": 8, "main_affinity_cores": 8})),
    ),
    RuleCase(
        "shared-memory-full",
        deserves=of(AUGMENT_BOUND, usage(shared_memory={"size_bytes": 64e6, "peak_used_bytes": 60e6})),
        healthy=of(AUGMENT_BOUND, usage(shared_memory={"size_bytes": 64e6, "peak_used_bytes": 20e6})),
    ),
    RuleCase(
        "gpu-throttled",
        deserves=of(DEVICE_BOUND, usage(device={"gpu": _CLOCKS})),
        healthy=of(DEVICE_BOUND, usage(device={"gpu": {**_CLOCKS, "sm_clock_hz": 1.97e9}})),
        stage="compute",
    ),
    RuleCase(
        "gpu-shared",
        deserves=of(DEVICE_BOUND, usage(gpu_other_processes=2)),
        healthy=of(DEVICE_BOUND, usage(gpu_other_processes=0)),
        stage="compute",
    ),
)

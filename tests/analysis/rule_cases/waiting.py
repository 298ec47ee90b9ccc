"""Waiting: workers that start again, single slow samples, and storage."""

from dataclasses import replace

from bottleneck.results.records import Experiment, Stage
from tests.analysis.rule_case import WORKERS, RuleCase
from tests.analysis.simulated import AUGMENT_BOUND, DEVICE_BOUND, LADDER, Job, measure

_EVEN = {"p50": 0.008, "p95": 0.010, "p99": 0.011, "max": 0.012, "count": 960, "mean": 0.008}
_UNEVEN = {"p50": 0.001, "p95": 0.080, "p99": 0.120, "max": 0.130, "count": 960, "mean": 0.009}
_STALLS = {"count": 60, "threshold_s": 0.02, "lost_share": 0.2, "period_batches": 16, "period_s": 0.4}
_STALLING = replace(
    AUGMENT_BOUND,
    pipeline={**WORKERS, "in_order": True},
    environment={"torch": "2.9.0"},
    evidence={"wait_s": _UNEVEN, "stalls": _STALLS},
)


def _reads(source, asked=110_000.0, calls=6.0):
    storage = asked if source == "disk" else 0.0
    row = {"name": "raw", "asked_bytes_per_sample": asked, "storage_bytes_per_sample": storage,
           "calls_per_sample": calls, "source": source}  # fmt: skip
    return {"reads": {"experiments": [row]}}


_LOADING = Job(
    coupled=dict(zip(LADDER, (0.0094, 0.0095, 0.0097, 0.0098, 0.0116, 0.0247), strict=True)),
    drained={"after_collate": 0.0012, "before_collate": 0.0021, "before_augment": 0.0040, "raw": 0.0246},
    without={"copy": 0.0246, "handoff": 0.0244, "collate": 0.0243, "augment": 0.0230, "load": 0.0116},
    pipeline={**WORKERS, "dataset_length": 1_000_000},
    environment={"memory_bytes": 64e9},
)


def cold(seconds_per_batch, *, verified=True, file_bytes=100_000, memory_bytes=64e9):
    """A device-bound job whose files were dropped from memory: what the experiment `cold` took."""
    evidence = {
        **_reads("page cache"),
        "cold": {"verified": verified, "files": 1_000, "bytes": 1_000 * file_bytes, "samples": 1_000, "reason": None},
    }
    pipeline, environment = {**WORKERS, "dataset_length": 1_000_000}, {"memory_bytes": memory_bytes}
    job = replace(DEVICE_BOUND, pipeline=pipeline, environment=environment, evidence=evidence)
    found = measure(job)
    other = measure(Job(coupled={"device": 0.03, "raw": seconds_per_batch}), seed=1).experiments[-1]
    return replace(
        found,
        experiments=(*found.experiments, Experiment("cold", True, None, other.coupled, None)),
        stages=(*found.stages, Stage.between("storage", "raw", "cold")),
    )


CASES = (
    RuleCase(
        "uneven-samples",
        deserves=_STALLING,
        healthy=replace(_STALLING, evidence={"wait_s": _EVEN, "stalls": {**_STALLS, "lost_share": 0.01}}),
    ),
    RuleCase(
        "uneven-samples",
        deserves=_STALLING,
        healthy=replace(_STALLING, evidence={**_STALLING.evidence, "collections": {"share": 0.3}}),
    ),
    RuleCase("cold-storage", deserves=cold(0.090), healthy=cold(0.0305), stage="storage"),
    RuleCase("cold-storage", deserves=cold(0.090), healthy=cold(0.090, verified=False), stage="storage"),
)

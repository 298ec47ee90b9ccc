"""Jobs that one stage holds: a step of 10 ms on the device, and 25 ms with that stage."""

from __future__ import annotations

from typing import Any

from tests.analysis.rule_case import WORKERS
from tests.analysis.simulated import LADDER, STAGES, Job

SLOW_S, LITTLE_S, STEP_S = 0.0145, 0.0002, 0.010


def held_by(held: str, *, slow_s: float = SLOW_S, **settings: Any) -> Job:
    """Return a job that is held by a stage.

    Args:
        held: One of `simulated.STAGES`.
        slow_s: What that stage takes of each batch.
        settings: Other fields of the job; those of the pipeline come on top of `WORKERS`.
    """
    coupled, drained, at, loader = {}, {}, STEP_S, 0.0005
    for experiment, stage in zip(LADDER, STAGES, strict=True):
        added = 0.0 if stage == "compute" else slow_s if stage == held else LITTLE_S
        at += added
        coupled[experiment] = at
        if stage not in ("compute", "copy"):
            loader += added
            drained[experiment] = loader
    without = {stage: at - (slow_s if stage == held else LITTLE_S) for stage in STAGES[1:]}
    return Job(coupled, drained, without, **{**settings, "pipeline": {**WORKERS, **settings.get("pipeline", {})}})


def transform(
    path: str, name: str, share: float, output: str = "224x224 RGB", stage: str = "augment"
) -> dict[str, Any]:
    """A row of the evidence on single transforms, each called once for a sample."""
    return {
        "stage": stage, "path": path, "name": name, "share": share, "output": output, "calls_per_sample": 1.0,
        "wall_s_per_call": share * 0.002, "cpu_s_per_call": share * 0.002,
    }  # fmt: skip

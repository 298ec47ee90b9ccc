"""The form of the entries in `rule_cases/`: what a rule has to find, and the same with the one number healthy."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from bottleneck.analysis.analyse import analyse
from bottleneck.results.records import Advice, Result
from tests.analysis.simulated import LADDER, STAGES, Job, measure

WORKERS = {"num_workers": 4, "batch_size": 32, "pin_memory": True, "persistent_workers": True}
"""Settings of a loader that has nothing wrong with it."""


@dataclass(frozen=True)
class RuleCase:
    """A case for one id of advice.

    Attributes:
        id: The id that is given.
        deserves: A job to which it is given.
        healthy: Its twin, to which it is not: the same but for the number that the rule is about.
        stage: The stage that the advice is about; None for the job as a whole.
    """

    id: str
    deserves: Job | Result
    healthy: Job | Result
    stage: str | None = None


def result_of(case: Job | Result) -> Result:
    """The whole analysis of a case."""
    return analyse(measure(case) if isinstance(case, Job) else case)


def advice_of(case: Job | Result) -> dict[str, Advice]:
    """Return the advice on a case, by its id."""
    return {item.id: item for item in result_of(case).advice}


def advice_with_workers(job: Job, *, pipeline: Mapping[str, Any] | None = None, **settings: Any) -> dict[str, Advice]:
    """Return the advice by id for a job with workers, and with these settings instead of its own."""
    return advice_of(replace(job, pipeline={**WORKERS, **(pipeline or {})}, **settings))


def with_stage(job: Job | Result, old: str, new: str, **changes: float) -> Result:
    """The measurement of a job in which a stage has another name, or was observed.

    Args:
        job: The job.
        old: A stage of it.
        new: Its name from now on.
        changes: Other fields of the stage, such as `wall_s_per_batch`.
    """
    found = measure(job) if isinstance(job, Job) else job
    return replace(
        found,
        stages=tuple(replace(s, name=new, **changes) if s.name == old else s for s in found.stages),
        without=tuple(replace(w, stage=new) if w.stage == old else w for w in found.without),
    )


# --- jobs that one stage holds: a step of 10 ms on the device, and 25 ms with that stage ---------------------

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

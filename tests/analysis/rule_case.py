"""The form of the entries in `rule_cases/`: what a rule has to find, and the same with the one number healthy."""

from __future__ import annotations

from dataclasses import dataclass, replace

from bottleneck.analysis.analyse import analyse
from bottleneck.results.records import Result
from tests.analysis.simulated import Job, measure

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

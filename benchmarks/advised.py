"""Advice, followed: the gain that it predicts beside the one that plain loops get from it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import click
import torch

from benchmarks import small_jobs
from benchmarks.checks import Check, markdown_table
from benchmarks.efficiencies import run_diagnosis
from benchmarks.gains import factor_interval
from benchmarks.paired import PAIRS, PAIRS_QUICK, Realised, realise
from benchmarks.planted import find_planted
from benchmarks.uneven import UnevenLoader
from benchmarks.work import wait
from bottleneck.reports.advice import expected_gain
from bottleneck.results.records import Advice, Interval, Result

MAX_OVER = 1.25
"""Times the realised gain that a predicted one may be."""
_WORKERS = 2
"""Tried where no number of workers is advised."""

Fields = dict[str, Any]


@dataclass(frozen=True)
class Job:
    """A job, and what somebody does who follows one piece of advice on it.

    Attributes:
        name: For people.
        ids: Of the advice that may be given for it, the first one found counts.
        build: The fields of the pipeline, anew at each call.
        change: What the advice says, applied to fields; None stands for advice that was not given.
        needs_cuda: Whether it says something only about a CUDA device.
    """

    name: str
    ids: tuple[str, ...]
    build: Callable[[], Fields]
    change: Callable[[Fields, Advice | None], Fields]
    needs_cuda: bool = False


def with_workers(fields: Fields, advice: Advice | None) -> Fields:
    """The job with as many workers as the advice names."""
    named = re.search(r"num_workers=(\d+)", advice.how if advice else "")
    return {**fields, "num_workers": int(named[1]) if named else _WORKERS}


def without_workers(fields: Fields, _advice: Advice | None) -> Fields:
    """The job that loads in its main process."""
    return {name: value for name, value in fields.items() if name != "prefetch_factor"} | {"num_workers": 0}


def with_batch_calls(fields: Fields, _advice: Advice | None) -> Fields:
    """The job whose dataset gives a whole batch by one call."""
    return {**fields, "dataset": small_jobs.TableInBatches(fields["dataset"])}


def with_free_blur(fields: Fields, _advice: Advice | None) -> Fields:
    """The job whose costliest transform costs nothing: the advice speaks of just that."""
    fields["dataset"].transform.transforms[0].work = wait(0.0)
    return fields


def with_pinning(fields: Fields, _advice: Advice | None) -> Fields:
    """The job that copies from pinned memory without waiting for it."""
    return {**fields, "pin_memory": True, "to_device": small_jobs.move_beside}


def _composed() -> Fields:
    return find_planted("composed").build(length=small_jobs.ROWS)


JOBS: tuple[Job, ...] = (
    Job("loading that waits, no workers", ("use-workers",), small_jobs.waiting, with_workers),
    Job("a table, no workers, training on the CPU", ("use-workers",), small_jobs.table_on_cpu, with_workers),
    Job("tens of µs of loading, no workers", ("use-workers",), small_jobs.tiny, with_workers),
    Job("one worker that waits", ("more-workers",), UnevenLoader(1, 0.040, 0.10, 0.010).build, with_workers),
    Job("a table, 2 workers", ("no-workers-better", "too-many-workers"), small_jobs.table_in_workers, without_workers),
    Job("a table, sample by sample", ("fetch-in-batches",), small_jobs.table, with_batch_calls),
    Job("a costly transform", ("costliest-transform",), _composed, with_free_blur),
    Job("a copy from pageable memory", ("pin-memory",), small_jobs.large_copies, with_pinning, needs_cuda=True),
)


@dataclass(frozen=True)
class Followed:
    """A piece of advice that was followed."""

    job: str
    id: str
    advice: Advice | None
    realised: Realised | None
    failure: str = ""
    """Reason why the diagnosis gave no result; empty if it did."""
    left_out: str = ""
    """Reason why the job was not run at all; empty if it was."""

    @property
    def predicted(self) -> Interval | None:
        """The predicted gain; None without advice, or if none was claimed."""
        return self.advice.gain if self.advice else None

    @property
    def says_at_most(self) -> bool:
        """Return True if it says that the prediction is a bound."""
        return self.advice is not None and bool(re.search(r"\b(at most|up to)\b", expected_gain(self.advice)))

    @property
    def miss(self) -> str:
        """Return the fault of the prediction; empty if there is none."""
        if self.realised is None:
            return self.failure
        if self.advice is None or self.predicted is None:
            return ""
        gained = self.realised.gain
        if gained.high < 1:
            return f"advised, and it makes the job slower: {factor_interval(gained)}"
        if not self.says_at_most and self.predicted.estimate > MAX_OVER * gained.estimate:
            return f"predicted {self.predicted.estimate:.2f}x, realised {factor_interval(gained)}"
        if self.says_at_most and gained.low > max(self.predicted.high, self.predicted.estimate):
            return f"said to be at most {self.predicted.estimate:.2f}x, realised {factor_interval(gained)}"
        return ""


def follow_all(jobs: Iterable[Job] = JOBS, *, quick: bool = False) -> list[Followed]:
    """Diagnose each job and do what it is advised to; jobs for a device that is not there are left out."""
    found: list[Followed] = []
    for job in jobs:
        if job.needs_cuda and not torch.cuda.is_available():
            found.append(Followed(job.name, job.ids[0], None, None, left_out="there is no CUDA device"))
            continue
        click.echo(f"advice on {job.name} … ", err=True, nl=False)
        found.append(_follow(job, quick=quick))
        click.echo(found[-1].miss or "held", err=True)
    return found


def _follow(job: Job, *, quick: bool) -> Followed:
    result, _, failure = run_diagnosis(job.build(), quick=quick)
    if result is None:
        return Followed(job.name, job.ids[0], None, None, failure)
    advice = find_advice(result, job.ids)
    changed = job.change(job.build(), advice)
    realised = realise(job.build(), changed, pairs=PAIRS_QUICK if quick else PAIRS)
    return Followed(job.name, advice.id if advice else job.ids[0], advice, realised)


def find_advice(result: Result, ids: Sequence[str]) -> Advice | None:
    """The first advice of a result that has one of the ids."""
    return next((advice for advice in result.advice if advice.id in ids), None)


def advised_table(followed: Sequence[Followed]) -> str:
    """Predicted and realised gains, in markdown."""
    rows = [
        (
            one.job,
            one.id,
            _predicted(one),
            "–" if one.realised is None else factor_interval(one.realised.gain),
            "–" if one.left_out else "**off**" if one.miss else "held",
        )
        for one in followed
    ]
    return markdown_table(("job", "advice", "predicted", "realised (95 % interval)", ""), rows)


def _predicted(one: Followed) -> str:
    if one.left_out:
        return f"left out: {one.left_out}"
    if one.failure:
        return "failed"
    if one.advice is None:
        return "not advised"
    if one.predicted is None:
        return "no gain claimed"
    return ("at most " if one.says_at_most else "") + f"{one.predicted.estimate:.2f}x"


def check_advice(followed: Sequence[Followed]) -> Check:
    """The bar on predicted gains."""
    followed = [one for one in followed if not one.left_out]
    missed = [one for one in followed if one.miss]
    claimed = sum(one.predicted is not None for one in followed)
    bounds = sum(one.says_at_most for one in followed)
    return Check(
        "gain that an advice predicts against the gain that the change brings",
        "over it by a quarter at most, or said to be at most; never slower",
        f"{len(followed) - len(missed)} of {len(followed)}; {claimed} predict a gain, {bounds} of them 'at most'",
        not missed,
        tuple(f"{one.job} ({one.id}): {one.miss}" for one in missed),
    )

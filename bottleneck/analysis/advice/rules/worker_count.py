"""How many workers: none, some, more or fewer, each with what the change itself costs in this job."""

from __future__ import annotations

import math
from collections.abc import Iterator

from bottleneck.analysis.advice.rule import Case, Suggestion, rule
from bottleneck.analysis.advice.transforms import undisturbed_s_per_batch
from bottleneck.analysis.advice.worker_gain import WORTH, gain_of_first_workers, gain_of_more_workers, most_workers
from bottleneck.analysis.advice.worker_room import worker_room
from bottleneck.analysis.ranks import ranks_per_host
from bottleneck.results.format import duration, plural
from bottleneck.results.names import COMPUTE, COPY, HANDOFF, goes_beyond_the_worker
from bottleneck.results.records import Interval, Stage

_LOADER_SHARE_WORTH_WORKERS = 0.1
_FIRST_WORKERS = 4  # what a sweep starts from: two to four for each accelerator
_SPARE_SUPPLY = 1.1  # the loader should supply a tenth more than the device takes, for its uneven batches
_WORTH_LEAVING_WORKERS = 1.1
_CONTENTION = 1.25
"""What a batch takes beside the loaders of other ranks over alone, from which on more workers are no remedy."""


@rule("use-workers")
def _use_workers(case: Case) -> Iterator[Suggestion]:
    """Advise workers where the main process loads by itself, and the step leaves them cores."""
    if case.number("num_workers") != 0 or not case.has_loader or not case.input_bound:
        return
    if case.evidence.loader.own_workers:  # a worker may start no processes
        return
    room = most_workers(case)
    if case.loader_s <= _LOADER_SHARE_WORTH_WORKERS * case.step_s or room is None or room < 1:
        return
    workers = min(_FIRST_WORKERS, room)
    promised = gain_of_first_workers(case, workers)
    if promised < WORTH:
        return
    yield Suggestion(
        title=f"Load in {workers} worker process{'' if workers == 1 else 'es'}",
        why=f"With num_workers=0 the device waits while the main process loads: {duration(case.loader_s)} of each "
        f"{duration(case.step_s)} step. Workers load during the step; handing over a batch costs something, too.",
        how=case.loader_with(f"num_workers={workers}"),
        evidence={"num_workers": 0, "proposed": {"num_workers": workers}, "loader_s_per_batch": case.loader_s,
                  "step_s": case.step_s},
        gain=promised,
    )  # fmt: skip


@rule("more-workers")
def _more_workers(case: Case) -> Iterator[Suggestion]:
    """Advise more workers where the workers limit the job and there are cores left for them."""
    workers, left = case.workers, most_workers(case)
    if not case.input_bound or not workers or case.held_behind_workers:
        return
    if case.cores is None or left is None or left <= workers or case.loader_s <= case.device_s:
        return
    used_up, room = case.saturation, worker_room(case)
    if (used_up is not None and used_up.lacks_cores) or _ranks_contend(case):
        return
    enough = math.ceil(workers * case.loader_s / case.device_s * _SPARE_SUPPLY)
    most = left if room is None else min(left, room.workers)
    wanted = int(min(enough, most))
    promised = gain_of_more_workers(case, workers, wanted) if wanted > workers else 1.0
    if promised < WORTH:
        return
    short = "" if enough <= most else f" It would take about {enough}, so this alone is not enough."
    if room is not None and room.workers < min(enough, left):
        short += f" Memory sets the limit: {room.what}."
    elif left < enough and ranks_per_host(case.ranks) > 1:
        short += f" {plural(ranks_per_host(case.ranks), 'rank')} share the cores of the host."
    elif left < min(enough, case.cores):
        short += f" The train step uses the other {case.cores - left} cores."
    yield Suggestion(
        title=f"Raise num_workers from {workers:.0f} to {wanted}",
        why=f"The loader alone takes {duration(case.loader_s)} a batch with {workers:.0f} of {case.cores} "
        f"cores, the device only {duration(case.device_s)}.{short}",
        how=case.loader_with(f"num_workers={wanted}"),
        evidence={
            "num_workers": workers,
            "proposed": {"num_workers": wanted},
            "cpu_cores_available": case.cores,
            "loader_s_per_batch": case.loader_s,
            "device_s_per_batch": case.device_s,
            **(room.evidence if room is not None else {}),
        },
        gain=promised,
    )


def _ranks_contend(case: Case) -> bool:
    """Whether the loaders of the ranks surely take from each other what more workers would only divide again."""
    ratio = case.evidence.ranks.contention.ratio
    return ratio is not None and ratio.low > _CONTENTION


@rule("no-workers-better")
def _no_workers(case: Case) -> Iterator[Suggestion]:
    """Advise loading in the main process where that is less work than receiving the batches from workers."""
    if not case.workers or case.holding(HANDOFF) is None:
        return
    own = [stage for stage in case.stages if stage.name != COMPUTE and not goes_beyond_the_worker(stage.name)]
    works = [undisturbed_s_per_batch(case, stage) for stage in own]
    known = [work for work in works if work is not None]
    if not known or len(known) < len(works):
        return
    copy = case.stage(COPY)
    exposed = copy.exposed_s_per_batch if copy is not None else None
    copy_s, least_copy_s = (max(0.0, exposed.estimate), max(0.0, exposed.low)) if exposed else (0.0, 0.0)
    loading_s = sum(known)
    alone_s = case.device_s + copy_s + loading_s
    least_s = case.device_s + least_copy_s + sum(_least_s(case, *each) for each in zip(own, known, strict=True))
    promised, most = case.step_s / alone_s, case.step_s / least_s
    if promised < _WORTH_LEAVING_WORKERS:
        return
    yield Suggestion(
        title="Load in the main process, without workers",
        why=f"All the loading of a batch takes one process {duration(loading_s)}: without workers a step would take "
        f"about {duration(alone_s)}, instead of {duration(case.step_s)} with them.",
        how=case.loader_with("num_workers=0"),
        evidence={"num_workers": case.workers, "proposed": {"num_workers": 0}, "loading_s_per_batch": loading_s,
                  "step_s": case.step_s, "alone_s": alone_s},
        gain=Interval(*map(case.at_most_headroom, (promised, 1.0, max(promised, most)))),
    )  # fmt: skip


def _least_s(case: Case, stage: Stage, work_s: float) -> float:
    """The least that a stage takes of one process: a worker that waits for its next request begins each batch cold."""
    cost = stage.cost_s_per_batch
    return work_s if cost is None else min(work_s, max(0.0, cost.low) * case.workers)


RULES = (_use_workers, _more_workers, _no_workers)

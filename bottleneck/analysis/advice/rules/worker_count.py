"""How many workers: none, some, more or fewer, each with what the change itself costs in this job."""

from __future__ import annotations

import math
from collections.abc import Iterator

from bottleneck.analysis.advice.rule import Case, Suggestion, rule
from bottleneck.analysis.advice.transforms import undisturbed_s_per_batch
from bottleneck.analysis.advice.worker_gain import (
    WORTH,
    Way,
    best_way,
    gain_of_first_workers,
    gain_of_more_workers,
    most_workers,
    ways_tried,
)
from bottleneck.analysis.advice.worker_room import worker_room
from bottleneck.analysis.ranks import ranks_per_host
from bottleneck.analysis.settings import number
from bottleneck.results.format import duration, gain, plural
from bottleneck.results.names import COMPUTE, COPY, HANDOFF, goes_beyond_the_worker
from bottleneck.results.records import Interval, Stage

_LOADER_SHARE_WORTH_WORKERS = 0.1
_FIRST_WORKERS = 4  # what a sweep starts from: two to four for each accelerator
_SPARE_SUPPLY = 1.1  # the loader should supply a tenth more than the device takes, for its uneven batches
_WORTH_LEAVING_WORKERS = 1.1
_CONTENTION = 1.25
"""What a batch takes beside the loaders of other ranks over alone, from which on more workers are no remedy."""


@rule("use-workers", "fewer-threads", "workers-would-not-help")
def _use_workers(case: Case) -> Iterator[Suggestion]:
    """Advise workers where the main process loads by itself, and the job was faster with them, or must be."""
    if case.number("num_workers") != 0 or not case.has_loader or case.verdict.state == "device_bound":
        return
    if case.loader_s <= _LOADER_SHARE_WORTH_WORKERS * case.step_s:
        return
    if case.evidence.loader.own_workers:  # a worker may start no processes
        return
    tried, best = ways_tried(case), best_way(case)
    if best is not None:
        yield _tried(case, best) if best.workers else _fewer_threads(case, best)
    elif with_some := [way for way in tried if way.workers]:
        if case.input_bound:
            yield _no_use(case, max(with_some, key=lambda way: way.gain.estimate))
    else:
        yield from _reckoned(case)


def _tried(case: Case, way: Way) -> Suggestion:
    present = number(case.environment, "torch_threads")
    others = f"; torch.set_num_threads({way.threads}) in the main process" if way.threads != present else ""
    beside = f", beside a train step on {plural(way.threads, 'thread')}" if others else ""
    return _first_workers(
        case,
        title=f"Load in {_processes(way.workers)}{beside}",
        why=f"With num_workers=0 the device waits while the main process loads: {duration(case.loader_s)} of each "
        f"{duration(case.step_s)} step. Fed by workers that took as long for each batch, the train step made "
        f"{gain(way.gain.estimate)} the batches; that counts what they take of the cores and the hand-off.",
        how=f"DataLoader(..., num_workers={way.workers}){others}",
        proposed={"num_workers": way.workers} | ({"torch_threads": way.threads} if others else {}),
        # Fewer threads change the step, and with it what free input would bring.
        promised=way.gain if others else _at_most_headroom(case, way.gain),
    )


def _at_most_headroom(case: Case, found: Interval) -> Interval:
    return Interval(*(case.at_most_headroom(bound) for bound in (found.estimate, found.low, found.high)))


def _fewer_threads(case: Case, way: Way) -> Suggestion:
    present = number(case.environment, "torch_threads")
    threads = plural(way.threads, "thread")
    return Suggestion(
        id="fewer-threads",
        title=f"Let torch compute with {threads} in the main process",
        why=f"With {threads} instead of {present or 0:.0f} the job made {gain(way.gain.estimate)} the batches, as "
        "tried: threads that find no core of their own hold the others up in each operation.",
        how=f"torch.set_num_threads({way.threads}), once, before training",
        evidence={"num_workers": 0, "proposed": {"torch_threads": way.threads}, "torch_threads": present,
                  "step_s": case.step_s},
        gain=way.gain,
    )  # fmt: skip


def _no_use(case: Case, way: Way) -> Suggestion:
    handoff_s = case.evidence.handoff.s_per_batch
    handing = f"; handing over a batch takes a worker {duration(handoff_s)} at least" if handoff_s is not None else ""
    return Suggestion(
        id="workers-would-not-help",
        title="Keep num_workers=0: workers would not make this job faster",
        why=f"Fed by {plural(way.workers, 'worker')} that took as long for each batch as loading does "
        f"({duration(case.loader_s)} of each {duration(case.step_s)} step), the train step made "
        f"{gain(way.gain.estimate)} the batches{handing}.",
        how="leave num_workers=0, and make the loading itself cheaper",
        evidence={"num_workers": 0, "workers_tried": way.workers, "gain_tried": way.gain.estimate,
                  "handoff_s_per_batch": handoff_s, "loader_s_per_batch": case.loader_s, "step_s": case.step_s},
    )  # fmt: skip


def _reckoned(case: Case) -> Iterator[Suggestion]:
    """Advise workers that were not tried, where the step leaves them cores and the hand-off was measured."""
    room = most_workers(case)
    if not case.input_bound or room is None or room < 1:
        return
    workers = min(_FIRST_WORKERS, room)
    promised = gain_of_first_workers(case, workers)
    if promised is None or promised < WORTH:
        return
    handoff_s = case.evidence.handoff.s_per_batch or 0.0
    yield _first_workers(
        case,
        title=f"Load in {_processes(workers)}, beside the train step",
        why=f"With num_workers=0 the device waits while the main process loads: {duration(case.loader_s)} of each "
        f"{duration(case.step_s)} step. Handing over a batch takes {duration(handoff_s)}, which is counted.",
        how=case.loader_with(f"num_workers={workers}"),
        proposed={"num_workers": workers},
        promised=promised,
    )


def _first_workers(
    case: Case, title: str, why: str, how: str, proposed: dict[str, int], promised: float | Interval
) -> Suggestion:
    return Suggestion(
        id="use-workers",
        title=title,
        why=why,
        how=how,
        evidence={"num_workers": 0, "proposed": proposed, "loader_s_per_batch": case.loader_s,
                  "handoff_s_per_batch": case.evidence.handoff.s_per_batch, "step_s": case.step_s},
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
    """Whether the loaders of the ranks surely take from each other what more workers would only share anew."""
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
        gain=_at_most_headroom(case, Interval(promised, 1.0, max(promised, most))),
    )  # fmt: skip


def _least_s(case: Case, stage: Stage, work_s: float) -> float:
    """The least that a stage takes of one process: a worker that waits for its next request begins each batch cold."""
    cost = stage.cost_s_per_batch
    return work_s if cost is None else min(work_s, max(0.0, cost.low) * case.workers)


def _processes(workers: int) -> str:
    return f"{workers} worker process{'' if workers == 1 else 'es'}"


RULES = (_use_workers, _more_workers, _no_workers)

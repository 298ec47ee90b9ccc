"""The pass of observation: division of the workers' time into stages and single transforms.

It comes between recording and the timed rounds, so that its cost is in none of their numbers.
"""

from __future__ import annotations

import linecache
import statistics
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from bottleneck.job.users_code import shown_path
from bottleneck.loader import modes
from bottleneck.loader.observing.lines import EVERY_S
from bottleneck.loader.observing.meter import Spent, TransformSpent
from bottleneck.loader.observing.observation import Line, Observation
from bottleneck.loader.observing.observe import ENOUGH_S, LONGER
from bottleneck.loader.switched import SwitchedLoader
from bottleneck.measure.caches import is_on_device
from bottleneck.measure.evidence.network import describe_network
from bottleneck.measure.explain_errors import loader_failures
from bottleneck.measure.ladder import Ladder
from bottleneck.results.evidence import (
    ClockedBatches,
    CollectionsSeen,
    ConstructionSeen,
    Evidence,
    LineSeen,
    StageClock,
    TransformSeen,
)
from bottleneck.results.names import span_of, stages_in
from bottleneck.results.records import Stage

MAX_OBSERVING_S = ENOUGH_S
BUDGET_SHARE = 0.05
_MAX_TURNS = 4
"""Batches per worker after which workers without an observation are given up: they have no share of the data."""
_WHOLE = 0.9
"""Share of a stage above which the rows of its transforms count as all of it."""
_MAX_LINES = 5
"""Lines of a stage that are kept."""
_MIN_OF_LINES = 0.05
"""Share of a stage above which a line is kept."""
_AGAIN = 3
"""Times that a construction has to be seen."""
_SEEN_ENOUGH_S = 10 * EVERY_S
"""Time of samples below which they say nothing about a stage."""
_MAX_CODE_CHARACTERS = 100


def observe(loader: SwitchedLoader, limit_s: float, clock: Callable[[], float]) -> Observation:
    """Let the workers make real batches for a while, and return the sum of what they observed.

    Args:
        loader: The running loader.
        limit_s: Seconds for it, once every worker has made a batch.
        clock: Monotonic seconds.

    Raises:
        MeasurementError: The user's code or a worker failed.
    """
    workers = max(1, loader.num_workers)
    with loader_failures("observing"):
        loader.switch_real(modes.OBSERVE)
        started, taken = clock(), 0
        while True:
            loader.next_batch()
            taken += 1
            passed_s = clock() - started
            if passed_s <= limit_s:
                continue
            known = loader.observations()
            # A short budget has no time to wait for a collection.
            longer = limit_s >= MAX_OBSERVING_S and passed_s <= LONGER * limit_s
            longer = longer and any(one.collections.missing for one in known)
            if not longer and (len(known) >= workers or taken > _MAX_TURNS * workers):
                break
        loader.rest()
    total = Observation()
    for seen in loader.observations():
        total.workers += seen.workers
        total.add(seen)
    return total


def with_times(ladder: Ladder, observation: Observation, batch: Any = None) -> Ladder:
    """Return a ladder whose stages have their wall-clock and CPU times.

    Args:
        ladder: Ladder without them.
        observation: Observation of the workers.
        batch: A batch of the loader. If it is on a device, host clocks measure only the launching of its work.
    """
    if is_on_device(batch):
        return ladder
    named = _by_span(observation, ladder.spans)
    # All workers work in parallel: a batch comes each time that one worker's share of it has passed.
    batches = named.batches * max(1, named.workers)
    spans = {span.name: span for span in ladder.spans}
    for name, span in spans.items():
        spent = named.stages.get(name)
        if spent is not None and batches and "handoff" not in stages_in(name):  # which the workers do not see
            spans[name] = replace(span, wall_s_per_batch=spent.wall_s / batches, cpu_s_per_batch=spent.cpu_s / batches)
    return replace(ladder, spans=tuple(spans.values()))


def _by_span(observation: Observation, spans: tuple[Stage, ...]) -> Observation:
    """Add up the stages that are not measured separately."""
    names, made = [span.name for span in spans], Observation(observation.workers)
    made.add(observation, lambda stage: span_of(stage, names))
    return made


def summarise(observation: Observation, spans: tuple[Stage, ...], evidence: Evidence | None = None) -> Evidence:
    """Return the evidence with the observations of single transforms, and of waiting for cores."""
    seen = _by_span(observation, spans)
    ordered = sorted(seen.transforms.items(), key=lambda item: item[1].order)
    cpu_s = sum(spent.cpu_s for spent in seen.stages.values())
    core_wait = seen.core_wait_s / cpu_s if seen.core_wait_s is not None and cpu_s > 0 else None
    collections = CollectionsSeen()
    if seen.collections.count:
        collections = CollectionsSeen(seconds_each=seen.collections.shortest_s, objects=seen.collections.objects)
    return replace(
        evidence or Evidence(),
        transforms=tuple(_row(seen, *key, spent) for key, spent in ordered),
        transforms_note=" ".join(_gaps(seen)) or None if ordered else None,
        lines=tuple(line for stage in seen.stages for line in costliest_lines(seen.lines, stage, core_wait or 0.0)),
        constructions=tuple(one for stage in seen.stages for one in find_constructions(seen, stage)),
        core_wait_per_cpu_s=core_wait,
        clocked_batches=_clocked(seen),
        collections=collections,
        network=describe_network(seen),
    )


def _clocked(seen: Observation) -> ClockedBatches:
    """Return the times of the stages from batch to batch."""
    stages = []
    for name in seen.stages:
        times_s = [batch.get(name, 0.0) for batch in seen.clocked]
        mean_s = statistics.fmean(times_s) if times_s else 0.0
        if mean_s > 0:
            cv = statistics.stdev(times_s) / mean_s if len(times_s) > 1 else None
            stages.append(StageClock(stage=name, seconds_each=mean_s, cv=cv))
    return ClockedBatches(count=len(seen.clocked), stages=tuple(stages)) if stages else ClockedBatches()


def costliest_lines(lines: Mapping[tuple[str, Line], Spent], stage: str, core_wait: float = 0.0) -> Iterator[LineSeen]:
    """Yield the costliest lines of a stage. A thread that is ready and gets no core does not wait."""
    calls: dict[tuple[str, int], list[tuple[Line, Spent]]] = {}
    for (of, line), spent in lines.items():
        if of == stage:
            calls.setdefault((line.file, line.line), []).append((line, spent))
    found = [(max(each, key=lambda at: at[1].wall_s)[0], _sum(spent for _, spent in each)) for each in calls.values()]
    whole_s = sum(spent.wall_s for _, spent in found)
    if whole_s < _SEEN_ENOUGH_S:
        return
    worth = [(line, spent) for line, spent in found if line.file and spent.wall_s >= _MIN_OF_LINES * whole_s]
    for line, spent in sorted(worth, key=lambda at: -at[1].wall_s)[:_MAX_LINES]:
        yield LineSeen(
            stage=stage,
            path=shown_path(line.file),
            line=line.line,
            function=line.function,
            code=_text_of(line.file, line.line),
            calls=line.calls,
            share=spent.wall_s / whole_s,
            waiting_share=min(1.0, max(0.0, 1 - spent.cpu_s * (1 + core_wait) / spent.wall_s)),
            library=line.library,
        )


def find_constructions(seen: Observation, stage: str) -> Iterator[ConstructionSeen]:
    """Yield what a stage makes again and again with the same arguments, the most expensive first."""
    whole_s = sum(spent.wall_s for (of, _), spent in seen.lines.items() if of == stage)
    if whole_s < _SEEN_ENOUGH_S:
        return
    found = [(site, made) for (of, site), made in seen.constructed.items() if of == stage and made.same]
    for site, made in sorted(found, key=lambda at: -at[1].wall_s):
        if made.parts >= _AGAIN and made.wall_s >= _MIN_OF_LINES * whole_s:
            yield ConstructionSeen(
                stage=stage,
                name=site.name,
                path=shown_path(site.file),
                line=site.line,
                code=_text_of(site.file, site.line),
                share=made.wall_s / whole_s,
                seen=made.parts,
                looked_at=seen.sampled[stage],
            )


def _text_of(file: str, line: int) -> str | None:
    return linecache.getline(file, line).strip()[:_MAX_CODE_CHARACTERS] or None


def _sum(parts: Iterable[Spent]) -> Spent:
    whole = Spent()
    for part in parts:
        whole.add(part)
    return whole


def _row(seen: Observation, stage: str, place: str, spent: TransformSpent) -> TransformSeen:
    whole_s = seen.stages[stage].wall_s
    outputs = [output for output, _ in spent.outputs.most_common()]
    return TransformSeen(
        stage=stage,
        path=place,
        name=spent.name,
        calls_per_sample=spent.calls / max(1, seen.samples),
        wall_s_per_call=spent.wall_s / spent.calls,
        cpu_s_per_call=spent.cpu_s / spent.calls,
        share=spent.wall_s / whole_s if whole_s > 0 else None,
        output=f"{outputs[0]}, varies" if len(outputs) > 1 else next(iter(outputs), None),
    )


def _gaps(seen: Observation) -> Iterator[str]:
    """Yield an explanation for each stage whose transforms do not add up to it."""
    for stage in dict.fromkeys(stage for stage, _ in seen.transforms):
        whole_s = seen.stages[stage].wall_s
        rows_s = sum(spent.wall_s for (of, _), spent in seen.transforms.items() if of == stage)
        if whole_s <= 0 or rows_s >= _WHOLE * whole_s:
            continue
        rest = (
            "the compositions themselves, and code around them"
            if stage == "augment"
            else "code that is not a transform in a composition"
        )
        yield f"The transforms add up to {100 * rows_s / whole_s:.0f} % of {stage}; the rest is {rest}."
    if seen.elsewhere:
        yield f"{len(seen.elsewhere)} of them are called in threads of the user's code, where they are not timed."

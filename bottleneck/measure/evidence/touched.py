"""Findings of workers about a few samples: bytes touched against bytes kept, and repeated work."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import groupby
from statistics import median, median_low

from bottleneck.loader import modes
from bottleneck.loader.examining.examine import ITEM, ItemSeen, Output
from bottleneck.loader.examining.touches import READ, SOURCES, VIEWS, Touched
from bottleneck.loader.observing.observation import Observation
from bottleneck.loader.observing.outputs import SampleData
from bottleneck.loader.recording.plan import Plan
from bottleneck.loader.switched import SwitchedLoader
from bottleneck.measure.explain_errors import loader_failures
from bottleneck.results.evidence import AmplifiedSeen, DistinctSeen, Evidence, RepeatedSeen
from bottleneck.results.names import span_of
from bottleneck.results.records import Stage

_MAX_TURNS = 8
"""Batches per worker after which no further ones are examined: some have no share of the data."""
_MAX_UNPACKED = 50
"""Bytes per byte read above which the data was not read for this sample."""
_MAY_BE_KEPT = ("hdf5", "zarr", "saved-tensors")
"""Sources whose libraries cache the latest reads, or map them."""
_AGAIN = 0.5
"""Time of the second making over that of the first, below which some of the first was cached."""


def examine(loader: SwitchedLoader) -> list[ItemSeen]:
    """Let each worker examine a few samples, and return the findings.

    Raises:
        MeasurementError: The user's code or a worker failed.
    """
    workers = max(1, loader.num_workers)
    with loader_failures("examining"):
        loader.switch_real(modes.EXAMINE)
        for _ in range(_MAX_TURNS * workers):
            loader.next_batch()
            if sum(found.is_complete for found in loader.examinations()) >= workers:
                break
        loader.rest()
    return [item for found in loader.examinations() for item in found.items]


def with_examined(
    evidence: Evidence, items: Sequence[ItemSeen], observed: Observation, spans: Sequence[Stage], plan: Plan
) -> Evidence:
    """Return the evidence with the findings on examined samples, for stages whose times were observed."""
    return replace(
        evidence,
        amplification=tuple(find_amplified(items, observed, [span.name for span in spans])),
        repeated=find_repeated(items, plan.within_sample),
        distinct=find_distinct(observed.outputs, [span.name for span in spans]),
    )


def find_amplified(items: Sequence[ItemSeen], observed: Observation, spans: Sequence[str]) -> Iterator[AmplifiedSeen]:
    """Yield the data that each stage touches for a sample, in the order of `SOURCES`; a median of 0 means rarely."""
    order, samples = [*SOURCES, READ, VIEWS], sum(item.samples for item in items)
    for key in sorted({key for item in items for key in item.touched}, key=lambda key: (order.index(key[0]), key[1])):
        (source, stage), in_frames = key, key[0] == "video"
        rows = [item.touched.get(key, Touched()) for item in items]
        pairs = list(zip(rows, items, strict=True))
        spent = observed.stages.get(stage)
        whole_s = spent.wall_s / max(1, observed.samples) * samples if spent is not None else 0.0
        seconds, opens = sum(row.seconds for row in rows), sum(row.opens for row in rows)
        whole_s += seconds if source == VIEWS and whole_s else 0.0  # data is copied for sending after the stage
        # Finding a member in an archive is part of opening it: its headers are read then.
        opening_s = seconds if source == "archive" else sum(row.opening_s for row in rows)
        units = median_low(row.units / item.samples for row, item in pairs)
        touched = median_low(_nbytes(source, row, item) / item.samples for row, item in pairs)
        yield AmplifiedSeen(
            source=source,
            stage=span_of(stage, list(spans)),
            unit="frames" if in_frames else "bytes",
            touched_per_sample=units if in_frames else touched,
            kept_per_sample=median(_kept(stage, row, item, in_frames=in_frames) / item.samples for row, item in pairs),
            rows_per_sample=units if units and not in_frames else None,
            samples=samples,
            opens=opens or None,
            opened_files=len(set().union(*(row.names for row in rows))) if opens else None,
            share=min(1.0, seconds / whole_s) if whole_s and seconds else None,
            opening_share=min(1.0, opening_s / whole_s) if whole_s and opens else None,
        )


def _nbytes(source: str, row: Touched, item: ItemSeen) -> int:
    """Return the bytes that were touched for an item, without those that a library had cached."""
    read = next((each.nbytes for (name, _), each in item.touched.items() if name == READ), None)
    was_read = source not in _MAY_BE_KEPT or read is None or row.nbytes <= _MAX_UNPACKED * read
    return row.nbytes if was_read else 0


def _kept(stage: str, row: Touched, item: ItemSeen, *, in_frames: bool) -> int:
    """Return the bytes or frames that a caller asked for, that a stage passes to the augmentation, or of the item."""
    if row.kept is not None:
        return row.kept
    kept = [output for output in item.outputs if output.stage == stage == "load"] or item.outputs[-1:]
    return sum(output.frames if in_frames else output.nbytes for output in kept)


def find_repeated(items: Iterable[ItemSeen], within_sample: Sequence[str]) -> RepeatedSeen:
    """Return the output that was equal when a sample was made twice, up to the last such stage."""
    twice = [item for item in items if any(output.again is not None for output in item.outputs)]
    of_stage = {output.stage: [item.of_stage(output.stage) for item in twice] for i in twice for output in i.outputs}
    same = [stage for stage, outputs in of_stage.items() if _comes_again(outputs)]
    if not same:
        return RepeatedSeen(samples=len(twice) or None)
    last = list(zip(of_stage[same[-1]], (item.samples for item in twice), strict=True))
    return RepeatedSeen(
        samples=len(twice),
        stages=tuple(reversed(within_sample)) if same[-1] == ITEM else tuple(same),
        bytes_per_sample=median(sum(output.nbytes for output in outputs) / samples for outputs, samples in last),
        seconds_per_sample=median(outputs[-1].again_s / samples for outputs, samples in last),
    )


def find_distinct(outputs: Sequence[SampleData], spans: Sequence[str]) -> DistinctSeen:
    """Return the different data among samples of different indices; those that follow each other count as one.

    Neighbours are alike in an order that is not random, where the next file is still to come.
    """
    of_index = {output.index: output for output in outputs}
    stages = {output.stage for output in outputs}
    if len(stages) != 1:
        return DistinctSeen()
    visits = Counter(data for data, _ in groupby((output.nbytes, output.checksum) for output in of_index.values()))
    (stage,) = stages
    return DistinctSeen(
        stage=span_of(stage, list(spans)) if stage else None,
        samples=visits.total(),
        different=len(visits),
        seen_once=sum(times == 1 for times in visits.values()),
        bytes_each=sum(nbytes for nbytes, _ in visits) / len(visits),
    )


def _comes_again(items: Sequence[Sequence[Output]]) -> bool:
    """Return True if a stage returned the same in all items, and worked for it both times in most."""
    if not all(outputs and all(output.again for output in outputs) for outputs in items):
        return False
    return median(outputs[-1].again_s / max(outputs[-1].until_s, 1e-9) for outputs in items) >= _AGAIN

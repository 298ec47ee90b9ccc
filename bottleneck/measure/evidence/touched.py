"""What workers found out about a few samples: what is touched for one against what it keeps, and what is made again."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from statistics import median, median_low

from bottleneck.loader import modes
from bottleneck.loader.examining.examine import ITEM, ItemSeen, Output
from bottleneck.loader.examining.touches import READ, SOURCES, Touched
from bottleneck.loader.observation import Observation
from bottleneck.loader.recording.plan import Plan
from bottleneck.loader.switched import SwitchedLoader
from bottleneck.measure.explain_errors import loader_failures
from bottleneck.results.evidence import AmplifiedSeen, Evidence, RepeatedSeen
from bottleneck.results.names import span_of
from bottleneck.results.records import Stage

_MOST_TURNS = 8
"""Batches per worker after which no more is examined: some have no share of the data."""
_MOST_UNPACKED = 50
"""Bytes that come of one that is read: what takes more was not read for this sample."""
_MAY_BE_KEPT = ("hdf5", "zarr", "saved-tensors")
"""Sources whose libraries keep what was read last, or map it."""
_AGAIN = 0.5
"""The time of the second making over that of the first, below which something of the first was kept."""


def examine(loader: SwitchedLoader) -> list[ItemSeen]:
    """Let each worker examine a few samples, and return what they saw.

    Raises:
        MeasurementError: The user's code failed, or a worker.
    """
    workers = max(1, loader.num_workers)
    with loader_failures("examining"):
        loader.switch_real(modes.EXAMINE)
        for _ in range(_MOST_TURNS * workers):
            loader.next_batch()
            if sum(found.is_complete for found in loader.examinations()) >= workers:
                break
        loader.rest()
    return [item for found in loader.examinations() for item in found.items]


def with_examined(
    evidence: Evidence, items: Sequence[ItemSeen], observed: Observation, spans: Sequence[Stage], plan: Plan
) -> Evidence:
    """Return the evidence with what the examined samples show.

    Args:
        observed: Says what the stages take.
        spans: The stages that are measured.
        plan: How the dataset is cut.
    """
    return replace(
        evidence,
        amplification=tuple(find_amplified(items, observed, [span.name for span in spans])) if items else (),
        repeated=find_repeated(items, plan.within_sample),
    )


# --- amplification ------------------------------------------------------------------------------------------


def find_amplified(items: Sequence[ItemSeen], observed: Observation, spans: Sequence[str]) -> Iterator[AmplifiedSeen]:
    """What each stage touches for a sample, in the order of `SOURCES`; a median of 0 says that it is touched rarely."""
    found = {key for item in items for key in item.touched}
    for source, stage in sorted(found, key=lambda key: (list(SOURCES).index(key[0]), key[1])):
        yield _seen_of(source, stage, items, observed, spans)
    read = [item.read_bytes / item.samples for item in items if item.read_bytes is not None]
    reading = next((stage for stage in ("load", "fetch") if stage in observed.stages), None)
    if read and reading is not None:
        kept = median(_kept(item, reading)[0] / item.samples for item in items)
        yield AmplifiedSeen(
            source=READ,
            stage=span_of(reading, list(spans)),
            unit="bytes",
            touched_per_sample=median_low(read),
            kept_per_sample=kept,
        )


def _seen_of(
    source: str, stage: str, items: Sequence[ItemSeen], observed: Observation, spans: Sequence[str]
) -> AmplifiedSeen:
    rows = [item.touched.get((source, stage), Touched()) for item in items]
    samples = sum(item.samples for item in items)
    opens, names = sum(row.opens for row in rows), set().union(*(row.names for row in rows))
    in_frames = source == "video"
    touched, kept = _frames(rows, items, stage) if in_frames else _bytes(source, rows, items, stage)
    units = median_low(row.units / item.samples for row, item in zip(rows, items, strict=True))
    stage_s = observed.stages[stage].wall_s / max(1, observed.samples) if stage in observed.stages else 0.0
    return AmplifiedSeen(
        source=source,
        stage=span_of(stage, list(spans)),
        unit="frames" if in_frames else "bytes",
        touched_per_sample=touched,
        kept_per_sample=kept,
        rows_per_sample=units if units and not in_frames else None,
        calls_per_sample=sum(row.calls for row in rows) / samples,
        samples=samples,
        opens=opens or None,
        opened_files=len(names) if opens else None,
        share=_part(sum(row.seconds for row in rows) / samples, stage_s),
        opening_share=_part(sum(row.opening_s for row in rows) / samples, stage_s) if opens else None,
    )


def _bytes(source: str, rows: Sequence[Touched], items: Sequence[ItemSeen], stage: str) -> tuple[float, float]:
    """Bytes that are touched for a sample, and those of it that are kept."""
    touched = [
        row.nbytes / item.samples if source not in _MAY_BE_KEPT or _was_read(row, item) else 0.0
        for row, item in zip(rows, items, strict=True)
    ]
    kept = [
        (row.kept if row.kept is not None else _kept(item, stage)[0]) / item.samples
        for row, item in zip(rows, items, strict=True)
    ]
    return median_low(touched), median(kept)


def _was_read(row: Touched, item: ItemSeen) -> bool:
    return item.read_bytes is None or row.nbytes <= _MOST_UNPACKED * item.read_bytes


def _frames(rows: Sequence[Touched], items: Sequence[ItemSeen], stage: str) -> tuple[float, float]:
    """Frames that are decoded for a sample, and those that it keeps; 0 where it does not look like images."""
    touched = median_low(row.units / item.samples for row, item in zip(rows, items, strict=True))
    return touched, median(_kept(item, stage)[1] / item.samples for item in items)


def _kept(item: ItemSeen, stage: str) -> tuple[int, int]:
    """Bytes and frames of what a stage hands on to the augmentation, or else of the item."""
    loaded = [output for output in item.outputs if output.stage == stage == "load"]
    kept = loaded or item.outputs[-1:]
    return sum(output.nbytes for output in kept), sum(output.frames for output in kept)


def _part(seconds: float, whole_s: float) -> float | None:
    return min(1.0, seconds / whole_s) if whole_s > 0 else None


# --- the same again -----------------------------------------------------------------------------------------


def find_repeated(items: Iterable[ItemSeen], within_sample: Sequence[str]) -> RepeatedSeen:
    """What came out the same when a sample was made twice, up to the last of the stages for which that holds."""
    twice = [item for item in items if any(output.again is not None for output in item.outputs)]
    if not twice:
        return RepeatedSeen()
    names = dict.fromkeys(output.stage for item in twice for output in item.outputs)
    same = [name for name in names if _comes_again([_of_stage(item, name) for item in twice])]
    if not same:
        return RepeatedSeen(samples=len(twice))
    last = [_of_stage(item, same[-1]) for item in twice]
    samples = [item.samples for item in twice]
    return RepeatedSeen(
        samples=len(twice),
        stages=tuple(reversed(within_sample)) if same[-1] == ITEM else tuple(same),
        bytes_per_sample=median(sum(o.nbytes for o in found) / n for found, n in zip(last, samples, strict=True)),
        seconds_per_sample=median(found[-1].again_s / n for found, n in zip(last, samples, strict=True)),
    )


def _of_stage(item: ItemSeen, name: str) -> list[Output]:
    return [output for output in item.outputs if output.stage == name]


def _comes_again(items: Sequence[Sequence[Output]]) -> bool:
    """Whether a stage gave the same in all items, and worked for it both times in most."""
    if not all(outputs and all(output.again for output in outputs) for outputs in items):
        return False
    return median(outputs[-1].again_s / max(outputs[-1].until_s, 1e-9) for outputs in items) >= _AGAIN

"""Where making a sample from files or memory holds the job: less decoding, a cache, whole batches at once."""

from __future__ import annotations

import math
from collections.abc import Iterator

from bottleneck.analysis.advice.case import Case, Suggestion, mostly_waits, rule, transforms_of, work_s_per_batch
from bottleneck.analysis.settings import over_0
from bottleneck.results.format import duration, number, significant, size
from bottleneck.results.names import LOAD, LOADING, makes_samples
from bottleneck.results.records import Stage

_PIXELS_TOO_MANY = 2.0
"""Decoded over used pixels from which on resizing beforehand is worth advising."""
_DRAFT = 4.0
"""The same from which on a JPEG can be decoded at half its width and height (libjpeg scales by 1/2, 1/4, 1/8)."""
_MARGIN = 1.15
"""The shorter side of files resized beforehand over that of the pixels used, so that crops have a choice."""
_KEPT = _MARGIN**2 * 4 / 3
"""Pixels of such files over those used; photographs are a third longer than wide."""
_MEMORY_SHARE = 0.5
"""Share of the free memory that a cache of the dataset may take."""
_TINY_S = 200e-6
"""Time per sample below which the calls themselves, of some microseconds each, are much of it."""
_FEWEST_SAMPLES = 8
_CALLS = 0.8
"""Share of the time of tiny samples that is taken to go when one call serves a batch."""
_OF_TORCH = frozenset(
    ("Dataset", "IterableDataset", "TensorDataset", "StackDataset", "ConcatDataset", "ChainDataset", "Subset")
)
"""Datasets of `torch.utils.data`, which nobody edits: what they hold is the user's."""


@rule("image-decoding")
def _image_decoding(case: Case) -> Iterator[Suggestion]:
    """Advise smaller files where many more pixels are decoded than the samples keep."""
    decoded = over_0(case.evidence.loader.decoded_pixels_per_sample)
    used = over_0(case.evidence.loader.used_pixels_per_sample)
    stage = case.holding(*LOADING)
    if stage is None or not decoded or not used or decoded < _PIXELS_TOO_MANY * used or mostly_waits(case, stage):
        return
    ratio, side = decoded / used, max(1, round(_MARGIN * math.sqrt(used)))
    # Where the stage is not cut, the transforms are part of it.
    decoding = 1 - sum(transform.share for transform in transforms_of(case, stage))
    draft = (
        f' or, for JPEG, decode small: image.draft("RGB", ({side}, {side})) right after Image.open();'
        if ratio >= _DRAFT
        else ""
    )
    yield Suggestion(
        stage=stage.name,
        title="Decode fewer pixels: resize the images once, beforehand",
        why=f"{number(decoded)} pixels of each image are decoded and {number(used)} are used, "
        f"{significant(ratio, 2)} times fewer; {_cost(case, stage)}",
        how=f"resize the files once, to a shorter side of {side}: "
        f"torchvision.transforms.functional.resize(image, {side}).save(path);{draft} "
        "torchvision.io.decode_jpeg is a faster decoder than Pillow",
        evidence={
            "decoded_pixels_per_sample": decoded,
            "used_pixels_per_sample": used,
            "cost_s_per_batch": _cost_s(stage),
        },
        gain=case.gain_of_part(stage, decoding * (1 - _KEPT / ratio)),
    )


@rule("cache-dataset")
def _cache_dataset(case: Case) -> Iterator[Suggestion]:
    """Advise keeping what was loaded where all of it fits into memory."""
    stage = case.holding(LOAD)
    each, length = over_0(case.evidence.loader.loaded_bytes_per_sample), case.positive("dataset_length")
    free = case.free_memory_bytes
    if stage is None or not each or not length or not free or each * length > _MEMORY_SHARE * free:
        return
    total = each * length
    yield Suggestion(
        stage=stage.name,
        title="Load the dataset once, and keep it in memory",
        why=f"All {number(length)} loaded samples take about {size(total)} of the {size(free)} that are "
        f"free; {_cost(case, stage)}",
        how=f"in {_dataset(case)}.__init__: load every sample once into one array or tensor (np.stack, torch.stack), "
        "before the workers start, so that they share it; __getitem__ then only takes from it",
        evidence={
            "loaded_bytes_per_sample": each,
            "dataset_length": length,
            "memory_available_bytes": free,
            "cost_s_per_batch": _cost_s(stage),
        },
        frees_stage=True,
    )


@rule("fetch-in-batches")
def _fetch_in_batches(case: Case) -> Iterator[Suggestion]:
    """Advise one call for a whole batch where samples are so small that the calls themselves are the work."""
    batch_size = case.positive("batch_size")
    if case.evidence.loader.fetches_batches is not False or case.evidence.loader.iterable:
        return
    if not batch_size or batch_size < _FEWEST_SAMPLES:
        return
    unresolved = case.input_bound and case.verdict.bottleneck is None and case.verdict.judged_by == "efficiency"
    stage = next((s for s in case.held_by if makes_samples(s.name) and not mostly_waits(case, s)), None)
    work = case.loader_s * max(1.0, case.workers) / batch_size if unresolved else _sample_s(case, batch_size)
    if (stage is None and not unresolved) or not work or work > _TINY_S:
        return
    # Where the stages are too small to be told apart, all of them together are what the calls are a part of.
    gain = case.gain_of(stage) if stage is not None else max(case.headroom, 1.0)
    yield Suggestion(
        stage=stage.name if stage is not None else None,
        title="Fetch whole batches by one call instead of sample by sample",
        why=f"Making a sample takes only {duration(work)}, {number(batch_size)} times for each batch: at that size "
        "much of the time goes into calls of Python's.",
        how=f"DataLoader(dataset, sampler=BatchSampler(RandomSampler(dataset), batch_size={batch_size:.0f}, "
        f"drop_last=False), batch_size=None), and let {_dataset(case)}.__getitem__(self, indices) take all of them at "
        "once: return self.data[indices]; or add __getitems__(self, indices)",
        evidence={"sample_s": work, "batch_size": batch_size, "gain": gain},
        gain=case.gain_of_part(stage, _CALLS) if stage is not None else 1 / (1 - _CALLS * (1 - 1 / gain)),
    )


def _sample_s(case: Case, batch_size: float) -> float | None:
    """What making a sample takes of a worker, loading and augmentation together; None where not measured."""
    works = [work_s_per_batch(case, stage) for stage in case.stages if makes_samples(stage.name)]
    known = [work for work in works if work is not None]
    return sum(known) / batch_size if known and len(known) == len(works) else None


def _cost_s(stage: Stage) -> float | None:
    known = stage.cost_s_per_batch or stage.exposed_s_per_batch
    return None if known is None else known.estimate


def _cost(case: Case, stage: Stage) -> str:
    cost_s = _cost_s(stage)
    takes = f"{stage.name} takes {duration(cost_s)} a batch" if cost_s is not None else f"{stage.name} holds the job"
    return f"{takes}, at a step of {duration(case.step_s)}."


def _dataset(case: Case) -> str:
    name = str(case.pipeline.get("dataset") or "")
    return name if name and name not in _OF_TORCH else "your dataset"


RULES = (_image_decoding, _cache_dataset, _fetch_in_batches)

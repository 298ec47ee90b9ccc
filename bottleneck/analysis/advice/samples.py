"""Making samples, if it limits the job: decoding, caching and transforms, with their order and place."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence

from bottleneck.analysis.advice.case import WORTH, WORTH_NAMING, Case, Suggestion, rule
from bottleneck.analysis.advice.lines import top_line
from bottleneck.analysis.advice.transforms import (
    Transform,
    mostly_waits,
    transforms_of,
    with_its_parts,
    work_s_per_batch,
)
from bottleneck.analysis.settings import MOSTLY, over_0
from bottleneck.results.format import duration, gain, names, number, percent, significant
from bottleneck.results.names import LOADING, makes_samples
from bottleneck.results.records import Stage

# --- loading ------------------------------------------------------------------------------------------------

IMAGE = "image"
"""Sources decoded by OpenCV or torchvision."""
PIXELS_TOO_MANY = 2.0
"""Decoded over used pixels above which resizing beforehand is worth advising."""
_DRAFT = 4.0
"""The same above which a JPEG can be decoded at half its width and height (libjpeg scales by 1/2, 1/4, 1/8)."""
MARGIN = 1.15
"""The shorter side of files resized beforehand over that of the pixels used, so that crops have a choice."""
_KEPT = MARGIN**2 * 4 / 3
"""Pixels of such files over those used; photographs are a third longer than wide."""
TINY_S = 200e-6
"""Time per sample below which the calls themselves, of some microseconds each, are much of it."""
_MIN_SAMPLES = 8
_CALLS = 0.8
"""Share of the time of tiny samples that is assumed to vanish if one call makes a batch."""


@rule("image-decoding")
def _image_decoding(case: Case) -> Iterator[Suggestion]:
    """Advise smaller files if many more pixels are decoded than the samples keep."""
    decoded = over_0(case.evidence.loader.decoded_pixels_per_sample)
    used = over_0(case.evidence.loader.used_pixels_per_sample)
    stage = next((stage for stage in case.suspects if stage.name in LOADING), None)
    if stage is None or not decoded or not used or decoded < PIXELS_TOO_MANY * used or mostly_waits(case, stage):
        return
    ratio, side = decoded / used, max(1, round(MARGIN * math.sqrt(used)))
    # Where the stage is not cut, the transforms are part of it.
    decoding = 1 - sum(transform.share for transform in transforms_of(case, stage))
    once, small = f"resize the files once, to a shorter side of {side}", " or, for JPEG, decode small"
    top, scale = top_line(case, stage), next((n for n in (8, 4, 2) if ratio >= n * n * 2 * _KEPT), 1)
    if all(seen.source != IMAGE for seen in case.evidence.amplification):  # of Pillow's no call is watched
        draft = f'{small}: image.draft("RGB", ({side}, {side})) right after Image.open();' if ratio >= _DRAFT else ""
        resized = f"torchvision.transforms.functional.resize(image, {side}).save(path)"
        how = f"{once}: {resized};{draft} torchvision.io.decode_jpeg is a faster decoder than Pillow"
    else:
        is_small = scale > 1 and not (top is not None and (top.calls or "").startswith("torchvision."))
        how = once + f";{small}: cv2.imread(path, cv2.IMREAD_REDUCED_COLOR_{scale})" * is_small
    yield Suggestion(
        stage=stage.name,
        title="Decode fewer pixels: resize the images once, beforehand",
        why=f"{number(decoded)} pixels of each image are decoded and {number(used)} are used, "
        f"{significant(ratio, 2)} times fewer; {cost_in_words(case, stage)}",
        how=how,
        evidence={
            "decoded_pixels_per_sample": decoded,
            "used_pixels_per_sample": used,
            "cost_s_per_batch": cost_s(stage),
        },
        gain=case.gain_of_part(stage, decoding * (1 - _KEPT / ratio)),
    )


@rule("fetch-in-batches")
def _fetch_in_batches(case: Case) -> Iterator[Suggestion]:
    """Advise one call for a whole batch if samples are so small that the calls themselves are the work."""
    batch_size = case.positive("batch_size")
    if case.evidence.loader.fetches_batches is not False or case.evidence.loader.iterable:
        return
    if not batch_size or batch_size < _MIN_SAMPLES:
        return
    unresolved = case.is_unresolved
    stage = next((s for s in case.held_by if makes_samples(s.name) and not mostly_waits(case, s)), None)
    work = case.loader_s * max(1.0, case.workers) / batch_size if unresolved else _sample_s(case, batch_size)
    if (stage is None and not unresolved) or not work or work > TINY_S:
        return
    # Where the stages are too small to be told apart, all of them together are what the calls are a part of.
    most = case.gain_of(stage) if stage is not None else max(case.headroom, 1.0)
    promised = case.gain_of_part(stage, _CALLS) if stage is not None else 1 / (1 - _CALLS * (1 - 1 / most))
    left_s = case.step_s - _CALLS * work * batch_size / max(1.0, case.workers)
    promised = min(promised, case.step_s / max(left_s, case.device_s))  # a cost may be of more than the calls
    if promised < WORTH:
        return
    yield Suggestion(
        stage=stage.name if stage is not None else None,
        title="Fetch whole batches by one call instead of sample by sample",
        why=f"Making a sample takes only {duration(work)}, {number(batch_size)} times for each batch: at that size, "
        "the overhead of calls in Python takes much of the time.",
        how=f"DataLoader(dataset, sampler=BatchSampler(RandomSampler(dataset), batch_size={batch_size:.0f}, "
        f"drop_last=False), batch_size=None), and let {dataset_of(case)}.__getitem__(self, indices) take all of them "
        "at once: return self.data[indices]; or add __getitems__(self, indices)",
        evidence={"sample_s": work, "batch_size": batch_size, "gain": most},
        gain=promised,
    )


def _sample_s(case: Case, batch_size: float) -> float | None:
    """Return a worker's time per sample, loading and augmentation together; None if not measured."""
    works = [work_s_per_batch(case, stage) for stage in case.stages if makes_samples(stage.name)]
    known = [work for work in works if work is not None]
    return sum(known) / batch_size if known and len(known) == len(works) else None


def cost_s(stage: Stage) -> float | None:
    """Return the seconds per batch of a stage; None if not measured."""
    known = stage.cost_s_per_batch or stage.exposed_s_per_batch
    return None if known is None else known.estimate


def cost_in_words(case: Case, stage: Stage) -> str:
    """Return a sentence on the time of a stage per batch."""
    cost = cost_s(stage)
    takes = f"{stage.name} takes {duration(cost)} a batch" if cost is not None else f"{stage.name} limits the job"
    return f"{takes}, at a step of {duration(case.step_s)}."


def dataset_of(case: Case) -> str:
    """Return the dataset's class, if it is the user's."""
    is_users = any(place.name == "__getitem__" for place in case.evidence.source)
    return str((is_users and case.pipeline.get("dataset")) or "your dataset")


# --- augmentation -------------------------------------------------------------------------------------------

_WORTH_MOVING = 0.1
"""Share of a stage that moving transforms has to save."""
_FEWER = 2.0
"""Pixels before over pixels after, above which a transform counts as a crop or resize."""
_IDLE = 1.1
"""Headroom above which the device has time to spare for the augmentation."""

PIXELWISE = re.compile(
    r"blur|jitter|normali[sz]e|solari[sz]e|posteri[sz]e|equali[sz]e|contrast|sharp|gr[ae]y|invert|noise|brightness"
    r"|saturation|hue|gamma|clahe|totensor|todtype|convertimagedtype|tofloat|flip|scaleintensity|photometric",
    re.IGNORECASE,
)
"""Transforms of each pixel separately, or nearly so: after a crop they give the same as before it."""
SMALLER = re.compile(r"crop|resize|downscale|downsample|thumbnail|smallestmaxsize|longestmaxsize", re.IGNORECASE)
_LESS_TO_RESAMPLE = "resize the files once beforehand, so that there is less to resample"
_BYTES = "; byte tensors are often faster to resize than Pillow images: `bottleneck tune --try v2_tensors`"
_FEWER_PIXELS = "smaller images, a cheaper setting, or fewer samples: "
_ITS_LINES = "find its costly lines (--flamegraph), and do its non-random part once beforehand"
_CONVERTS = re.compile(r"totensor|todtype|convertimagedtype|tofloat|normali[sz]e|scaleintensity", re.IGNORECASE)
_ON_DEVICE = re.compile(
    r"^(GaussianBlur|ColorJitter|Normalize|RandomSolarize|RandomPosterize|RandomEqualize|RandomAutocontrast"
    r"|RandomAdjustSharpness|RandomGrayscale|Grayscale|RandomInvert|ElasticTransform|RandomPerspective|RandomRotation"
    r"|RandomAffine|RandomHorizontalFlip|RandomVerticalFlip|RandomErasing|GaussianNoise|ToDtype|ConvertImageDtype)$"
)
"""Classes of torchvision.transforms.v2 that work on whole batches on the device; those that draw parameters draw
the same for all of a batch."""


@rule("costliest-transform")
def _costliest_transform(case: Case) -> Iterator[Suggestion]:
    """Name the single transform that takes most of a stage that limits the job."""
    for stage in _augmenting(case):
        rows = transforms_of(case, stage)
        top = max((with_its_parts(row, rows) for row in rows), key=lambda row: row.share)
        if top.share < WORTH_NAMING:
            continue
        yield Suggestion(
            stage=stage.name,
            title=f"Make {top.name} cheaper: it takes most of {stage.name}"
            if top.share > MOSTLY
            else f"Make {top.name} cheaper, the costliest transform of {stage.name}",
            why=f"{top.name} takes {percent(top.share)} of {stage.name}: {duration(top.wall_s_per_sample)} of a "
            "worker's time for each sample. The gain assumes that it takes no time.",
            how=f"{top.path}: {_cheaper(top)}",
            evidence={
                "path": top.path,
                "share": top.share,
                "wall_s_per_sample": top.wall_s_per_sample,
                "gain": case.gain_of(stage),
            },
            gain=case.gain_of_part(stage, top.share),
        )


def _cheaper(transform: Transform) -> str:
    """Return a way to make a transform cheaper; without images if it returns none."""
    is_of_torchvision = transform.module.startswith("torchvision.")
    if SMALLER.search(transform.name):
        # The modes of Pillow's images are in capitals.
        is_of_pillow = is_of_torchvision and transform.output[-1:].isupper()
        return _LESS_TO_RESAMPLE + (_BYTES if is_of_pillow and "Resize" in transform.name else "")
    if transform.pixels is None:
        return _ITS_LINES
    return _FEWER_PIXELS + ("RandomApply([...], p=0.5)" if is_of_torchvision else "a smaller p, if it has one")


@rule("crop-before")
def _crop_before(case: Case) -> Iterator[Suggestion]:
    """Advise the crop first if transforms work on pixels that a later one throws away."""
    for stage in _augmenting(case):
        rows = transforms_of(case, stage)
        found = _wasted(rows)
        if found is None:
            continue
        early, crop, saved = found
        if saved < _WORTH_MOVING:
            continue
        listed = names(_distinct(early))
        before, after = early[0].pixels or 0, crop.pixels or 1
        between = rows[rows.index(early[0]) : rows.index(crop)]  # they come behind the crop, too
        yield Suggestion(
            stage=stage.name,
            title=f"{crop.name} before {listed}",
            why=f"{listed} {_verb(early, 'works', 'work')} on {number(before)} pixels, and {crop.name} leaves "
            f"{number(after)} of them. After it, they would save about {percent(saved)} of {stage.name}; the gain is "
            "estimated from the number of pixels.",
            how=f"move {crop.path} ({crop.name}) in front of {early[0].path} ({early[0].name})",
            evidence={
                "proposed": {"order": [crop.path, *(row.path for row in between if row.holder == crop.holder)]},
                "pixels_before": before,
                "pixels_after": after,
                "share_saved": saved,
            },
            gain=case.gain_of_part(stage, saved),
        )


@rule("uint8-until-device")
def _uint8_until_device(case: Case) -> Iterator[Suggestion]:
    """Advise whole bytes up to the device if the workers make floats of pixels."""
    floats = next((saving for saving in case.evidence.payload.savings if saving.id == "few-levels"), None)
    if floats is None:
        return
    for stage in _augmenting(case):
        rows = [row for row in transforms_of(case, stage) if _CONVERTS.search(row.name)]
        share = sum(row.share for row in rows)
        if share < _WORTH_MOVING:
            continue
        listed, target = names(_distinct(rows)), "in the train step" if case.on_cpu else "on the device"
        yield Suggestion(
            stage=stage.name,
            title=f"Keep pixels as uint8 until they are {target}",
            why=f"batch{floats.path or ''} is {floats.what or 'made of few values'}, and {listed} "
            f"{_verb(rows, 'takes', 'take')} {percent(share)} of {stage.name} to turn bytes into floats.",
            how=f"v2.PILToTensor() instead of {rows[0].path}, and convert whole batches {target}: "
            "images.float().div_(255), then v2.Normalize(mean, std)",
            evidence={"share": share, "gain": case.gain_of(stage)},
            # A step on the CPU takes over the conversions; how much quicker they are there needs another run.
            gain=1.0 if case.on_cpu else case.gain_of_part(stage, share),
        )


@rule("augment-on-device")
def _augment_on_device(case: Case) -> Iterator[Suggestion]:
    """Advise transforms on whole batches on a device that waits if the workers compute."""
    if case.on_cpu or case.headroom < _IDLE:
        return
    for stage in _augmenting(case):
        rows = [
            row
            for row in transforms_of(case, stage)
            if row.module.startswith("torchvision.") and _ON_DEVICE.match(row.name)
        ]
        share = sum(row.share for row in rows)
        if share < WORTH_NAMING:
            continue
        listed = _distinct(rows)
        yield Suggestion(
            stage=stage.name,
            title=f"Run {names(listed)} on the device, on whole batches",
            why=f"{names(listed)} {_verb(rows, 'takes', 'take')} {percent(share)} of {stage.name}, in workers that "
            f"are computing, while the device could do {gain(case.headroom)} as much. The gain is an estimate that "
            "assumes no extra time on the device.",
            how=f"in the train step: images = v2.Compose([{', '.join(f'v2.{name}(...)' for name in listed)}])"
            "(images.to(device)); random ones then draw once for a batch, those of kornia for each sample",
            evidence={"share": share, "headroom": case.headroom, "gain": case.gain_of(stage)},
            gain=case.gain_of_part(stage, share),
        )


def _augmenting(case: Case) -> Iterator[Stage]:
    """Yield the stages that limit the job, have single transforms, and compute."""
    for stage in case.held_by:
        if transforms_of(case, stage) and not mostly_waits(case, stage):
            yield stage


def _distinct(rows: Sequence[Transform]) -> list[str]:
    return list(dict.fromkeys(row.name for row in rows))


def _verb(rows: Sequence[Transform], singular: str, plural: str) -> str:
    return singular if len(_distinct(rows)) == 1 else plural


def _wasted(rows: tuple[Transform, ...]) -> tuple[list[Transform], Transform, float] | None:
    """Return the transforms before a crop that would be cheaper behind it, the crop, and the share that this saves."""
    best: tuple[list[Transform], Transform, float] | None = None
    for place, crop in enumerate(rows):
        after = crop.pixels
        if not after or not SMALLER.search(crop.name):
            continue
        early = [
            row
            for row in rows[:place]
            if row.holder and row.holder == crop.holder and PIXELWISE.search(row.name)
            if not SMALLER.search(row.name) and (row.pixels or 0) >= _FEWER * after
        ]
        saved = sum(row.share * (1 - after / (row.pixels or after)) for row in early)
        if early and (best is None or saved > best[2]):
            best = early, crop, saved
    return best


RULES = (
    _image_decoding,
    _fetch_in_batches,
    _costliest_transform,
    _crop_before,
    _uint8_until_device,
    _augment_on_device,
)

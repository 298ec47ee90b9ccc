"""A next experiment for each stage: what usually makes it cheaper, beside what it costs in this run."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from bottleneck.analysis.advice.rule import Case, Item, rule
from bottleneck.analysis.advice.stage_idle_time import waiting_share
from bottleneck.analysis.advice.transforms import shows_images
from bottleneck.analysis.advice.worker_gain import more_at_once
from bottleneck.results.format import cache_option, duration, names, percent, percent_interval
from bottleneck.results.names import COMPUTE, stages_in
from bottleneck.results.records import Advice, Stage

_KEPT = ("cut-fetch", "mark-other", "wait-less", "split-stages")
"""Ids that stay beside whatever else is advised: they ask for a closer look, or rest on what was seen of the stage."""


@dataclass(frozen=True)
class _Remedy:
    id: str
    title: str
    how: str


_REMEDIES = {
    "augment": _Remedy(
        "cheaper-augment",
        "Make the augmentation cheaper, or move it to the device",
        "do beforehand, once, whatever is not random; run the rest on whole batches in the train step, on the device",
    ),
    "load": _Remedy(
        "cheaper-load",
        "Read and decode less for each sample",
        "do once beforehand what is the same in every epoch (parsing, decoding, conversion), and store what comes out "
        "of it in a form that is read in one piece: arrays, tensors, Arrow",
    ),
    "fetch": _Remedy(
        "cut-fetch",
        "Separate the augmentation from the loading, to see which of the two it is",
        'Pipeline(..., augment="transform"): the attribute of the dataset that augments',
    ),
    "other": _Remedy(
        "mark-other",
        "Mark more of what __getitem__ does: most of its time is in code without a mark",
        'put @bottleneck.stage("name") on the functions that it calls, and diagnose again',
    ),
    "collate": _Remedy(
        "cheaper-collate",
        "Collate tensors in one go",
        "return tensors from the dataset and torch.stack() them once; pad to the longest sample of the "
        "batch, and sort samples of like length into one batch",
    ),
    "handoff": _Remedy(
        "smaller-handoff",
        "Send fewer and smaller objects from the workers",
        "return a few large tensors instead of lists, dicts or objects, in the smallest types that hold their values",
    ),
    "copy": _Remedy(
        "smaller-copy",
        "Copy fewer bytes to the device",
        "send values in the smallest type that holds them and convert on the device; leave out tensors that the model "
        "never reads",
    ),
    "finish": _Remedy(
        "cheaper-finish",
        "Make what follows the augmentation in __getitem__ cheaper",
        "move conversions behind the collation, where one call serves the whole batch",
    ),
}


_REMEDIES_FOR_IMAGES = {
    "augment": _Remedy(
        "cheaper-augment",
        "Make the augmentation cheaper, or move it to the device",
        "crop before anything that touches every pixel; run the rest on whole batches in the train step: "
        "images = torchvision.transforms.v2.ColorJitter(0.4, 0.4, 0.4)(images.to(device))",
    ),
    "load": _Remedy(
        "cheaper-load",
        "Read and decode less for each sample",
        'resize the files once beforehand, or decode small: image.draft("RGB", (256, 256)) before '
        "image.convert() (Pillow, JPEG); torchvision.io.decode_jpeg is a faster decoder",
    ),
    "handoff": _Remedy(
        "smaller-handoff",
        "Send fewer and smaller objects from the workers",
        "return a few large tensors instead of lists, dicts or objects, and send pixels as uint8: "
        "images.to(device).float().div_(255) in the train step",
    ),
    "copy": _Remedy(
        "smaller-copy",
        "Copy fewer bytes to the device",
        "send pixels as uint8 and convert there: images.to(device, non_blocking=True).float().div_(255); "
        "leave out tensors that the model never reads",
    ),
}
"""Said only where the run saw images."""

# Where the device is the CPU, moving work from the workers to the train step gains nothing.
_REMEDIES_ON_CPU = {
    "augment": _Remedy(
        "cheaper-augment",
        "Make the augmentation cheaper",
        "do beforehand, once, whatever is not random; apply the costly parts of the rest to fewer samples",
    ),
}
_REMEDIES_FOR_IMAGES_ON_CPU = {
    "augment": _Remedy(
        "cheaper-augment",
        "Make the augmentation cheaper",
        "crop and resize before anything that touches every pixel; keep pixels as uint8 until the end; do "
        "beforehand, once, whatever is not random",
    ),
}


# What is advised of a stage that waits for most of its time; a faster decoder would gain it nothing.
_STORAGE = (
    "keep the data on a local disk, in shards of many samples (tar files, WebDataset) instead of one file each",
    "a worker that waits takes no core: try {setting}; ",
    "",
)
_LOCKS = (
    "look for locks, sleeps, other processes and the network in it (py-spy dump --pid PID of a worker)",
    "",
    "; as long as it waits, more workers help: try {setting}",
)
"""What to do; what goes before it and behind it where more workers are of use."""
_MOSTLY = 0.5


def _remedies(case: Case) -> dict[str, _Remedy]:
    """Return the remedies by stage that fit the device and what the run saw of the data."""
    remedies = {**_REMEDIES, **(_REMEDIES_ON_CPU if case.on_cpu else {})}
    if shows_images(case):
        remedies |= {**_REMEDIES_FOR_IMAGES, **(_REMEDIES_FOR_IMAGES_ON_CPU if case.on_cpu else {})}
    return remedies


def _waiting_remedy(case: Case, stage: Stage) -> _Remedy:
    loads = stage.name in ("load", "fetch")
    what, before, behind = _STORAGE if loads else _LOCKS
    how = more_at_once(case, before) + what + more_at_once(case, behind)
    if stage.name == "fetch":
        how += '; mark its parts with @bottleneck.stage("read") and so on, to see which of them waits'
    title = "Wait less for storage or the network" if loads else f"Find out what {stage.name} waits for"
    return _Remedy("wait-less", title, how)


def _split(case: Case, stage: Stage) -> _Remedy | None:
    """Return what tells stages apart that could not be, for lack of memory; None for a stage of its own."""
    parts = stages_in(stage.name)
    if len(parts) == 1:
        return None
    wanted = case.evidence.cache_bytes_wanted
    option = "--cache-bytes SIZE (in Python: cache_bytes=)" if wanted is None else cache_option(wanted)
    return _Remedy("split-stages", f"Give the caches more memory, to tell {names(parts)} apart", option)


def _spent(stage: Stage, waiting: float | None) -> str:
    """Return a sentence on how the stage passes its time; empty where it says nothing of use."""
    if waiting is None:
        return ""
    if waiting > _MOSTLY:
        return f" It is waiting {percent(waiting)} of its time, and computes for the rest."
    return f" It computes for {percent(1 - waiting)} of its time." if stage.name in ("load", "fetch") else ""


def _stage_advice(case: Case, stage: Stage) -> Iterator[Item]:
    """Yield the next experiment for a stage that holds the job; nothing where its cost is not known."""
    known = stage.cost_s_per_batch or stage.exposed_s_per_batch
    if known is None or known.estimate <= 0 or stage.name == COMPUTE:
        return
    remedy = (
        _remedies(case).get(stage.name)
        or _split(case, stage)
        or _Remedy(
            "cheaper-stage",
            f"Make {stage.name} cheaper",
            f"time the lines of {stage.name}; do once beforehand what is the same in every epoch",
        )
    )
    waiting = waiting_share(stage, case.evidence)
    if waiting is not None and waiting > _MOSTLY and len(stages_in(stage.name)) == 1:
        remedy = _waiting_remedy(case, stage)
    evidence = {"cost_s_per_batch": known.estimate, "step_s": case.step_s, "gain": case.gain_of(stage)}
    if waiting is not None:
        evidence["waiting_share"] = waiting
    yield Item(
        case.gain_of(stage),
        Advice(
            id=remedy.id,
            stage=stage.name,
            title=remedy.title,
            why=f"{stage.name} takes {duration(known.estimate)} a batch, at a step of {duration(case.step_s)}."
            f"{_spent(stage, waiting)}",
            how=remedy.how,
            evidence=evidence,
        ),
        basis=case.basis_of(stage),
        fallback=remedy.id not in _KEPT,
    )


@rule("cheaper-stage", "split-stages", "wait-less", *sorted(remedy.id for remedy in _REMEDIES.values()))
def _named_stages(case: Case) -> Iterator[Item]:
    """Advise a next experiment for the bottleneck and each contributor."""
    for name in (case.verdict.bottleneck, *case.verdict.contributors):
        stage = case.stage(name) if name else None
        if stage is not None and case.verdict.state == "input_bound":
            yield from _stage_advice(case, stage)


@rule("faster-step")
def _device(case: Case) -> Iterator[Item]:
    """Advise work on the train step where the device holds the job: leave the input pipeline alone."""
    if case.verdict.state != "device_bound" or case.lost is None:
        return
    advice = Advice(
        id="faster-step",
        stage=COMPUTE,
        title="Leave the input pipeline; make the train step faster",
        why=(
            f"The step takes {duration(case.device_s)} of {duration(case.step_s)} a batch; free input would "
            f"save {percent_interval(case.lost)} of it."
        ),
        how="model = torch.compile(model); torch.autocast for matrix products; a larger batch",
        evidence={"device_s_per_batch": case.device_s, "step_s": case.step_s},
    )
    yield Item(1.0, advice, fallback=True)


RULES = (_named_stages, _device)

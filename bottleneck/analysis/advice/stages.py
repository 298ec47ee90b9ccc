"""A next experiment for each stage: what usually makes it cheaper, and what it costs in this run."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from bottleneck.analysis.advice.case import MOSTLY, Case, Suggestion, rule, shows_images
from bottleneck.analysis.advice.workers import more_at_once
from bottleneck.analysis.parts import waiting_share
from bottleneck.results.format import cache_option, duration, gain, names, percent, percent_interval
from bottleneck.results.names import (
    AUGMENT,
    COLLATE,
    COMPUTE,
    COPY,
    FETCH,
    FINISH,
    HANDOFF,
    LOAD,
    LOADING,
    OTHER,
    stages_in,
)
from bottleneck.results.records import Stage

_KEPT = ("cut-fetch", "mark-other", "wait-less", "split-stages")
"""Ids that are given whatever else is advised: they ask for a closer look, or rest on how the stage ran."""


@dataclass(frozen=True)
class _Remedy:
    id: str
    title: str
    how: str


_REMEDIES = {
    AUGMENT: _Remedy(
        "cheaper-augment",
        "Make the augmentation cheaper, or move it to the device",
        "do beforehand, once, whatever is not random; run the rest on whole batches in the train step, on the device",
    ),
    LOAD: _Remedy(
        "cheaper-load",
        "Read and decode less for each sample",
        "do once beforehand what is the same in every epoch (parsing, decoding, conversion), and store what comes out "
        "of it in a form that is read in one piece: arrays, tensors, Arrow",
    ),
    FETCH: _Remedy(
        "cut-fetch",
        "Separate the augmentation from the loading, to see which of the two it is",
        'Pipeline(..., augment="transform"): the attribute of the dataset that augments',
    ),
    OTHER: _Remedy(
        "mark-other",
        "Mark more of what __getitem__ does: most of its time is in code without a mark",
        'put @bottleneck.stage("name") on the functions that it calls, and diagnose again',
    ),
    COLLATE: _Remedy(
        "cheaper-collate",
        "Do less for each batch in collate_fn",
        "do once beforehand, or sample by sample in __getitem__, whatever does not need the whole batch: parsing, "
        "tokenizing, conversion; what is left is to pad and to stack",
    ),
    HANDOFF: _Remedy(
        "smaller-handoff",
        "Send fewer and smaller objects from the workers",
        "return a few large tensors instead of lists, dicts or objects, in the smallest types that hold their values",
    ),
    COPY: _Remedy(
        "smaller-copy",
        "Copy fewer bytes to the device",
        "send values in the smallest type that holds them and convert on the device; leave out tensors that the model "
        "never reads",
    ),
    FINISH: _Remedy(
        "cheaper-finish",
        "Make what follows the augmentation in __getitem__ cheaper",
        "move conversions behind the collation, where one call serves the whole batch",
    ),
}


_HOW_FOR_IMAGES = {
    AUGMENT: "crop before anything that touches every pixel; run the rest on whole batches in the train step: "
    "images = torchvision.transforms.v2.ColorJitter(0.4, 0.4, 0.4)(images.to(device))",
    LOAD: 'resize the files once beforehand, or decode small: image.draft("RGB", (256, 256)) before '
    "image.convert() (Pillow, JPEG); torchvision.io.decode_jpeg is a faster decoder",
    HANDOFF: "return a few large tensors instead of lists, dicts or objects, and send pixels as uint8: "
    "images.to(device).float().div_(255) in the train step",
    COPY: "send pixels as uint8 and convert there: images.to(device, non_blocking=True).float().div_(255); "
    "leave out tensors that the model never reads",
}
"""Only where the run had images."""

# Where the device is the CPU, moving work from the workers to the train step gains nothing.
_AUGMENT_ON_CPU = "Make the augmentation cheaper"
_LOOK_INTO_FETCH = "See what takes the time in fetch"
_HOW_ON_CPU = "do beforehand, once, whatever is not random; apply the costly parts of the rest to fewer samples"
_HOW_ON_CPU_FOR_IMAGES = (
    "crop and resize before anything that touches every pixel; keep pixels as uint8 until the end; do beforehand, "
    "once, whatever is not random"
)


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
_OWN_WORKERS = (
    "give the loader within the dataset more workers, by an option of the dataset's own (such as TorchIO's "
    "Queue(num_workers=...)), as far as there are cores"
)
_OWN_MAKERS = (
    "if threads or processes of its own make them, give it more by its own option, as far as there are cores; if it "
    "reads by itself, read ahead, from a local disk"
)


def _usual_remedy(case: Case, name: str) -> _Remedy | None:
    """The remedy of a stage that fits the device and the data."""
    remedy, images = _REMEDIES.get(name), shows_images(case)
    if remedy is None:
        return None
    if name == FETCH and not case.has_loader:  # what is not cut by samples has no attribute or mark to cut it by
        return replace(remedy, title=_LOOK_INTO_FETCH, how="--flamegraph DIR draws the functions that take the time")
    if name == FETCH and case.in_script:
        return replace(remedy, how='put @bottleneck.stage("augment") on the function of the dataset that augments')
    if name == AUGMENT and case.on_cpu:
        return replace(remedy, title=_AUGMENT_ON_CPU, how=_HOW_ON_CPU_FOR_IMAGES if images else _HOW_ON_CPU)
    return replace(remedy, how=_HOW_FOR_IMAGES.get(name, remedy.how)) if images else remedy


def _waiting_remedy(case: Case, stage: Stage) -> _Remedy:
    if case.evidence.loader.own_workers:
        return _Remedy("wait-less", f"Let the workers within the dataset keep up: {stage.name} waits", _OWN_WORKERS)
    if not case.has_loader:  # whether it waits for storage or for threads of its own was not seen
        return _Remedy("wait-less", "Let what makes the batches keep up: the loop waits for it", _OWN_MAKERS)
    loads = stage.name in LOADING
    what, before, behind = _STORAGE if loads else _LOCKS
    how = more_at_once(case, before) + what + more_at_once(case, behind)
    if stage.name == FETCH:
        how += '; mark its parts with @bottleneck.stage("read") and so on, to see which of them waits'
    title = "Wait less for storage or the network" if loads else f"Find out what {stage.name} waits for"
    return _Remedy("wait-less", title, how)


def _split(case: Case, stage: Stage) -> _Remedy | None:
    """How to separate stages that share a span for lack of memory; None for a single stage."""
    parts = stages_in(stage.name)
    if len(parts) == 1:
        return None
    wanted = case.evidence.cache_bytes_wanted
    option = "--cache-bytes SIZE (in Python: cache_bytes=)" if wanted is None else cache_option(wanted)
    return _Remedy("split-stages", f"Give the caches more memory, to tell {names(parts)} apart", option)


def _spent(stage: Stage, waiting: float | None) -> str:
    """A sentence on how the stage passes its time; empty where it says nothing of use."""
    if waiting is None:
        return ""
    if waiting > MOSTLY:
        return f" It is waiting {percent(waiting)} of its time, and computes for the rest."
    return f" It computes for {percent(1 - waiting)} of its time." if stage.name in LOADING else ""


def _remedy(case: Case, stage: Stage, waiting: float | None) -> _Remedy:
    if waiting is not None and waiting > MOSTLY and len(stages_in(stage.name)) == 1:
        return _waiting_remedy(case, stage)
    own = _Remedy(
        "cheaper-stage",
        f"Make {stage.name} cheaper",
        f"time the lines of {stage.name}; do once beforehand what is the same in every epoch",
    )
    return _usual_remedy(case, stage.name) or _split(case, stage) or own


@rule("measure-longer")
def _measure_longer(case: Case) -> Iterator[Suggestion]:
    """Advise a longer measurement where the state is undecided."""
    if case.verdict.state != "undecided" or case.budget is None or case.lost is None:
        return
    yield Suggestion(
        title="Measure longer before changing anything",
        why=f"The loss is {percent_interval(case.lost)}: it may be worth work or not. At most "
        f"{gain(case.headroom)} is to be gained.",
        how=f"--budget {case.budget}",
        evidence={"loss_low": case.lost.low, "loss_high": case.lost.high},
    )


@rule("cheaper-stage", "split-stages", "wait-less", *sorted(remedy.id for remedy in _REMEDIES.values()))
def _stages_that_hold_the_job(case: Case) -> Iterator[Suggestion]:
    """Advise a next experiment for the bottleneck and each contributor, where its cost is known."""
    for stage in case.held_by:
        cost = stage.cost_s_per_batch or stage.exposed_s_per_batch
        if cost is None or cost.estimate <= 0:
            continue
        waiting = waiting_share(stage, case.evidence)
        remedy = _remedy(case, stage, waiting)
        evidence = {"cost_s_per_batch": cost.estimate, "step_s": case.step_s, "gain": case.gain_of(stage)}
        yield Suggestion(
            id=remedy.id,
            stage=stage.name,
            title=remedy.title,
            why=f"{stage.name} takes {duration(cost.estimate)} a batch, at a step of {duration(case.step_s)}."
            f"{_spent(stage, waiting)}",
            how=remedy.how,
            evidence=evidence if waiting is None else {**evidence, "waiting_share": waiting},
            frees_stage=True,
            fallback=remedy.id not in _KEPT,
        )


@rule("faster-step")
def _faster_step(case: Case) -> Iterator[Suggestion]:
    """Advise work on the train step where the device holds the job: leave the input pipeline alone."""
    if case.verdict.state != "device_bound" or case.lost is None:
        return
    yield Suggestion(
        stage=COMPUTE,
        title="Leave the input pipeline; make the train step faster",
        why=f"The step takes {duration(case.device_s)} of {duration(case.step_s)} a batch; free input would "
        f"save {percent_interval(case.lost)} of it.",
        how="model = torch.compile(model); torch.autocast for matrix products; a larger batch",
        evidence={"device_s_per_batch": case.device_s, "step_s": case.step_s},
        fallback=True,
    )


RULES = (_measure_longer, _stages_that_hold_the_job, _faster_step)

"""Names of experiments and stages, and of spans in which several stages could not be told apart: `handoff+collate`."""

from __future__ import annotations

from collections.abc import Collection

# --- experiments ------------------------------------------------------------------------------------------

DEVICE = "device"
HOST = "host"
AFTER_COLLATE = "after_collate"
BEFORE_COLLATE = "before_collate"
RAW = "raw"
COLD = "cold"
"""The experiment in which the files of the samples are not in memory; the stage that it adds to raw is `storage`."""

# --- stages -----------------------------------------------------------------------------------------------

COMPUTE = "compute"
COPY = "copy"
HANDOFF = "handoff"
COLLATE = "collate"
AUGMENT = "augment"
LOAD = "load"
FETCH = "fetch"
"""Stands for `augment` and `load` where `__getitem__` cannot be cut."""
OTHER = "other"
"""The code around the stages that the user marked."""
SYNC = "sync"
"""Sharing gradients between ranks: no rung of the ladder, but a part of the train step that can be left out."""

BEYOND_THE_WORKER = (COPY, HANDOFF)
"""Stages that run, in part or whole, outside of the worker."""
LOADING = (LOAD, FETCH)
_BEHIND_SAMPLES = (COMPUTE, COPY, HANDOFF, COLLATE)
_INNERMOST = (HANDOFF, COLLATE)
"""What a joint span begins with; another name with a plus sign is one that the user chose."""


def crosses_process(name: str) -> bool:
    """Whether a part of a stage runs outside of the worker."""
    return any(stage in BEYOND_THE_WORKER for stage in stages_in(name))


def makes_samples(name: str) -> bool:
    """Whether a stage is part of making a sample, or has such a part."""
    return any(stage not in _BEHIND_SAMPLES for stage in stages_in(name))


def moves_batches(name: str) -> bool:
    """Whether all of a stage is the transport of a batch from the worker to the device."""
    return crosses_process(name) and not makes_samples(name)


def is_cpu(device: object) -> bool:
    """Whether a device, such as `cuda:0`, is known to be the CPU: model and workers then share its cores."""
    return isinstance(device, str) and device.startswith("cpu")


# --- spans ------------------------------------------------------------------------------------------------


def stages_in(span: str) -> tuple[str, ...]:
    """The stages of a span, from the device outwards; one, unless they could not be told apart."""
    stages = tuple(span.split("+"))
    return stages if stages[0] in _INNERMOST else (span,)


def span_of(stage: str, spans: Collection[str]) -> str:
    """The span that a stage's work is part of; `fetch` stands for what is not measured apart in a sample."""
    for wanted in (stage, FETCH):
        found = next((span for span in spans if wanted == span or wanted in stages_in(span)), None)
        if found is not None:
            return found
    return stage

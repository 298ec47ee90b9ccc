"""Names of experiments and stages, and of spans of inseparable stages: `handoff+collate`."""

from __future__ import annotations

from collections.abc import Collection

# --- experiments ------------------------------------------------------------------------------------------

DEVICE = "device"
HOST = "host"
AFTER_COLLATE = "after_collate"
BEFORE_COLLATE = "before_collate"
RAW = "raw"
COLD = "cold"
"""Experiment in which the files of the samples are not in memory; it adds the stage `storage` to raw."""

# --- stages -----------------------------------------------------------------------------------------------

COMPUTE = "compute"
COPY = "copy"
HANDOFF = "handoff"
COLLATE = "collate"
AUGMENT = "augment"
LOAD = "load"
FETCH = "fetch"
"""Stage that replaces `augment` and `load` if `__getitem__` cannot be cut."""
OTHER = "other"
"""Code around the stages that the user marked."""
SYNC = "sync"
"""Sharing gradients between ranks: not on the ladder, but a part of the train step that can be left out."""

BEYOND_THE_WORKER = (COPY, HANDOFF)
"""Stages that run, at least in part, outside of the worker."""
LOADING = (LOAD, FETCH)
_BEHIND_SAMPLES = (COMPUTE, COPY, HANDOFF, COLLATE)
_INNERMOST = (HANDOFF, COLLATE)
"""First stages of a joint span; any other name with a plus sign was chosen by the user."""


def crosses_process(name: str) -> bool:
    """Return True if a part of a stage runs outside of the worker."""
    return any(stage in BEYOND_THE_WORKER for stage in stages_in(name))


def makes_samples(name: str) -> bool:
    """Return True if a stage, or a part of it, makes samples."""
    return any(stage not in _BEHIND_SAMPLES for stage in stages_in(name))


def moves_batches(name: str) -> bool:
    """Return True if a stage only transports a batch from the worker to the device."""
    return crosses_process(name) and not makes_samples(name)


def is_cpu(device: object) -> bool:
    """Return True if a device, such as `cuda:0`, is known to be the CPU, whose cores model and workers share."""
    return isinstance(device, str) and device.startswith("cpu")


# --- spans ------------------------------------------------------------------------------------------------


def stages_in(span: str) -> tuple[str, ...]:
    """Return the stages of a span, from the device outwards; one, unless they are inseparable."""
    stages = tuple(span.split("+"))
    return stages if stages[0] in _INNERMOST else (span,)


def span_of(stage: str, spans: Collection[str]) -> str:
    """Return the span that contains a stage's work; `fetch` contains any part of a sample not measured separately."""
    for wanted in (stage, FETCH):
        found = next((span for span in spans if wanted == span or wanted in stages_in(span)), None)
        if found is not None:
            return found
    return stage

"""Names of experiments and stages that rules depend on."""

from bottleneck.results.stage_names import stages_in

DEVICE = "device"
HOST = "host"
AFTER_COLLATE = "after_collate"
RAW = "raw"
COLD = "cold"
"""The experiment in which the files of the samples are not in memory; the stage that it adds to raw is `storage`."""

COMPUTE = "compute"
COPY = "copy"
HANDOFF = "handoff"
COLLATE = "collate"
LOAD = "load"
OTHER = "other"
"""The code around the stages that the user marked."""
BEYOND_THE_WORKER = (COPY, HANDOFF)
"""Stages of which a part or all is done by other threads and processes than the worker's."""
_BEHIND_SAMPLES = (COMPUTE, COPY, HANDOFF, COLLATE)


def goes_beyond_the_worker(name: str) -> bool:
    """Whether other threads and processes than the worker's do a part of a stage or all of it."""
    return any(stage in BEYOND_THE_WORKER for stage in stages_in(name))


def makes_samples(name: str) -> bool:
    """Whether a stage is part of making a sample, or has such a part."""
    return any(stage not in _BEHIND_SAMPLES for stage in stages_in(name))


def moves_batches(name: str) -> bool:
    """Whether all of a stage is what becomes of a batch beyond the worker, as far as that can be told apart."""
    return goes_beyond_the_worker(name) and not makes_samples(name)

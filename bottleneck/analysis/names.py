"""Names of experiments and stages that rules depend on."""

DEVICE = "device"
AFTER_COLLATE = "after_collate"
RAW = "raw"
COLD = "cold"
"""The experiment in which the files of the samples are not in memory; the stage that it adds to raw is `storage`."""

COMPUTE = "compute"
COPY = "copy"
HANDOFF = "handoff"
BEYOND_THE_WORKER = (COPY, HANDOFF)
"""Stages of which a part or all is done by other threads and processes than the worker's."""

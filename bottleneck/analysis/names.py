"""Names of experiments and stages that rules depend on."""

DEVICE = "device"
HOST = "host"
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

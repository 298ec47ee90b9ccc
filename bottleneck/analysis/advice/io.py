"""Where a job reads its data from: what the evidence on reads says, for rules and warnings."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bottleneck.analysis.settings import number, positive
from bottleneck.results.evidence import Evidence, ReadsOfExperiment
from bottleneck.results.names import RAW


def reads_of(evidence: Evidence, experiment: str) -> ReadsOfExperiment:
    """The row of an experiment: bytes and calls for each sample, and their source; nothing where it has none."""
    return next((row for row in evidence.reads.experiments if row.name == experiment), ReadsOfExperiment())


def raw_source(evidence: Evidence) -> str | None:
    """Where the job as it is reads from: `page cache`, `disk`, `unknown` or `none`; None if not measured."""
    return reads_of(evidence, RAW).source


def dataset_bytes(evidence: Evidence, pipeline: Mapping[str, Any]) -> float | None:
    """Estimate the size of the dataset from what its samples read; None where that is unknown."""
    length = number(pipeline, "dataset_length")
    row = reads_of(evidence, RAW)
    asked = row.asked_bytes_per_sample
    if length is None or asked is None or raw_source(evidence) not in ("page cache", "disk"):
        return None
    return length * max(asked, row.storage_bytes_per_sample or 0.0)


def fits_in_memory(evidence: Evidence, pipeline: Mapping[str, Any], environment: Mapping[str, Any]) -> bool | None:
    """Whether the page cache could hold the dataset from one epoch to the next; None where that is unknown."""
    size, memory = dataset_bytes(evidence, pipeline), positive(environment, "memory_bytes")
    return None if size is None or memory is None else size < memory

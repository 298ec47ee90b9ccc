"""Where a job reads its data from: what the evidence on reads says, for rules and warnings."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bottleneck.analysis import lookup

_RAW = "raw"


def reads_of(evidence: Mapping[str, Any], experiment: str) -> Mapping[str, Any]:
    """Return the row of an experiment: bytes and calls for each sample, and their source; empty where there is none."""
    rows = lookup.rows_at(evidence, "reads", "experiments")
    return next((row for row in rows if row.get("name") == experiment), {})


def raw_source(evidence: Mapping[str, Any]) -> str | None:
    """Return where the job as it is reads from: `page cache`, `disk`, `unknown` or `none`; None if not measured."""
    return lookup.text_at(reads_of(evidence, _RAW), "source")


def dataset_bytes(evidence: Mapping[str, Any], pipeline: Mapping[str, Any]) -> float | None:
    """Estimate the size of the dataset from what its samples read; None where they read nothing that is known."""
    length = lookup.number_at(pipeline, "dataset_length")
    row = reads_of(evidence, _RAW)
    asked = lookup.number_at(row, "asked_bytes_per_sample")
    if length is None or asked is None or raw_source(evidence) not in ("page cache", "disk"):
        return None
    return length * max(asked, lookup.number_at(row, "storage_bytes_per_sample") or 0.0)


def fits_in_memory(
    evidence: Mapping[str, Any], pipeline: Mapping[str, Any], environment: Mapping[str, Any]
) -> bool | None:
    """Tell whether the page cache could hold the dataset from one epoch to the next; None where that is not known."""
    size, memory = dataset_bytes(evidence, pipeline), lookup.number_at(environment, "memory_bytes")
    return None if size is None or memory is None or memory <= 0 else size < memory

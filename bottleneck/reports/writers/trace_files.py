"""The files of a trace, in a folder that the user names."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from bottleneck.reports.writers.profile_files import make_folder
from bottleneck.results.files import write_bytes
from bottleneck.results.traces import TraceFile

WHAT = "traces"
"""What the folder is for, for a sentence."""


def write_traces(traces: Iterable[TraceFile], folder: str | os.PathLike[str]) -> tuple[Path, ...]:
    """Write one file for each traced experiment, such as `device.json.gz`.

    Returns:
        The files.

    Raises:
        UsageError: One of them could not be written.
    """
    place = make_folder(folder, WHAT)
    written = []
    for trace in traces:
        path = place / f"{trace.experiment}.json.gz"
        write_bytes(path, trace.content)
        written.append(path)
    return tuple(written)

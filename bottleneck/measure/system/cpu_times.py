"""What the CPUs have spent their time on."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import psutil

from bottleneck.measure.system.cores import allowed_cpus


def cpu_times_of(cpus: Sequence[int] | None) -> list[Any]:
    """Return what CPUs have spent their time on so far [s], as psutil names it; nothing if it does not list them.

    Where all CPUs of the machine count (None: they do), it is one row for all of them: of a hundred cores the rows
    take ten times as long to parse.
    """
    if not cpus or len(cpus) >= (os.cpu_count() or 1):
        return [psutil.cpu_times()]
    rows = psutil.cpu_times(percpu=True)
    return [rows[number] for number in cpus] if cpus[-1] < len(rows) else []


def allowed_cpu_times() -> list[Any]:
    """Return the same for the CPUs that this process may use; for the whole machine where these are not listed."""
    return cpu_times_of(allowed_cpus()) or [psutil.cpu_times()]

"""What the CPUs that this process may use have spent their time on."""

from __future__ import annotations

from typing import Any

import psutil

from bottleneck.measure.system.cores import allowed_cpus


def allowed_cpu_times() -> list[Any]:
    """What each of the CPUs has spent its time on so far [s], as psutil names it."""
    cpus, allowed = psutil.cpu_times(percpu=True), allowed_cpus()
    return [cpus[number] for number in allowed] if allowed and allowed[-1] < len(cpus) else cpus

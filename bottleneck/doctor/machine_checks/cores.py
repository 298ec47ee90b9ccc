"""Examinations of the processors: how many are usable, how fast they run, and who else uses them."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from bottleneck.doctor.finding import Finding
from bottleneck.measure.system.cgroup import quota_cores
from bottleneck.measure.system.cores import allowed_cores, usable_cores

if TYPE_CHECKING:
    from bottleneck.measure.system.environment import OtherLoad

SAMPLE_S = 1.0
"""Kernels count processor time in ticks of 10 ms or so: less than a second says little."""
_MOST_LOAD_CORES, _MOST_LOAD_SHARE = 0.5, 0.1
"""Load by others that blurs a diagnosis: half a core, or a tenth of those that are usable if that is more."""
_THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
_DYNAMIC_DRIVERS = ("intel_pstate", "amd-pstate-epp", "amd-pstate")
"""Under these drivers 'powersave' still raises the clock with the load; what holds it down is a preference."""


def examine_cores() -> Finding:
    """Cores of the machine against those that this process may use."""
    present, allowed, quota = os.cpu_count() or 1, allowed_cores(), quota_cores()
    usable = usable_cores()
    if usable < present:
        why = "the affinity" if allowed <= (quota or allowed) else "the quota of its control group"
        return Finding(
            "warning",
            "cores",
            f"{usable:g} of {present} usable: {why} limits this process",
            "Choose num_workers after the usable cores, not after os.cpu_count().",
        )
    return Finding("ok", "cores", f"{present}, all usable")


def thread_settings() -> list[str]:
    """The environment variables that choose numbers of threads, as far as they are set, with their values."""
    return [f"{name}={os.environ[name]}" for name in _THREAD_VARIABLES if name in os.environ]


def examine_threads() -> Finding:
    """Threads that torch takes in the main process, against the usable cores."""
    import torch

    threads = torch.get_num_threads()
    message = f"torch uses {threads}, {', '.join(thread_settings()) or 'OMP_NUM_THREADS is not set'}"
    usable = max(1, int(usable_cores()))
    if threads > usable:
        return Finding(
            "warning",
            "threads",
            f"{message}; {usable} usable cores",
            f"export OMP_NUM_THREADS={usable}",
        )
    return Finding("ok", "threads", message)


def examine_clock(root: Path = Path("/sys/devices/system/cpu")) -> Finding:
    """Whether the system keeps the clock of the processors low."""
    governors = {_read(path) for path in sorted(root.glob("cpu[0-9]*/cpufreq/scaling_governor"))} - {""}
    if not governors:
        return Finding("ok", "clock", "CPU frequency governor: unknown")
    shown = ", ".join(sorted(governors))
    drivers = {_read(path) for path in root.glob("cpu[0-9]*/cpufreq/scaling_driver")}
    preferences = {_read(path) for path in root.glob("cpu[0-9]*/cpufreq/energy_performance_preference")}
    low = "powersave" in governors and (not drivers & set(_DYNAMIC_DRIVERS) or "power" in preferences)
    if low:
        return Finding(
            "warning", "clock", f"governor {shown}: it is kept low", "sudo cpupower frequency-set -g performance"
        )
    return Finding("ok", "clock", f"governor {shown}")


def _read(path: Path) -> str:
    try:
        return path.read_text(errors="replace").strip()
    except OSError:
        return ""


def examine_load(
    sample: OtherLoad | None = None, sleep: Callable[[float], None] = time.sleep, duration_s: float | None = None
) -> Finding:
    """How many cores other processes keep busy, over a short while.

    Args:
        sample: What counts; None: of this machine.
        sleep: How to wait.
        duration_s: How long it looks; None: as long as makes sense.
    """
    duration_s = SAMPLE_S if duration_s is None else duration_s
    if sample is None:
        from bottleneck.measure.system.environment import OtherLoad

        sample = OtherLoad()
    sample.start()
    sleep(duration_s)
    cores = sample.stop()
    message = f"other processes use {cores:.1f} cores (over {duration_s:g} s)"
    if cores > max(_MOST_LOAD_CORES, _MOST_LOAD_SHARE * usable_cores()):
        return Finding("warning", "load", message, "End them, or wait: they slow down and blur what is measured.")
    return Finding("ok", "load", message)

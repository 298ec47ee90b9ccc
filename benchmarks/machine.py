"""The machine on which the numbers were taken: enough to compare, nothing that names it."""

from __future__ import annotations

import os
import platform
import statistics
import subprocess
import time
from pathlib import Path

import psutil
import torch
import torchvision

_LOOK_S = 4.0
_WRITTEN_BY_US = ("results.json", "RESULTS.md", "gpu_evidence.jsonl", "GPU.md")


def describe_machine() -> dict[str, str]:
    """Property -> value, for people. No host name, no user name, no paths."""
    accelerator = torch.cuda.get_device_name() if torch.cuda.is_available() else "none"
    return {
        "processor": processor_name(),
        "cores": f"{usable_cores()} usable of {os.cpu_count()}",
        "memory": f"{psutil.virtual_memory().total / 2**30:.0f} GiB",
        "accelerator": accelerator,
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "torch": torch.__version__,
        "torchvision": torchvision.__version__,
    }


def describe_revision(directory: Path = Path(__file__).parent) -> str:
    """Return the version of this code: the commit, and whether anything but the results has changed since."""
    but_results = [":/", *(f":(exclude){name}" for name in _WRITTEN_BY_US)]
    try:
        name = _git(directory, "rev-parse", "--short=10", "HEAD")
        changed = _git(directory, "diff", "--name-only", "HEAD", "--", *but_results)
    except (OSError, subprocess.CalledProcessError):
        return "a revision unknown to git"
    return f"revision {name}" + (", with changes that are in no commit" if changed else "")


def _git(directory: Path, *arguments: str) -> str:
    done = subprocess.run(["git", *arguments], cwd=directory, check=True, capture_output=True, text=True)
    return done.stdout.strip()


def usable_cores() -> int:
    """Cores that this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def processor_name() -> str:
    """The processor model, as far as the system reports it."""
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as lines:
            for line in lines:
                if line.startswith("model name"):
                    return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def describe_steadiness(look_s: float = _LOOK_S) -> str:
    """Describe how much the time of one computation varies: on an idle machine, not at all."""
    took_s: list[float] = []
    until_s = time.perf_counter() + look_s
    while time.perf_counter() < until_s:
        begun_s = time.perf_counter()
        value = 1.0
        for _ in range(20_000):
            value = value * 1.0000001 + 1e-9
        took_s.append(time.perf_counter() - begun_s)
    median_s, slow_s = statistics.median(took_s), statistics.quantiles(took_s, n=10)[-1]
    return f"{min(took_s) * 1e3:.2f} ms at best, {median_s * 1e3:.2f} ms mostly, {slow_s * 1e3:.2f} ms one time in ten"

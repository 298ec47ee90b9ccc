"""Examinations of memory and of what workers hand their batches over with."""

from __future__ import annotations

import os
from pathlib import Path

from bottleneck.doctor.finding import Finding
from bottleneck.measure.system.cgroup import CGROUP_ROOT, PROC
from bottleneck.results.format import size

_LEAST_SHARED_MEMORY_BYTES = 1 << 30
_LEAST_OPEN_FILES = 4096
_LEAST_FREE_BYTES = 1 << 30
_MOST_SWAP_SHARE = 0.05
"""Of the memory; a little swap is what was not needed for long, and costs nothing."""


def examine_memory(cgroup_root: Path = CGROUP_ROOT, proc: Path = PROC) -> Finding:
    """Free memory within the limit of the container, and swap in use, which is all of the machine's."""
    import psutil

    from bottleneck.measure.system.environment import free_memory_bytes, memory_bytes

    machine, total = int(psutil.virtual_memory().total), memory_bytes(cgroup_root, proc)
    free, swapped = free_memory_bytes(cgroup_root, proc), psutil.swap_memory().used
    limited = f" (limit of the container; the machine has {size(machine)})" if total < machine else ""
    message = f"{size(free)} free of {size(total)}{limited}, {size(swapped)} of swap in use"
    if swapped > _MOST_SWAP_SHARE * machine:
        return Finding(
            "warning", "memory", message, "Reading swapped pages back looks like slow loading: end what fills memory."
        )
    if free < _LEAST_FREE_BYTES:
        return Finding("warning", "memory", message, "End other processes, or use fewer workers.")
    return Finding("ok", "memory", message)


def examine_shared_memory() -> Finding:
    """The room that workers have for handing over batches."""
    try:
        state = os.statvfs("/dev/shm")
    except (OSError, AttributeError):
        return Finding("ok", "shared memory", "no /dev/shm on this system")
    free = state.f_bavail * state.f_frsize
    message = f"/dev/shm has {size(state.f_blocks * state.f_frsize)}, {size(free)} of it free"
    if free < _LEAST_SHARED_MEMORY_BYTES:
        return Finding(
            "warning", "shared memory", message, "In Docker: --shm-size=8g or --ipc=host; else fewer workers."
        )
    return Finding("ok", "shared memory", message)


def examine_open_files() -> Finding:
    """The limit on open files: workers hand over tensors as file descriptors, if that is torch's strategy."""
    try:
        import resource
    except ImportError:  # Windows
        return Finding("ok", "open files", "no limit on this system")
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    unlimited = soft == resource.RLIM_INFINITY
    strategy = _sharing_strategy()
    message = "no limit" if unlimited else f"at most {soft}"
    if strategy == "file_system":
        return Finding("ok", "open files", f"{message}; tensors travel as named files, which need none for long")
    if strategy:
        message += "; each tensor on its way takes one"
    if not unlimited and soft < _LEAST_OPEN_FILES:
        most = 65536 if hard == resource.RLIM_INFINITY else min(65536, hard)
        return Finding("warning", "open files", message, f"ulimit -n {most}")
    return Finding("ok", "open files", message)


def _sharing_strategy() -> str | None:
    """How torch shares tensors between processes; None where it cannot be asked."""
    try:
        import torch.multiprocessing
    except (ImportError, OSError):
        return None
    return str(torch.multiprocessing.get_sharing_strategy())  # type: ignore[no-untyped-call]  # torch's

"""All examinations of this machine and this environment, in the order in which they are shown."""

from __future__ import annotations

from collections.abc import Callable

from bottleneck.doctor.finding import Finding, first_line
from bottleneck.doctor.machine_checks.accelerator import examine_device
from bottleneck.doctor.machine_checks.cores import examine_clock, examine_cores, examine_load, examine_threads
from bottleneck.doctor.machine_checks.memory import examine_memory, examine_open_files, examine_shared_memory
from bottleneck.doctor.machine_checks.profiler import examine_ptrace, examine_py_spy
from bottleneck.doctor.machine_checks.software import (
    examine_import_name,
    examine_start_method,
    examine_torch,
    examine_torchvision,
    examine_versions,
)

EXAMINATIONS: tuple[Callable[[], Finding], ...] = (
    examine_versions,
    examine_torch,
    examine_torchvision,
    examine_device,
    examine_cores,
    examine_threads,
    examine_clock,
    examine_load,
    examine_memory,
    examine_shared_memory,
    examine_open_files,
    examine_start_method,
    examine_py_spy,
    examine_ptrace,
    examine_import_name,
)


def examine_environment() -> list[Finding]:
    """All findings about this machine and this environment, in a fixed order."""
    return [_examined(examination) for examination in EXAMINATIONS]


def _examined(examination: Callable[[], Finding]) -> Finding:
    try:
        return examination()
    except Exception as error:  # noqa: BLE001 - one that this system does not allow must not keep the others back
        subject = examination.__name__.removeprefix("examine_").replace("_", " ")
        return Finding("warning", subject, f"not examined: {first_line(error)}")

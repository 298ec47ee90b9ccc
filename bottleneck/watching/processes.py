"""The processes of a running job: their list, commands and resource usage."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import psutil

from bottleneck.errors import MeasurementError, UsageError
from bottleneck.job.world import find_place
from bottleneck.results.stacks import Clocks

PROC = Path("/proc")
MAX_SOURCE_BYTES = 2_000_000
_PYTHON = re.compile(r"^(?:python|pypy)[\d.]*[a-z]*$")
_DEVICES = re.compile(r"^/dev/(?:nvidia\d+|kfd)$")


def python_processes(pid: int) -> list[psutil.Process]:
    """Return the Python processes among a process and its descendants, parents before their children.

    Raises:
        UsageError: There is no such process.
        MeasurementError: It belongs to another user, or none of the processes runs Python.
    """
    try:
        first = psutil.Process(pid)
        owner = first.uids().effective
        everything = [first, *first.children(recursive=True)]
    except psutil.NoSuchProcess:
        raise UsageError(f"There is no process {pid}.", "Find it with: ps -eo pid,etime,args | grep train.") from None
    if os.geteuid() not in (0, owner):
        raise MeasurementError(
            f"Process {pid} belongs to another user ({first.username()}).",
            "Run bottleneck attach as that user, or root.",
        )
    found = [process for process in everything if _runs_python(process)]
    if not found:
        raise MeasurementError(
            f"Neither process {pid} ({first.name()}) nor any that it started runs Python.",
            "Give the PID of the job itself, or of its launcher.",
        )
    return found


def _runs_python(process: psutil.Process) -> bool:
    try:
        if _PYTHON.match(os.path.basename(process.exe())):
            return True
        return "libpython" in (PROC / str(process.pid) / "maps").read_text(errors="replace")
    except (psutil.Error, OSError):
        return False


def topmost(processes: Sequence[psutil.Process]) -> list[psutil.Process]:
    """Return the processes that none of the others has started, directly or through a shell."""
    pids = {process.pid for process in processes}
    return [process for process in processes if not pids & {parent.pid for parent in process.parents()}]


def command_of(process: psutil.Process) -> tuple[str, ...]:
    """Return the command line; empty if it cannot be read."""
    try:
        return tuple(process.cmdline())
    except psutil.Error:
        return ()


def rank_of(process: psutil.Process) -> int | None:
    """Return the rank that a launcher has given to a process; None if it has no rank."""
    try:
        place = find_place(process.environ())
    except psutil.Error:
        return None
    return None if place is None else place.rank


def is_on_accelerator(pid: int) -> bool:
    """Return True if a process has opened an NVIDIA or AMD device."""
    with suppress(OSError):
        for link in (PROC / str(pid) / "fd").iterdir():
            with suppress(OSError):
                if _DEVICES.match(os.readlink(link)):
                    return True
    return False


def clocks_of(process: psutil.Process) -> Clocks | None:
    """Return the CPU time, queueing time and bytes read of a process so far; None if it has ended."""
    try:
        times = process.cpu_times()
    except psutil.Error:
        return None
    read = None
    with suppress(psutil.Error, AttributeError, NotImplementedError):
        read = process.io_counters().read_chars
    return Clocks(times.user + times.system, _queued_s(process.pid), read)


def _queued_s(pid: int) -> float | None:
    """Return the time in which threads of a process were ready to run without a core [s]; None if unknown."""
    waited_ns = 0
    try:
        for thread in (PROC / str(pid) / "task").iterdir():
            waited_ns += int((thread / "schedstat").read_text().split()[1])
    except (OSError, ValueError, IndexError):
        return None
    return waited_ns / 1e9


def used_between(before: Clocks | None, after: Clocks | None) -> Clocks | None:
    """Return the usage of a process between two readings; None if one of them is missing."""
    if before is None or after is None:
        return None
    queued, read = (
        None if then is None or now is None else max(0, now - then)
        for then, now in ((before.queued_s, after.queued_s), (before.read_bytes, after.read_bytes))
    )
    return Clocks(max(0.0, after.cpu_s - before.cpu_s), queued, None if read is None else int(read))


def source_of(pid: int, file: str) -> str | None:
    """Return the text of a file as a process sees it, even in a container; None if it cannot be read."""
    root, here = PROC / str(pid) / "root", PROC / str(pid) / "cwd"
    places = [here / file] if not os.path.isabs(file) else [root / file.lstrip("/"), Path(file)]
    for place in places:
        with suppress(OSError, ValueError):
            if place.stat().st_size <= MAX_SOURCE_BYTES:
                return place.read_text(encoding="utf-8")
    return None

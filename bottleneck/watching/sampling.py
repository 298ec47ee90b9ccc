"""Stacks and clocks of a running job, read from outside: the job is neither changed nor stopped."""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

import psutil

from bottleneck.analysis.watched.roles import is_users
from bottleneck.errors import MeasurementError
from bottleneck.measure.passes.pyspy import PySpyOptions, PySpyOutput, find_py_spy, record, why_py_spy_fails
from bottleneck.results.stacks import Clocks, Frame, ProcessStacks, Stack, ThreadStacks, Watched
from bottleneck.watching.devices import Devices
from bottleneck.watching.processes import (
    clocks_of,
    command_of,
    is_on_accelerator,
    python_processes,
    rank_of,
    source_of,
    topmost,
    used_between,
)

MAX_PROCESSES = 32
"""Maximum processes that are sampled: of a larger job, some represent all."""
_MAX_BESIDE = 2
"""Workers of each rank that are sampled in a larger job."""
_COST_S = 7e-4
"""CPU time that a sample of one process takes (py-spy 0.4.3, measured)."""
_OF_BUSY_CORES, _OF_IDLE_CORES = 0.01, 0.1
"""Shares of the machine's busy and idle cores for sampling, which the job does not notice."""
_MIN_HZ, _MAX_HZ = 8, 100
_LOOK_S = 0.5
"""Seconds in which idle cores are counted first."""
_ENDING_S = 1.0
"""Seconds for starting, writing and judging."""
_EVERY_S = 0.25

_PROFILE = re.compile(r'^Process (\d+) Thread \d+ "(.*)"$', re.DOTALL)
_NO_FRAME = re.compile(r'^(?:process \d+:"|thread \()')


def watch_job(
    pid: int, seconds: float, clock: Callable[[], float] = time.monotonic, pause: Callable[[float], None] = time.sleep
) -> Watched:
    """Watch a job for a while.

    Args:
        pid: Any process of the job; its descendants are watched with it.
        seconds: Maximum duration until the answer.
        clock: Monotonic time in seconds.
        pause: Waits for the given seconds.

    Raises:
        UsageError: There is no such process.
        MeasurementError: The job runs no Python, or may not be inspected.
    """
    program = find_py_spy()
    if program is None:
        raise MeasurementError("py-spy, which looks into processes, is not installed.", "pip install py-spy")
    ends_s = clock() + seconds
    processes = python_processes(pid)
    idle_cores = _idle_cores(pause)
    before = {process.pid: clocks_of(process) for process in processes}
    chosen = _chosen(processes)
    devices, began_s = Devices(), clock()
    sampling_s = max(1, int(ends_s - began_s - _ENDING_S))
    # A job with few processes is sampled with all descendants, including those that start later.
    in_full = len(chosen) == len(processes)
    options = PySpyOptions(
        "speedscope",
        sampling_s,
        _rate_hz(len(chosen), idle_cores, os.cpu_count() or 1),
        idle=True,
        pauses=False,
        in_full=True,
    )
    roots = topmost(processes) if in_full else chosen

    def look() -> None:
        devices.look()
        pause(_EVERY_S)

    found = record(program, tuple(one.pid for one in roots), options, look, grace_s=0.5)
    took_s = clock() - began_s
    _check(found, pid, program)
    stacks = {
        at: threads for output in found.values() if output.text for at, threads in read_stacks(output.text).items()
    }
    alive = (_process(at, threads, before) for at, threads in stacks.items())
    seen = _with_devices([one for one in alive if one is not None], devices)
    started_by = [_without_stacks(process) for process in _ancestors(processes[0])]
    return Watched(
        pid=pid,
        seconds=took_s,
        processes=(*seen, *started_by),
        sources=_sources(seen),
        workers=len(processes) - len(chosen),
    )


def _idle_cores(pause: Callable[[float], None]) -> float:
    psutil.cpu_percent(percpu=True)
    pause(_LOOK_S)
    return sum(1 - percent / 100 for percent in psutil.cpu_percent(percpu=True))


def _rate_hz(processes: int, idle_cores: float, cores: int) -> int:
    """Return the rate at which all processes can be sampled without a noticeable cost [Hz]."""
    room = _OF_BUSY_CORES * cores + _OF_IDLE_CORES * idle_cores
    return round(min(_MAX_HZ, max(_MIN_HZ, room / _COST_S / max(1, processes))))


def _chosen(processes: Sequence[psutil.Process]) -> list[psutil.Process]:
    """Return the processes to sample: all, or of many those nearest to the root, with few workers of each."""
    if len(processes) <= MAX_PROCESSES:
        return list(processes)
    taken: list[psutil.Process] = []
    beside: dict[int, int] = {}
    for process in processes:
        parent = process.ppid()
        is_alike = command_of(process) == next((command_of(one) for one in taken if one.pid == parent), None)
        if not is_alike or beside.get(parent, 0) < _MAX_BESIDE:
            taken.append(process)
            beside[parent] = beside.get(parent, 0) + is_alike
    return taken[:MAX_PROCESSES]


def _check(found: Mapping[int, PySpyOutput], pid: int, program: str) -> None:
    failures = [output.failure for output in found.values() if output.failure]
    if failures and len(failures) == len(found):
        # With descendants, py-spy takes a process that it may not inspect for one without Python.
        why = why_py_spy_fails(program, next(iter(found)), _ENDING_S) or failures[0]
        raise MeasurementError(f"py-spy cannot look into process {pid}: {why}.")


# --- the output of py-spy ---------------------------------------------------------------------------------------


def read_stacks(text: str) -> dict[int, tuple[ThreadStacks, ...]]:
    """Return the threads of each process in a complete speedscope file from py-spy."""
    document = json.loads(text)
    frames = [
        None if _NO_FRAME.match(one["name"]) else Frame(one.get("file") or "", one.get("line") or 0, one["name"])
        for one in document["shared"]["frames"]
    ]
    known: dict[tuple[int, ...], Stack] = {}

    def stack_of(sample: Sequence[int]) -> Stack:
        key = tuple(sample)
        if key not in known:
            known[key] = tuple(frame for at in key if (frame := frames[at]) is not None)
        return known[key]

    threads: dict[int, list[ThreadStacks]] = {}
    for profile in document["profiles"]:
        named = _PROFILE.match(profile["name"])
        if named is not None:
            stacks = tuple(map(stack_of, profile["samples"]))
            threads.setdefault(int(named[1]), []).append(ThreadStacks(named[2], stacks))
    return {pid: tuple(found) for pid, found in threads.items()}


# --- other facts about the processes ----------------------------------------------------------------------------


def _process(pid: int, threads: tuple[ThreadStacks, ...], before: Mapping[int, Clocks | None]) -> ProcessStacks | None:
    try:
        process = psutil.Process(pid)
        parent = process.ppid()
    except psutil.Error:  # it has ended meanwhile, as workers do with their epoch
        return None
    return ProcessStacks(
        pid=pid,
        parent=parent,
        command=command_of(process),
        threads=threads,
        clocks=used_between(before.get(pid), clocks_of(process)),
        rank=rank_of(process),
        on_accelerator=is_on_accelerator(pid),
    )


def _without_stacks(process: psutil.Process) -> ProcessStacks:
    return ProcessStacks(process.pid, process.ppid(), command_of(process))


def _ancestors(process: psutil.Process) -> list[psutil.Process]:
    try:
        return list(process.parents())
    except psutil.Error:
        return []


def _with_devices(processes: Iterable[ProcessStacks], devices: Devices) -> list[ProcessStacks]:
    found = list(processes)
    job = [one.pid for one in found if one.on_accelerator]
    known = [replace(one, device_busy=devices.busy_share(one.pid, job)) if one.pid in job else one for one in found]
    devices.close()
    return known


def _sources(processes: Sequence[ProcessStacks]) -> dict[str, str]:
    """Return the texts of the files at work by their paths, without those of Python and its packages."""
    found: dict[str, str] = {}
    for process in processes:
        files = {frame.file for thread in process.threads for stack in set(thread.stacks) for frame in stack}
        for file in files - found.keys():
            text = source_of(process.pid, file) if file and is_users(Frame(file, 0, "")) else None
            if text is not None:
                found[file] = text
    return found

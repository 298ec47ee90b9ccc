"""Stacks of a job that was watched from outside, and the clocks of its processes, before any judging."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple


class Frame(NamedTuple):
    """A function at work, and the line in it."""

    file: str
    line: int
    function: str
    """Its qualified name where the interpreter knows that, from Python 3.11 on."""


Stack = tuple[Frame, ...]
"""From the outermost frame inwards."""


@dataclass(frozen=True)
class ThreadStacks:
    """The stacks of a thread."""

    name: str
    stacks: tuple[Stack, ...]
    """One for each sample, in the order of time. The time between samples is random and without memory."""


@dataclass(frozen=True)
class Clocks:
    """Resources that a process used while it was watched, in seconds of its threads together."""

    cpu_s: float
    queued_s: float | None = None
    """Time in which threads were ready to run and had no core; None if the kernel does not say."""
    read_bytes: int | None = None
    """Bytes from files, pipes and sockets; None if that may not be read."""


@dataclass(frozen=True)
class ProcessStacks:
    """The stacks of a process, and its clocks."""

    pid: int
    parent: int
    command: tuple[str, ...]
    threads: tuple[ThreadStacks, ...] = ()
    clocks: Clocks | None = None
    rank: int | None = None
    """Its number among the processes of a launcher; None if unknown."""
    on_accelerator: bool = False
    """It has opened a device of NVIDIA's or AMD's."""
    device_busy: float | None = None
    """The share of the time in which its device ran any kernel; None if unknown."""


@dataclass(frozen=True)
class Watched:
    """The observations of a job."""

    pid: int
    """The process that was asked about."""
    seconds: float
    processes: tuple[ProcessStacks, ...]
    sources: Mapping[str, str] = field(default_factory=dict)
    """Texts of files that are in the stacks, where they could be read."""
    workers: int = 0
    """Processes of the job that were not looked into: it has many, and some of them stand for all."""

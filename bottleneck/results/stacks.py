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
    """What was seen of a thread."""

    name: str
    stacks: tuple[Stack, ...]
    """One for each sample, in the order of time. The time between samples is random and without memory."""


@dataclass(frozen=True)
class Clocks:
    """What a process used while it was watched, in seconds of its threads together."""

    cpu_s: float
    queued_s: float | None = None
    """Threads were ready to run and had no core; None where the kernel does not say."""
    read_bytes: int | None = None
    """From files, pipes and sockets; None where that may not be read."""


@dataclass(frozen=True)
class ProcessStacks:
    """What was seen of a process."""

    pid: int
    parent: int
    command: tuple[str, ...]
    threads: tuple[ThreadStacks, ...] = ()
    clocks: Clocks | None = None
    rank: int | None = None
    """Among the processes of a launcher; None where it has not said."""
    on_accelerator: bool = False
    """It has opened a device of NVIDIA's or AMD's."""
    device_busy: float | None = None
    """The share of the time in which its device ran any kernel; None where that is not known."""


@dataclass(frozen=True)
class Watched:
    """What was seen of a job."""

    pid: int
    """The process that was asked about."""
    seconds: float
    processes: tuple[ProcessStacks, ...]
    sources: Mapping[str, str] = field(default_factory=dict)
    """Texts of files that are in the stacks, where they could be read."""
    workers: int = 0
    """Processes of the job that were not looked into: it has many, and some of them stand for all."""

"""Stacks that a profiler sampled in the workers, before anything is concluded from them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from bottleneck.results.values import Count

SamplerName = Literal["py-spy", "in-process"]
DEEPEST = 150
"""Frames of a stack that are kept and drawn; a recursion may go deeper."""


@dataclass(frozen=True)
class Frame:
    """One function of a stack."""

    function: str
    file: str
    """Relative to the working directory, or shortened; no home directory shows."""
    line: Count | None = None
    """Where the function begins; None for native code."""


@dataclass(frozen=True)
class Stack:
    """A stack of the user's code."""

    frames: tuple[Frame, ...]
    """From the outermost inwards; at least one."""
    stage: str | None
    """The stage at work; None where the stack does not show it."""
    samples: float
    """Computing or waiting."""
    computing: float | None
    """Samples in which it computed; None where that is unknown. It may come from a second pass of the same length, so
    that it can exceed `samples` by chance."""


@dataclass(frozen=True)
class WorkerStacks:
    """The stacks of one process."""

    worker: int
    """Its number; 0 for the main process, where there are no workers."""
    stacks: tuple[Stack, ...]


@dataclass(frozen=True)
class StackProfile:
    """The samples of a profiler while the loader ran alone."""

    sampler: SamplerName
    rate_hz: float
    seconds: float
    """How long each process was sampled, waiting included."""
    workers: tuple[WorkerStacks, ...]
    in_workers: bool = True
    """False where there are no workers, and the main process loads the data."""

    @property
    def stacks(self) -> list[Stack]:
        """Those of all processes."""
        return [stack for worker in self.workers for stack in worker.stacks]

    @property
    def samples(self) -> float:
        """Samples of the user's code in all processes."""
        return sum(stack.samples for stack in self.stacks)

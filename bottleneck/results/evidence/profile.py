"""What a profiler found in the workers' code."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from msgspec import Meta

from bottleneck.results.evidence.fields import MOST_ROWS, Positions, left_out
from bottleneck.results.values import Amount, Count, Quantity


@dataclass(frozen=True, kw_only=True)
class FunctionSeen:
    """A function of the workers' code, and what it takes by itself."""

    function: str | None = None
    """Its name."""
    file: str | None = None
    """No home directory shows."""
    line: Count | None = None
    """Where it begins; None for native code."""
    own_share: Quantity | None = None
    """Its share of all samples of the user's code."""
    waiting_share: Quantity | None = None
    """The share of its own time in which nothing was computed."""
    stage: str | None = None
    """The stage that it works for; None where the stacks do not show it."""


@dataclass(frozen=True, kw_only=True)
class FrameSeen:
    """A function that stacks mention by its position."""

    function: str | None = None
    """Its name."""
    file: str | None = None
    line: Count | None = None
    """Where it begins; None for native code."""


@dataclass(frozen=True, kw_only=True)
class StackSeen:
    """A stack, as positions in the list of functions."""

    frames: Positions | None = None
    """From the outermost inwards."""
    stage: str | None = None
    """The stage at work."""
    samples: Amount | None = None
    """Computing or waiting."""
    computing: Amount | None = None
    """Samples in which it computed; None where that is unknown."""


@dataclass(frozen=True, kw_only=True)
class StacksKept:
    """The stacks of all processes together, the heaviest."""

    frames: Annotated[tuple[FrameSeen, ...], Meta(max_length=MOST_ROWS)] = ()
    """Each function once."""
    seen: Annotated[tuple[StackSeen, ...], Meta(max_length=MOST_ROWS)] = ()
    """The stacks."""
    left_out_samples: Amount | None = None
    """Samples of stacks too rare to be kept."""


@dataclass(frozen=True, kw_only=True)
class Profile:
    """What a profiler found in the workers' code."""

    sampler: str | None = None
    """`py-spy` or `in-process`."""
    rate_hz: Quantity | None = None
    seconds: Quantity | None = None
    """How long each process was sampled."""
    samples: Quantity | None = None
    """Samples of the user's code in all processes."""
    processes: Count | None = None
    in_workers: bool | None = None
    """Not in the main process."""
    functions: tuple[FunctionSeen, ...] = ()
    """Those with the most own time first."""
    stacks: StacksKept = left_out(StacksKept())

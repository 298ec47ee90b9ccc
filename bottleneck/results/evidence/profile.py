"""What a profiler found in the workers' code."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from msgspec import Meta

from bottleneck.results.evidence.fields import MOST_ROWS, Positions, left_out
from bottleneck.results.stacks import Frame
from bottleneck.results.values import Amount, Count, Quantity


@dataclass(frozen=True, kw_only=True)
class FunctionSeen:
    """A function of the workers' code, and what it takes by itself."""

    function: str | None = None
    file: str | None = None
    line: Count | None = None
    own_share: Quantity | None = None
    """Its share of all samples of the user's code."""
    waiting_share: Quantity | None = None
    """The share of its own time in which nothing was computed."""
    stage: str | None = None
    """The stage that it works for; None where the stacks do not show it."""


@dataclass(frozen=True, kw_only=True)
class StackRow:
    """A stack, as positions in the list of frames."""

    frames: Positions | None = None
    """From the outermost inwards."""
    stage: str | None = None
    samples: Amount | None = None
    """Computing or waiting."""
    computing: Amount | None = None
    """Samples in which it computed; None where that is unknown."""


@dataclass(frozen=True, kw_only=True)
class ProfileStacks:
    """The stacks of all processes together, the heaviest."""

    frames: Annotated[tuple[Frame, ...], Meta(max_length=MOST_ROWS)] = ()
    seen: Annotated[tuple[StackRow, ...], Meta(max_length=MOST_ROWS)] = ()
    left_out_samples: Amount | None = None


@dataclass(frozen=True, kw_only=True)
class Profile:
    """What a profiler found in the workers' code."""

    sampler: str | None = None
    """`py-spy` or `in-process`."""
    rate_hz: Quantity | None = None
    seconds: Quantity | None = None
    samples: Quantity | None = None
    processes: Count | None = None
    in_workers: bool | None = None
    functions: tuple[FunctionSeen, ...] = ()
    stacks: ProfileStacks = left_out(ProfileStacks())

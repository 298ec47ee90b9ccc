"""What a profiler found in the workers' code."""

from __future__ import annotations

from dataclasses import dataclass

from bottleneck.results.values import Count, Quantity


@dataclass(frozen=True, kw_only=True)
class FunctionSeen:
    """A function of the workers' code, and what it takes by itself."""

    function: str | None = None
    file: str | None = None
    """Relative to the working directory, or shortened; no home directory shows."""
    line: Count | None = None
    """Where the function begins; None for native code."""
    own_share: Quantity | None = None
    """Its share of all samples of the user's code, computing or waiting."""
    stage: str | None = None
    """The stage that it works for; None where the stacks do not show it."""


@dataclass(frozen=True, kw_only=True)
class Profile:
    """What a profiler found in the workers' code."""

    sampler: str | None = None
    """`py-spy`; a sampler inside the workers, `in-process`, in files of earlier versions."""
    rate_hz: Quantity | None = None
    seconds: Quantity | None = None
    samples: Quantity | None = None
    processes: Count | None = None
    in_workers: bool | None = None
    functions: tuple[FunctionSeen, ...] = ()

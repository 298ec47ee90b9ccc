"""How long and how hard to measure."""

from __future__ import annotations

from dataclasses import dataclass, field

from bottleneck.measure.loop import Loop

MAX_SEED = 2**32 - 1
"""What every generator takes that is seeded."""


@dataclass(frozen=True)
class ProfileOptions:
    """How the code of the workers is profiled.

    Attributes:
        rate_hz: Samples a second.
        native: Frames of C and C++ code too.
        idle: Draw threads in flamegraphs also while they wait.
    """

    rate_hz: int = 100
    native: bool = False
    idle: bool = False


@dataclass(frozen=True)
class MeasureOptions:
    """Options of one diagnosis.

    Attributes:
        budget_s: Wall-clock time that the whole diagnosis may take; None: as long as the job's step needs,
            at most three minutes.
        quick: Aim at 20 seconds and wider intervals.
        seed: Seed of the order of experiments and of the user's random numbers during the diagnosis.
        cache_budget_bytes: Memory that all caches together may take; None: what batches of this size need, within
            a quarter of the free memory.
        profile: Profile the workers after the timed rounds; None: do not.
        trace: Trace a few steps of `device` and `raw` after the timed rounds, and keep the files. Where the device
            holds the job, a handful of steps of `device` are traced anyway, and no file is kept.
        cold: Measure also with the files of the samples dropped from the page cache.
        restore: Put model, optimizer, data and process back afterwards, which takes a copy of the model and the
            optimizer's state. Nobody needs that where the process ends with the diagnosis.
        source: What the job is taken from, for its description: `script`; None: a description of its own.
        loop: The loop that is the train step, inside a script.
    """

    budget_s: float | None = None
    quick: bool = False
    seed: int = 0
    cache_budget_bytes: int | None = None
    profile: ProfileOptions | None = None
    trace: bool = False
    cold: bool = False
    restore: bool = True
    source: str | None = None
    loop: Loop = field(default_factory=Loop, compare=False)

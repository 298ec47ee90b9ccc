"""Options of the measuring, the loop that is measured, and progress reports."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # `--help` needs the options, but not the classes of results
    from bottleneck.results.evidence import LoopSeen
    from bottleneck.results.records import Interval, State
    from bottleneck.results.starting import Starting


@dataclass(eq=False)
class Loop:
    """The loop of a script, fed by the diagnosis."""

    batches_per_update: int = 1
    """Batches per step of the optimizer, also of a described job. Some loops take them all at once, then train on
    one after another."""
    batches_ahead: int = 0
    """Batches that it may have taken before it trains on the first of them."""
    has_queue: bool = False
    """True if it takes its batches in a separate thread, until a queue of unknown length is full: the first steps of a
    block that begins while that is empty would cost nothing."""
    breaks: int = 0
    """Number of passes that it has begun over any loader, because an epoch ended by its own count or it evaluates."""
    copies_itself: bool = False
    """True if it copies its batches to the device itself: the pipeline's `to_device` makes those of `device` only."""
    not_copied: str = ""
    """Reason why it cannot be given batches that are already on the device; empty if it can."""
    own_s_per_batch: float | None = None
    """Seconds per batch with the loop's own loader, before it was fed; None if that was not watched."""
    starting: Starting | None = None
    """Time of the script from its beginning to its first step; None if that was not watched."""
    look: Callable[[Callable[[], None], Callable[[], None], Callable[[], None]], None] | None = None
    """Profile a few steps outside of timed blocks. Args: run_step, synchronize."""
    seen: Callable[[], LoopSeen] | None = None
    """Returns the observations of the loop."""


MAX_SEED = 2**32 - 1
"""Largest seed that every generator accepts."""


@dataclass(frozen=True)
class ProfileOptions:
    """Options for profiling the code of the workers.

    Attributes:
        rate_hz: Samples per second.
        native: True to include frames of C and C++ code.
        idle: True to draw waiting threads in flamegraphs as well.
    """

    rate_hz: int = 100
    native: bool = False
    idle: bool = False


@dataclass(frozen=True)
class MeasureOptions:
    """Options of one diagnosis.

    Attributes:
        budget_s: Wall-clock seconds for the whole diagnosis; None for as long as the job's step needs, at most three
            minutes.
        quick: True to aim at 20 seconds and wider intervals.
        seed: Seed of the order of experiments and of the user's random numbers during the diagnosis.
        cache_budget_bytes: Memory limit of all caches together; None for the needs of batches of this size, within a
            quarter of the free memory.
        profile: Options for profiling the workers after the timed rounds; None not to profile.
        trace: True to trace a few steps of `device` and `raw` after the timed rounds, and keep the files. If the device
            limits the job, a handful of steps of `device` are traced anyway, and no file is kept.
        cold: True to measure also with the files of the samples dropped from the page cache.
        restore: True to restore model, optimizer, data and process afterwards, which takes a copy of the model and the
            optimizer's state. Not needed if the process ends with the diagnosis.
        source: Origin of the job, for its description: `script`; None for a description by the user.
        loop: The loop that is the train step, inside a script.
        spent_s: Seconds before the measuring that count towards its budget.
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
    spent_s: float = 0.0


@dataclass(frozen=True)
class ProgressUpdate:
    """One step of the measuring, sent between blocks and never inside one."""

    phase: str
    """Current phase: 'starting workers', 'recording', 'measuring'."""
    experiment: str | None = None
    """The experiment that runs next, such as 'before_augment (drained)'."""
    round: int | None = None
    """The current round, from 1."""
    rounds: int | None = None
    """Rounds planned so far; more may follow until the estimate is precise."""
    efficiency: Interval | None = None
    """The current estimate."""
    state: State | None = None
    """Likely state of the job; None if no state is likely."""
    bottleneck: str | None = None
    gain: float | None = None
    """Throughput without the bottleneck over that of the job."""
    chance: float | None = None
    """Probability that state and bottleneck are right, from 0 to 1."""
    elapsed_s: float = 0.0
    budget_s: float | None = None


ProgressCallback = Callable[[ProgressUpdate], None]

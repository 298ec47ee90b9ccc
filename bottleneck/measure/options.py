"""How long and how hard to measure, the loop that is measured, and what is reported while it runs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # `--help` needs the options, and not what reads results
    from bottleneck.results.evidence import LoopSeen
    from bottleneck.results.records import Interval, State
    from bottleneck.results.starting import Starting


@dataclass(eq=False)
class Loop:
    """The loop of a script, fed by the diagnosis."""

    batches_per_update: int = 1
    """Batches for one step of the optimizer, of a described job, too. Some loops take them all at once, and then train
    on one after another."""
    batches_ahead: int = 0
    """Batches that it may have taken before it trains on the first of them."""
    has_queue: bool = False
    """It takes its batches in another thread than it trains, until a queue of unknown length is full: in a block that
    begins while it is empty, the first steps would cost nothing."""
    breaks: int = 0
    """How often it has begun a pass over any loader: an epoch ended by its own count, or it evaluates."""
    copies: bool = False
    """It copies its batches to the device by itself: the pipeline's `to_device` makes those of `device` only."""
    not_copied: str = ""
    """Why no batch can be served to it that is on the device already; empty where that can be done."""
    own_s_per_batch: float | None = None
    """What a batch took with the loop's own loader, before it was fed; None: that was not watched."""
    starting: Starting | None = None
    """What the script has done from its beginning to its first step; None: that was not watched."""
    look: Callable[[Callable[[], None], Callable[[], None], Callable[[], None]], None] | None = None
    """Watches some of its steps, outside of timed blocks: gets what makes one, and what waits for the device."""
    seen: Callable[[], LoopSeen] | None = None
    """Gives what was seen of it."""


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
        spent_s: Time before the measuring that is part of its budget.
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
    """What is being done: 'starting workers', 'recording', 'measuring'."""
    experiment: str | None = None
    """The experiment that runs next, such as 'before_augment (drained)'."""
    round: int | None = None
    """The present round, from 1."""
    rounds: int | None = None
    """Rounds planned so far; more may follow until the estimate is precise."""
    efficiency: Interval | None = None
    """The present estimate."""
    state: State | None = None
    """What the job seems to be so far; None while nothing is likely."""
    bottleneck: str | None = None
    gain: float | None = None
    """The throughput without the bottleneck over that of the job."""
    chance: float | None = None
    """How likely state and bottleneck are right, from 0 to 1."""
    elapsed_s: float = 0.0
    budget_s: float | None = None


ProgressCallback = Callable[[ProgressUpdate], None]

"""What is reported while a diagnosis runs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from bottleneck.results.records import Interval, State


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
    """What is known of the job so far; None before the first round."""
    bottleneck: str | None = None
    gain: float | None = None
    """The throughput without the bottleneck over that of the job."""
    elapsed_s: float = 0.0
    budget_s: float | None = None


ProgressCallback = Callable[[ProgressUpdate], None]

"""Warnings of too little that was measured."""

from __future__ import annotations

import math
from collections.abc import Sequence

from bottleneck.results.format import names, plural
from bottleneck.results.records import Warning


def ended_early(why: str | None) -> Warning:
    """Warn that a result is partial; `why` is a sentence, None if the user interrupted it."""
    why = "It was interrupted." if why is None else why
    return Warning("ended-early", f"The measurement ended early, so the diagnosis is incomplete. {why}")


def too_few_rounds(missing: Sequence[str], rounds: int, wanted: int, *, ended_early: bool) -> Warning:
    """Warn of too few rounds.

    Args:
        missing: Those of `device` and `raw` that were not measured.
        rounds: Number of rounds with both.
        wanted: Number that would be enough.
        ended_early: True if more time is no remedy.
    """
    if missing:
        what = f"{names(missing)} {'was' if len(missing) == 1 else 'were'} not measured, so there is no efficiency."
    elif rounds < 2:
        what = "Fewer than two whole rounds were measured, so the estimates have no intervals."
    else:
        what = f"Only {plural(rounds, 'round')} of device and raw were measured, so the intervals are rough."
    remedy = "" if ended_early else f" Give it a larger --budget, for at least {wanted} rounds."
    return Warning("too-few-rounds", f"{what}{remedy}")


def too_slow_for_stages(batch_s: float, wanted_s: float) -> Warning:
    """Warn that there was no time for the stages; `wanted_s` is the budget that would be enough."""
    return Warning(
        "too-slow-for-stages",
        f"A batch takes {batch_s:.0f} s to make. The budget was enough for the job as a whole, but not for its "
        f"stages: give it --budget {math.ceil(wanted_s / 60)}m.",
    )


def bursts(wait_s: float, block_s: float, wanted_s: float) -> Warning:
    """Warn of blocks too short for batches that come in bursts.

    Args:
        wait_s: Wait for a burst.
        block_s: Length of a block.
        wanted_s: Budget that would be enough.
    """
    return Warning(
        "bursts",
        f"Batches come in bursts: the job waits {wait_s:.2g} s for one, and the following ones come at once. "
        f"Blocks of {block_s:.2g} s contain too few of these waits to measure their cost. "
        f"Give it --budget {math.ceil(wanted_s / 60)}m.",
    )


def gain_not_measured(stages: Sequence[str], *, ended_early: bool) -> Warning:
    """Warn of stages that were not left out; none in particular if no stage was. Args: as above."""
    if stages:
        what = f"The gain if free of {names(stages)} was not measured, so it could not be chosen as the bottleneck."
    else:
        what = (
            "The job was not measured without any of its stages, so the bottleneck is inferred from exposed time "
            "and cost, not proved."
        )
    return Warning("gain-not-measured", what if ended_early else f"{what} Give it a larger --budget.")


def checked_less() -> Warning:
    """Warn of samples that take too long to check their replay."""
    return Warning(
        "checked-less",
        "A sample takes so long that only the kind of the augmentation's output was checked, not that the whole sample "
        "stays the same with a recorded input. A longer --budget leaves time for that.",
    )


def not_diagnosed(why: str) -> Warning:
    """Warn that the tuned job was not diagnosed; `why` is a sentence."""
    return Warning("not-diagnosed", f"The tuned job could not be diagnosed: {why}")


def rungs_left_out(why: str) -> Warning:
    """Warn that a tuning compared only its beginning and its end in turns."""
    return Warning("rungs-left-out", f"Intermediate steps were not measured in turns: {why}")


def no_time() -> Warning:
    """Warn that a tuning did not run the loader alone."""
    return Warning("no-time", "There was no time to run the loader alone. Increase --seconds.")

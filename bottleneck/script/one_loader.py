"""What the experiments cannot vary in a loop of somebody else: its other loaders, and the start of workers."""

from __future__ import annotations

from dataclasses import replace

from bottleneck.results.evidence import LoopSeen
from bottleneck.results.format import duration
from bottleneck.results.records import Verdict

_MATTERS = 0.05
"""Share of a step, from which on a loss is worth touching, as it is of a verdict."""


def of_one_loader(verdict: Verdict, seen: LoopSeen) -> Verdict:
    """A verdict without an efficiency, where other loaders are waited for: that would count as the device's time.

    That one loader holds the job stays true. That the device does is not known any more.
    """
    step_s = sum(filter(None, (seen.until_optimizer_s, seen.optimizer_s, seen.after_optimizer_s)))
    waits_s = seen.other_loaders_s or 0.0
    if waits_s <= _MATTERS * step_s:
        return verdict
    named = (
        f" Of the one that was, {verdict.bottleneck} holds the job."
        if verdict.state == "input_bound" and verdict.bottleneck
        else ""
    )
    sentence = (
        f"The loop waits for several loaders, of which one was varied: with the batches of that one at hand a step "
        f"takes {duration(step_s)}, of which {duration(waits_s)} are waits for others. What all of them cost is "
        f"not known.{named} Measure them as one: let the loop be over bottleneck.watch(zip(...))."
    )
    return _without_efficiency(verdict, sentence)


def of_new_workers(verdict: Verdict) -> Verdict:
    """A verdict without an efficiency, where workers start for each batch: what was measured does not hold that."""
    sentence = (
        "The loop begins a new pass over its loader for each batch, and its workers begin anew each time: the script "
        "is slower than what was measured, in which they go on. Take the iterator once, batches = iter(loader), then "
        "next(batches) in the loop; and measure again."
    )
    return _without_efficiency(verdict, sentence)


def _without_efficiency(verdict: Verdict, sentence: str) -> Verdict:
    is_held = verdict.state == "input_bound"
    return replace(
        verdict,
        state="input_bound" if is_held else "undecided",
        bottleneck=verdict.bottleneck if is_held else None,
        contributors=verdict.contributors if is_held else (),
        efficiency=None,
        headroom=None,
        epoch_efficiency=None,
        judged_by="efficiency",
        further_rounds=None,
        sentence=sentence,
    )

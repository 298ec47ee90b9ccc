"""Warnings of numbers that disagree."""

from __future__ import annotations

from collections.abc import Sequence

from bottleneck.results.format import duration, gain_interval, percent, percent_interval
from bottleneck.results.records import Interval, Warning


def contradiction(id_: str, what: str, remedy: str) -> Warning:
    """Warn of two numbers that leave no answer. Args: as in the verdict; `what` has no full stop."""
    return Warning(id_, f"{what}. No efficiency, share or gain is derived from it. {remedy}")


def faster_than_loader(what: str) -> Warning:
    """Warn of a job that was faster than its loader alone; `what` says by how much, and has no full stop."""
    return Warning(
        "contradiction",
        f"{what}. The interval of the efficiency covers both readings. Blocks fed from batches made "
        "before they started give the faster one: measure again with a larger --budget, for longer blocks.",
    )


def negative_drop(outer: str, inner: str, stage: str, less: float, overhead: Interval | None) -> Warning:
    """Warn of an experiment that was faster than one that does less.

    Args:
        outer: The experiment.
        inner: The other one.
        stage: The stage between the two.
        less: Share of the time that `outer` saved.
        overhead: Seconds per batch of the replay overhead, if that explains it.
    """
    remedy = "Stop other programs on this machine and measure again with a larger --budget."
    if overhead is not None:
        remedy = (
            f"The replay overhead is {duration(overhead.estimate)} a batch, which explains it: "
            "stages this short cannot be told apart."
        )
    return Warning(
        "negative-drop",
        f"{outer} took {percent(less)} less time than {inner}, although it does more: do not "
        f"trust the exposed time of {stage} and of its neighbours. {remedy}",
    )


def costs_do_not_add_up(sum_s: float, all_s: float, rest: Interval) -> Warning:
    """Warn of stages that cost more or less than the loader takes alone, in seconds per batch.

    Args:
        sum_s: Sum of the costs of the stages.
        all_s: Time of the loader alone.
        rest: Time that belongs to no stage; negative if some of it belongs to several.
    """
    facts = f"The stages cost {duration(sum_s)} a batch one by one, and the loader alone takes {duration(all_s)}: "
    if rest.low > 0:
        return Warning(
            "costs-do-not-add-up",
            f"{facts}{_range(rest)} of it belongs to no single stage, such as the loop of the loader itself. No faster "
            "stage removes that; larger batches make it a smaller part.",
        )
    return Warning(
        "costs-do-not-add-up",
        f"{facts}they share {_range(Interval(-rest.estimate, -rest.high, -rest.low))}, such as a cache or a lock, "
        "which goes away with any one of them. Do not add up their costs.",
    )


def cost_differs_from_clock(stage: str, cost: Interval, clock_s: float) -> Warning:
    """Warn of a stage whose cost differs from the clocks around it, in seconds per batch."""
    return Warning(
        "cost-differs-from-clock",
        f"{stage} costs {_range(cost)} a batch, and the clocks around it show "
        f"{duration(clock_s)}: something else gets faster or slower with it, such as a core or "
        "a cache that it shares. The cost is the time saved without the stage. Stop other programs on this "
        "machine and measure again; if the two still differ, trust neither to a tenth.",
    )


def _range(cost: Interval) -> str:
    return f"{duration(cost.estimate)} ({duration(cost.low)} to {duration(cost.high)})"


def no_single_gain() -> Warning:
    """Warn of several stages that limit the job equally."""
    return Warning(
        "no-single-gain",
        "No single stage brings a gain, so several of them limit the job equally; the one with the "
        "largest cost is named. Speed that one up, then diagnose again.",
    )


def device_time(of_events: Interval, measured: Interval) -> Warning:
    """Warn of an efficiency that differs from the share of raw's time in which events show the device at work."""
    return Warning(
        "device-time",
        f"By the events of its stream, the device computed for {percent_interval(of_events)} of the time of raw, "
        f"but an efficiency of {percent_interval(measured)} was measured. Steps of raw may take longer than the same "
        "steps alone, or other streams may be at work on the device: look at a trace (--trace).",
    )


def tiny_batches(step_s: float) -> Warning:
    """Warn of a step so short that the diagnosis takes a visible part of it."""
    return Warning(
        "tiny-batches",
        f"A step of this job takes {duration(step_s)} here, of which the diagnosis itself may "
        "take some tens of microseconds: alone, the job is faster than the samples/s of this report. With larger "
        "batches the share is smaller.",
    )


def gain_left_out(settings: Sequence[str], reached: Interval | None) -> Warning:
    """Warn of changes that were kept, and then left out.

    Args:
        settings: The changes.
        reached: Factor of throughput with all kept changes, measured in turns with the original job.
    """
    return Warning(
        "gain-not-confirmed",
        f"{' + '.join(settings)} seemed to pay off, but is left out: measured in turns with the original job, all "
        f"kept changes together reach {gain_interval(reached)}. Tune again with a longer --budget, on an otherwise "
        "idle machine.",
    )


def gain_not_confirmed(settings: Sequence[str], reached: Interval) -> Warning:
    """Warn of changes that are kept, although they reached only so much in the end."""
    return Warning(
        "gain-not-confirmed",
        f"{' + '.join(settings)} was kept, but reached only {gain_interval(reached)} in the last "
        "rounds. Tune again with a longer --budget before you rely on it.",
    )

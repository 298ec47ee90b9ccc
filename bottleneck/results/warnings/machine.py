"""Warnings of a machine that was disturbed."""

from __future__ import annotations

from collections.abc import Mapping

from bottleneck.results.format import count, duration, names, percent
from bottleneck.results.records import Warning


def other_load(cores: float, for_s: float | None = None) -> Warning:
    """Warn of other processes.

    Args:
        cores: Cores that they kept busy.
        for_s: Seconds of the diagnosis in which they did; None if that is the average over all of it.
    """
    when = "during the diagnosis" if for_s is None else f"for {for_s:.0f} s of it"
    return Warning(
        "other-load",
        f"Other processes, or virtual machines, kept {cores:.1f} cores busy {when}; the job might be faster on a quiet "
        "machine. Stop them, or measure again when they are done.",
    )


def other_load_while_tuning(cores: float) -> Warning:
    """Warn of other processes; `cores` is the number of those that they kept busy."""
    return Warning(
        "other-load",
        f"Other processes, or virtual machines, kept {cores:.1f} cores busy while blocks were measured, which "
        "hides small gains. Stop them, or tune again when they are done.",
    )


def stolen_time(share: float) -> Warning:
    """Warn of a hypervisor that gave other virtual machines that share of the time of the job's cores."""
    return Warning(
        "stolen-time",
        f"While blocks were measured, the hypervisor gave {percent(share)} of the time of this job's cores to "
        "other virtual machines. The numbers are those of a disturbed machine. Measure on a dedicated one, or when "
        "the others are quiet.",
    )


def trend(change: float) -> Warning:
    """Warn of a job that got steadily faster or slower; `change` is the time of its last rounds over the first."""
    way = "faster" if change < 1 else "slower"
    return Warning(
        "trend",
        f"raw got steadily {way} from round to round, to {percent(change)} of the time it took at first: a cache "
        "in the dataset or the system fills, or a resource runs out. The numbers mix both states; "
        "measure with a longer --budget, or again now that it is warm.",
    )


def unsteady_blocks(changes: Mapping[str, float]) -> Warning:
    """Warn of experiments whose blocks end in another state than they begin in.

    Args:
        changes: Experiment -> relative change of the time per batch from the first to the second half.
    """
    unsteady = [
        f"{name} ({percent(abs(change), 0)} {'slower' if change > 0 else 'faster'})" for name, change in changes.items()
    ]
    return Warning(
        "unsteady-blocks",
        "The second half of a block differs from the first, block after block, so the experiment had not "
        f"reached its steady state: {names(unsteady)}. Give it a larger --budget, for longer blocks, and "
        "check that the device is not throttling and that nothing else starts and stops on this machine.",
    )


def device_clock_differs(device_hz: float, raw_hz: float, slower: float | None) -> Warning:
    """Warn of clocks of the device that differ.

    Args:
        device_hz: Its clock in the experiment `device`.
        raw_hz: Its clock in `raw`.
        slower: Share of its steps that raw may lose by that; None if it has the higher clock.
    """
    if slower is not None:
        means = (
            f"The job's own steps can be {percent(slower, 0)} slower for it, however the data is loaded, and the lost "
            "throughput includes that. If the device lowers its clock because it is idle, the upper bound stands; if "
            "power or heat limit the clock, a job that never waits for data would not reach it either"
        )
    else:
        means = (
            "The upper bound was measured at the lower clock of a device that never waits, and the job's steps are "
            "faster than those: at equal clocks it would lose more throughput than is reported"
        )
    return Warning(
        "device-clock-differs",
        f"The device ran at {count(device_hz / 1e6)} MHz in `device` and at {count(raw_hz / 1e6)} MHz in raw. {means}. "
        "Fix the clock (nvidia-smi --lock-gpu-clocks) and measure again.",
    )


def step_slow_alone(alone_s: float, experiment: str, in_experiment_s: float) -> Warning:
    """Warn of a train step that is slower alone than in an experiment in which a loader works."""
    return Warning(
        "step-slow-alone",
        f"The train step takes {duration(alone_s)} alone and {duration(in_experiment_s)} in "
        f"`{experiment}`, which is the upper bound: idle cores or an idle device sleep or clock down.",
    )


def baseline_differs(before: float, now: float, unit: str) -> Warning:
    """Warn of a script that ran at another pace before the tuning than in it.

    Args:
        before: Its throughput before.
        now: That of the original job in the tuning.
        unit: Unit of both.
    """
    return Warning(
        "baseline-differs",
        f"The script alone ran at {count(before)} {unit} before the tuning, and the original job in this tuning at "
        f"{count(now)}. The gains refer to the latter. Something else has changed in between, such as other load, or "
        "files that were read for the first time. Tune again on an otherwise idle machine, and compare the script "
        "with and without the changed lines.",
    )

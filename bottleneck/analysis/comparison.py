"""Comparison of saved results: faster and slower experiments, and the new bottleneck."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from bottleneck.analysis.readings import Readings, read
from bottleneck.analysis.settings import MARGIN, THIS_TOOL, unit_of
from bottleneck.analysis.statistics import CONFIDENCE, jackknife, welch
from bottleneck.analysis.verdict import loss
from bottleneck.errors import UsageError
from bottleneck.results.comparison import Change, ChangeFinding, Comparison, Difference, Side, StageChange
from bottleneck.results.format import count, gain_interval, names, percent_interval
from bottleneck.results.names import DEVICE, RAW
from bottleneck.results.records import SCHEMA_VERSION, Interval, Rate, Result

_HAS_TO_BE_EQUAL = {
    "environment": ("device", "device_name", "cpu_cores_available", "torch"),
    "pipeline": ("batch_size", "dataset_length"),
}
"""Settings that make throughputs incomparable if they differ: not one job on one machine."""
_MISSING = "unknown"


def compare(
    base: Result, head: Result, *, labels: tuple[str, str] = ("base", "head"), force: bool = False
) -> Comparison:
    """Compare two results, experiment by experiment.

    The two were measured at different times, so that nothing is paired: each has its delete-one-round jackknife
    error, and the interval of the ratio is Welch's. Intervals are those of one number (95 %); the findings hold
    together over all experiments (Bonferroni).

    Args:
        base: The result before.
        head: The result after.
        labels: What the two are called in sentences.
        force: Compare different jobs, too; the comparison then says so.

    Raises:
        UsageError: The results are from different machines or pipelines, and it is not forced.
    """
    unlike = differences((base, head))
    _refuse_unlike(unlike, labels, force=force)
    readings = read(base), read(head)
    rates = _coupled_rates(base), _coupled_rates(head)
    costs = [{stage.name: stage.cost_s_per_batch for stage in result.stages} for result in (base, head)]
    unit = unit_of(head)
    # In the order of the head, and then what only the base has: that is how the job is now.
    names = list(dict.fromkeys([*rates[1], *rates[0]]))
    compared = sum(name in rates[0] and name in rates[1] for name in names)
    changes = tuple(_change(name, rates, readings, compared) for name in names)
    throughput = next((change for change in changes if change.name == RAW), None) or Change(RAW, None, None, None, None)
    sides = _side(base, labels[0]), _side(head, labels[1])
    return Comparison(
        schema_version=SCHEMA_VERSION,
        kind="comparison",
        tool=THIS_TOOL,
        base=sides[0],
        head=sides[1],
        sentence=f"{_throughput_sentence(throughput, *labels, unit)} {_bottleneck_sentence(*sides)}",
        throughput=throughput,
        experiments=changes,
        stages=tuple(StageChange(name, *(cost.get(name) for cost in costs)) for name in {**costs[1], **costs[0]}),
        unlike=unlike,
        warnings=tuple(_doubts(changes, sides)),
        rate_unit=unit,
    )


def lost_throughput(comparison: Comparison) -> Interval | None:
    """Return the part of the base's throughput that the head has lost; below 0 if it is faster."""
    speedup = comparison.throughput.speedup
    return None if speedup is None else loss(speedup)


def differences(results: Sequence[Result]) -> tuple[Difference, ...]:
    """Return the settings in which results differ that have to be equal for a comparison."""
    found = []
    for part, keys in _HAS_TO_BE_EQUAL.items():
        for key in keys:
            described: list[Mapping[str, Any]] = [getattr(result, part) for result in results]
            if not all(key in one for one in described):
                continue  # not known of all
            values = tuple(_text(one[key]) for one in described)
            if len(set(values)) > 1:
                found.append(Difference(key, values))
    return tuple(found)


def _text(value: Any) -> str:
    if value is None:
        return _MISSING
    return f"{value:g}" if isinstance(value, float) else str(value)


def _refuse_unlike(unlike: Sequence[Difference], labels: Sequence[str], *, force: bool) -> None:
    if not unlike or force:
        return
    first = unlike[0]
    where = ", ".join(f"{value} in {label}" for value, label in zip(first.values, labels, strict=True))
    others = [difference.key for difference in unlike[1:]]
    more = f" They also differ in {names(others)}." if others else ""
    raise UsageError(
        f"The results are not from one job on one machine: {first.key} is {where}.{more}",
        "Measure both on one machine with one pipeline, or compare them anyway with --force.",
    )


def _coupled_rates(result: Result) -> dict[str, Rate]:
    return {e.name: e.coupled for e in result.experiments if e.coupled is not None}


def _change(
    name: str, rates: tuple[Mapping[str, Rate], Mapping[str, Rate]], readings: tuple[Readings, Readings], compared: int
) -> Change:
    """Compare one experiment; `compared` findings have to hold together."""
    base, head = rates[0].get(name), rates[1].get(name)
    if base is None or head is None:
        return Change(name, base, head, None, None)
    series = (reading.coupled.get(name) for reading in readings)
    before, after = (None if one is None else jackknife(np.log, (one,)) for one in series)
    if before is None or after is None:
        return Change(name, base, head, None, "undecided")
    shown = welch(before, after, CONFIDENCE)
    together = welch(before, after, 1 - (1 - CONFIDENCE) / max(1, compared))
    return Change(name, base, head, shown, _finding(together))


def _finding(speedup: Interval) -> ChangeFinding:
    if speedup.low > MARGIN:
        return "faster"
    if speedup.high < 1 / MARGIN:
        return "slower"
    return "within_noise" if speedup.low > 1 / MARGIN and speedup.high < MARGIN else "undecided"


def _side(result: Result, label: str) -> Side:
    raw, device = _coupled_rates(result).get(RAW), result.environment.get("device")
    return Side(
        label=label,
        created=result.created,
        state=result.verdict.state,
        bottleneck=result.verdict.bottleneck,
        efficiency=result.verdict.efficiency,
        samples_per_s=None if raw is None else raw.samples_per_s,
        sentence=" ".join(result.verdict.sentence.split()),
        device=device if isinstance(device, str) else None,
    )


# --- in words ---------------------------------------------------------------------------------------------


def _throughput_sentence(change: Change, base: str, head: str, unit: str) -> str:
    if change.base is None or change.head is None:
        return f"{head} and {base} cannot be compared: the unmodified job was not measured in both."
    now, was = count(change.head.samples_per_s), count(change.base.samples_per_s)
    rates = f"{now} {unit}, was {was}"
    if change.speedup is None:
        return f"Whether {head} is faster than {base} is undecided: one of them has a single round ({rates})."
    factor = gain_interval(change.speedup)
    if change.finding == "faster":
        return f"{head} is faster than {base}: {factor} the throughput, {rates}."
    if change.finding == "slower":
        return f"{head} is slower than {base}: {factor} the throughput, {rates}."
    if change.finding == "within_noise":
        return f"{head} is as fast as {base}, within noise: {factor} the throughput, {rates}."
    return f"Whether {head} is faster than {base} is undecided: {factor} the throughput, {rates}."


def _bottleneck_sentence(base: Side, head: Side) -> str:
    before, after = base.bottleneck, head.bottleneck
    if after is None:
        return "The bottleneck is now undecided."
    if before is None:
        return f"The bottleneck is {after}; before, it was undecided."
    if before == after:
        return f"The bottleneck is still {after}."
    return f"The bottleneck was {before} and is now {after}."


def _doubts(changes: Sequence[Change], sides: tuple[Side, Side]) -> list[str]:
    """Return the reasons not to take the change for one of the input pipeline."""
    device = next((change for change in changes if change.name == DEVICE), None)
    if device is None or device.speedup is None or device.finding not in ("faster", "slower"):
        return []
    shares = [percent_interval(side.efficiency) for side in sides if side.efficiency is not None and not side.on_cpu]
    efficiency = ""
    if len(shares) > 1:
        efficiency = f" Its share of what the device can do went from {shares[0]} to {shares[1]}."
    return [
        f"With its batches cached on the device the job is {device.finding} too ({gain_interval(device.speedup)}): the "
        f"train step changed, or the machine was not in the same state.{efficiency}"
    ]

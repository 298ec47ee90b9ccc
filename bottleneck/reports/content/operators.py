"""What every format shows of a trace: the costliest operators, and how busy the device is, looked up once."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from bottleneck.reports import numbers
from bottleneck.results.records import Result

WORTH_SHOWING = 0.005
"""The share of an operator from which on it is shown."""
_EXPERIMENTS = ("device", "raw")


@dataclass(frozen=True)
class OperatorRow:
    """An operator in the traced steps; what the evidence does not tell is None."""

    name: str
    calls_per_step: float | None
    seconds_per_step: float | None
    """Its own time: on the device where there is one, else on the host."""
    share: float
    """Its part of the own time of all operators."""


@dataclass(frozen=True)
class TracedExperiment:
    """The traced steps of one experiment."""

    name: str
    where: str
    """Where the operators' time was spent: 'on the device' or 'on the CPU'."""
    summary: str
    """Sentences on the steps as a whole."""
    operators: tuple[OperatorRow, ...]


def traced(result: Result) -> tuple[TracedExperiment, ...]:
    """The traced experiments that call operators, from the device outwards; none where there is no trace."""
    trace = result.evidence.get("trace")
    found = [(name, trace.get(name)) for name in _EXPERIMENTS] if isinstance(trace, Mapping) else []
    experiments = [_experiment(name, one) for name, one in found if isinstance(one, Mapping)]
    return tuple(one for one in experiments if one.operators)  # a step may call nothing of torch's


def _experiment(name: str, found: Mapping[str, Any]) -> TracedExperiment:
    on_device = numbers.finite(found.get("device_busy_share")) is not None
    return TracedExperiment(
        name=name,
        where="on the device" if on_device else "on the CPU",
        summary=" ".join(_sentences(name, found)),
        operators=tuple(row for item in _mappings(found.get("top")) if (row := _operator(item)) is not None),
    )


def _operator(found: Mapping[str, Any]) -> OperatorRow | None:
    share = numbers.finite(found.get("share"))
    if share is None or share < WORTH_SHOWING:
        return None
    on_device = numbers.finite(found.get("device_s_per_step"))
    return OperatorRow(
        name=str(found.get("name") or ""),
        calls_per_step=numbers.finite(found.get("calls_per_step")),
        seconds_per_step=on_device if on_device is not None else numbers.finite(found.get("self_s_per_step")),
        share=share,
    )


def _sentences(name: str, found: Mapping[str, Any]) -> Iterator[str]:
    steps, step_s = numbers.finite(found.get("steps")), numbers.finite(found.get("seconds_per_step"))
    yield f"Traced: {numbers.count(steps)} steps of {name}, {numbers.duration(step_s)} each under the profiler."
    busy = numbers.finite(found.get("device_busy_share"))
    if busy is not None:
        yield f"The device computes {numbers.percent(busy)} of that time and is idle {numbers.percent(1 - busy)}."
    launches, kernel_s = numbers.finite(found.get("launches_per_step")), numbers.finite(found.get("mean_kernel_s"))
    if launches is not None and kernel_s is not None:
        yield f"A step launches {numbers.count(launches)} kernels; a kernel takes {numbers.duration(kernel_s)}."
    waits = [_wait(item) for item in _mappings(found.get("synchronisations"))]
    if waits:
        yield f"The host waits for the device in: {'; '.join(waits)}."


def _wait(found: Mapping[str, Any]) -> str:
    calls, waited_s = numbers.finite(found.get("calls_per_step")), numbers.finite(found.get("seconds_per_step"))
    name = str(found.get("name") or "")
    return f"{name}, {numbers.frequency(calls)} a step, {numbers.duration(waited_s)} together"


def _mappings(value: object) -> list[Mapping[str, Any]]:
    return [item for item in value if isinstance(item, Mapping)] if isinstance(value, (list, tuple)) else []

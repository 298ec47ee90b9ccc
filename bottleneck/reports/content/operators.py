"""What every format shows of a trace: the costliest operators, and how busy the device is, looked up once."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from bottleneck.reports import numbers
from bottleneck.results.evidence import Operator, Synchronisation, TracedSteps
from bottleneck.results.records import Result

WORTH_SHOWING = 0.005
"""The share of an operator from which on it is shown."""


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
    trace = result.evidence.trace
    experiments = [_experiment(name, one) for name, one in (("device", trace.device), ("raw", trace.raw))]
    return tuple(one for one in experiments if one.operators)  # a step may call nothing of torch's


def _experiment(name: str, found: TracedSteps) -> TracedExperiment:
    return TracedExperiment(
        name=name,
        where="on the device" if found.device_busy_share is not None else "on the CPU",
        summary=" ".join(_sentences(name, found)),
        operators=tuple(row for item in found.top if (row := _operator(item)) is not None),
    )


def _operator(found: Operator) -> OperatorRow | None:
    if found.share is None or found.share < WORTH_SHOWING:
        return None
    return OperatorRow(
        name=found.name or "",
        calls_per_step=found.calls_per_step,
        seconds_per_step=found.self_s_per_step if found.device_s_per_step is None else found.device_s_per_step,
        share=found.share,
    )


def _sentences(name: str, found: TracedSteps) -> Iterator[str]:
    steps, step_s = numbers.count(found.steps), numbers.duration(found.seconds_per_step)
    yield f"Traced: {steps} steps of {name}, {step_s} each under the profiler."
    busy, launches, kernel_s = found.device_busy_share, found.launches_per_step, found.mean_kernel_s
    if busy is not None:
        yield f"The device computes {numbers.percent(busy)} of that time and is idle {numbers.percent(1 - busy)}."
    if launches is not None and kernel_s is not None:
        yield f"A step launches {numbers.count(launches)} kernels; a kernel takes {numbers.duration(kernel_s)}."
    if found.synchronisations:
        yield f"The host waits for the device in: {'; '.join(map(_wait, found.synchronisations))}."


def _wait(found: Synchronisation) -> str:
    calls, waited_s = numbers.frequency(found.calls_per_step), numbers.duration(found.seconds_per_step)
    return f"{found.name or ''}, {calls} a step, {waited_s} together"

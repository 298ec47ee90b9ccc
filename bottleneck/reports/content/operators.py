"""The most expensive operators of a trace, and how busy the device is."""

from __future__ import annotations

from collections.abc import Iterator

from bottleneck.reports.document import Column, Paragraph, Section, Table
from bottleneck.results.evidence import Operator, Synchronisation, TracedSteps
from bottleneck.results.format import duration, frequency, percent, whole
from bottleneck.results.records import Result

WORTH_SHOWING = 0.005
"""The share of an operator from which on it is shown."""
MOST_IN_A_TERMINAL = 5


def operators(result: Result) -> Iterator[Section]:
    """The traced experiments, from the device outwards. Those of `raw` are the same, and the copy."""
    trace = result.evidence.trace
    for name, found, most in (("device", trace.device, MOST_IN_A_TERMINAL), ("raw", trace.raw, 0)):
        rows = tuple(_row(item) for item in found.top if item.share is not None and item.share >= WORTH_SHOWING)
        if rows:  # a step may call nothing of torch's
            columns = (
                Column(f"operators in {name}", "name"),
                Column("calls/step", "number"),
                Column("on the CPU" if found.device_busy_share is None else "on the device", "number"),
                Column("share", "number"),
            )
            yield Section(
                f"Operators in the traced steps of {name}",
                (Table(columns, rows, most=most), Paragraph(" ".join(_sentences(name, found)), "note")),
            )


def _row(found: Operator) -> tuple[str, ...]:
    own_s = found.self_s_per_step if found.device_s_per_step is None else found.device_s_per_step
    return found.name or "", frequency(found.calls_per_step), duration(own_s), percent(found.share)


def _sentences(name: str, found: TracedSteps) -> Iterator[str]:
    steps, step_s = whole(found.steps), duration(found.seconds_per_step)
    yield f"Traced: {steps} steps of {name}, {step_s} each under the profiler."
    busy, launches = found.device_busy_share, found.launches_per_step
    if busy is not None:
        yield f"The device computes {percent(busy)} of that time and is idle {percent(1 - busy)}."
    if launches is not None:
        yield f"A step launches {whole(launches)} kernels."
    if found.synchronisations:
        yield f"The host waits for the device in: {'; '.join(map(_wait, found.synchronisations))}."


def _wait(found: Synchronisation) -> str:
    return f"{found.name or ''}, {frequency(found.calls_per_step)} a step"

"""The pass of tracing: what a few steps do, operator by operator, on the host and on the device.

It comes after the timed rounds: the profiler slows every call down. Nothing that goes wrong here costs the diagnosis.
"""

from __future__ import annotations

import contextlib
import gc
import gzip
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

import torch
from torch.profiler import record_function

from bottleneck.measure.bench import Bench
from bottleneck.measure.explain_errors import one_line
from bottleneck.measure.ladder import Arm, Ladder
from bottleneck.measure.passes.chrome_trace import read_trace
from bottleneck.measure.passes.kineto import TraceError, record_trace
from bottleneck.measure.passes.time_limit import TimeLimitExceeded, time_limit
from bottleneck.measure.passes.trace_summary import STEP, WINDOW, Steps, find_steps, summarise
from bottleneck.results.evidence import Traces
from bottleneck.results.traces import TraceFile

HANDFUL_S = 0.1
"""How long the steps of a trace take that was not asked for."""
ASKED_FOR_S = 0.5
_MOST_STEPS, _HANDFUL = 10, 3
_SLOW_STEP_S = 0.5
"""From here on a step is expensive, and what the profiler does at its first one is small beside it."""
_PATIENCE_S, _PATIENCE_FACTOR = 30.0, 10.0
"""How long a trace may take, beyond so many times what its steps took without the profiler."""


@dataclass
class TraceResult:
    """What the traced steps show."""

    evidence: Traces = field(default_factory=Traces)
    files: list[TraceFile] = field(default_factory=list)
    """Where they are asked for."""
    warnings: list[tuple[str, str]] = field(default_factory=list)
    """(id, message) of what went wrong."""
    steps: Steps | None = None
    """Those of the `device` experiment; None where it was not traced."""


@dataclass(frozen=True)
class TraceRequest:
    """How much to trace."""

    asked_for: bool
    """The user wants the files, of `device` and of `raw`; otherwise a handful of steps of `device` will do."""
    step_s: Callable[[Arm], float | None]
    """What a step of an arm took in the timed rounds."""


def trace(bench: Bench, ladder: Ladder, device: torch.device, request: TraceRequest) -> TraceResult:
    """Trace a few steps of the `device` experiment, and of `raw` where files are asked for; the loader rests then."""
    traced = TraceResult()
    arms = {"device": ladder.device, "raw": ladder.raw} if request.asked_for else {"device": ladder.device}
    for name, arm in arms.items():
        try:
            _trace_one(bench, name, arm, device, request, traced)
        except (Exception, SystemExit, TimeLimitExceeded) as error:  # noqa: BLE001 - what was measured is worth more
            traced.warnings.append(("trace-failed", f"There is no trace of {name}: {_reason(error)}."))
            break  # whatever is wrong with the step or the profiler would be so again
    return traced


def steps_to_trace(step_s: float, *, asked_for: bool) -> int:
    """How many steps are enough to see what they do, and few enough to cost little."""
    wanted_s, most = (ASKED_FOR_S, _MOST_STEPS) if asked_for else (HANDFUL_S, _HANDFUL)
    return min(most, max(1, round(wanted_s / max(step_s, 1e-6))))


def _trace_one(
    bench: Bench, name: str, arm: Arm, device: torch.device, request: TraceRequest, traced: TraceResult
) -> None:
    step_s = request.step_s(arm)
    if step_s is None:
        return
    count = steps_to_trace(step_s, asked_for=request.asked_for)
    with time_limit(_PATIENCE_S + _PATIENCE_FACTOR * (count + 1) * step_s):
        if step_s < _SLOW_STEP_S or arm.mode is not None:
            bench.prepare(arm)
        else:
            bench.loader.rest()
        text = record_trace(lambda: _run(bench, arm, count, warms_up=step_s < _SLOW_STEP_S), device)
        bench.loader.rest()
        with _no_garbage_collected():
            steps = find_steps(read_trace(json.loads(text, strict=False)))
        if steps is None:
            raise TraceError("the profiler recorded none of the steps")
        if device.type == "cuda" and not steps.trace.work:
            traced.warnings.append(("trace-without-device", _no_device_work(name)))
        traced.evidence = replace(traced.evidence, **{name: summarise(steps)})
        if name == "device":
            traced.steps = steps
        if request.asked_for:
            traced.files.append(TraceFile(name, gzip.compress(text.encode(), compresslevel=5, mtime=0)))


@contextlib.contextmanager
def _no_garbage_collected() -> Iterator[None]:
    """Stop the garbage collector meanwhile: it would go through the many objects of a trace, none of them garbage."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def _run(bench: Bench, arm: Arm, count: int, *, warms_up: bool) -> None:
    numbers = _batches(bench, arm)
    if warms_up:
        # The first step under the profiler sets up the recording of each kind of kernel.
        with record_function("bottleneck: warming up"):
            next(numbers)
            bench.synchronize()
    with record_function(WINDOW):
        for number in range(count):
            with record_function(f"{STEP}{number}"):
                next(numbers)
        with record_function("bottleneck: waiting for the device"):
            bench.synchronize()


def _batches(bench: Bench, arm: Arm) -> Iterator[None]:
    """Run the job step by step, its parts named in the trace."""
    while True:
        if arm.supply == "loader":
            with record_function("bottleneck: next batch of the loader"):
                batch, _ = bench.loader.next_batch()
            with record_function("bottleneck: copy to the device"):
                batch = bench.transfer(batch)
        else:
            batch = bench.device.serve().batch
        with record_function("bottleneck: train step"):
            bench.step(batch)
        yield


def _no_device_work(name: str) -> str:
    return (
        f"The trace of {name} shows no work of the device. Another profiler (nsys, ncu) may hold it, or the driver "
        "keeps its counters for administrators (ERR_NVGPUCTRPERM)."
    )


def _reason(error: BaseException) -> str:
    if isinstance(error, TraceError):
        return str(error)
    if isinstance(error, TimeLimitExceeded):
        return "it took too long"
    return one_line(error).rstrip(".")

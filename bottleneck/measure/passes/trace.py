"""The pass of tracing: operators in a few steps, by torch's profiler, and lines that make the host wait for the device.

It comes after the timed rounds, since the profiler slows every call down. No failure here ends the diagnosis.
"""

from __future__ import annotations

import contextlib
import gzip
import os
import re
import sys
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import Any

import torch
from torch.autograd import profiler as autograd_profiler
from torch.profiler import ProfilerActivity, profile, record_function

from bottleneck.job.replaced import replaced
from bottleneck.job.users_code import is_ours, is_users, shown_path
from bottleneck.measure.bench import Bench
from bottleneck.measure.explain_errors import one_line
from bottleneck.measure.ladder import Arm, Ladder
from bottleneck.measure.ledger import Ledger
from bottleneck.results.evidence import Operator, Synchronisation, TracedSteps
from bottleneck.results.warnings.unseen import trace_failed, trace_without_device

_HANDFUL = (0.1, 3)
"""Seconds and steps of a trace that was not asked for, at most."""
_ASKED_FOR = (0.5, 10)
_SLOW_STEP_S = 0.5
"""Seconds above which a step is expensive, and the profiler's set-up in its first one is small."""
_MAX_ROWS = 30
_MAX_CHARACTERS = 200
_ENTRIES = ("_prepare_profiler", "_enable_profiler", "_disable_profiler")
_LAUNCH = re.compile(r"^(cuda|cu|hip|ze|ur)\w*Launch")
_PRODUCT = re.compile(r"^aten::(_?addmm\w*|mm|bmm|baddbmm|mv|addmv\w*|_scaled_mm|\w*convolution\w*|_\w*attention\w*)$")
"""Matrix products and convolutions, without the operators around them."""
_TYPES = {"float": "float32", "double": "float64", "c10::BFloat16": "bfloat16", "c10::Half": "float16"}
_SYNCHRONISES = "synchronizing CUDA operation"


class TraceError(Exception):
    """There is no trace; the message is the reason, as the end of a sentence."""


def trace(bench: Bench, device: torch.device, ledger: Ledger, *, asked_for: bool) -> None:
    """Trace a few steps; the loader rests afterwards.

    Args:
        bench: Runs them. device: Device of the training. ledger: Has the timed rounds; receives the evidence, warnings,
        and the files if they are asked for. asked_for: True if the user wants the files, of `device` and of `raw`;
        otherwise a few steps of `device` suffice.
    """
    arms = {"device": Ladder.device, "raw": Ladder.raw} if asked_for else {"device": Ladder.device}
    for name, arm in arms.items():
        try:
            if (step_s := ledger.seconds_per_batch(arm)) is not None:
                _trace_one(bench, name, arm, device, step_s, ledger, asked_for=asked_for)
        except (Exception, SystemExit) as error:  # noqa: BLE001 - the measurements are worth more
            reason = str(error) if isinstance(error, TraceError) else one_line(error).rstrip(".")
            ledger.warn(trace_failed(name, reason))
            break  # the next one would fail in the same way


def _trace_one(
    bench: Bench, name: str, arm: Arm, device: torch.device, step_s: float, ledger: Ledger, *, asked_for: bool
) -> None:
    wanted_s, most = _ASKED_FOR if asked_for else _HANDFUL
    count = min(most, max(1, round(wanted_s / max(step_s, 1e-6))))
    if step_s < _SLOW_STEP_S or arm.mode is not None:
        bench.prepare(arm)
    else:
        bench.loader.rest()
    steps = _steps(bench, arm)
    profiler, seconds, ran = _record(bench, steps, count, device, warms_up=step_s < _SLOW_STEP_S)
    waits = _synchronisations(steps, count) if name == "device" and device.type == "cuda" else ()
    bench.loader.rest()
    summary = replace(summarise(profiler.key_averages(), ran, seconds / count), steps=count, synchronisations=waits)
    if device.type == "cuda" and summary.device_busy_share is None:
        ledger.warn(trace_without_device(name))
    ledger.note(trace=replace(ledger.evidence.trace, **{name: summary}))
    if name == "device":
        products = (each for each in profiler.profiler.kineto_results.events() if _PRODUCT.match(each.name()))
        types = ([_TYPES[type_] for type_ in each.dtypes() if type_ in _TYPES] for each in products)
        computed = dict(Counter(found[0] for found in types if found))
        ledger.note(model=replace(ledger.evidence.model, computed_dtypes=computed or None))
    if asked_for:
        ledger.traces[f"{name}.json.gz"] = _export(profiler)


# --- torch's profiler ---------------------------------------------------------------------------------------


def _record(
    bench: Bench, steps: Iterator[None], count: int, device: torch.device, *, warms_up: bool
) -> tuple[Any, float, int]:
    """Run some steps under the profiler; return it, the seconds of the counted steps, and the number of steps run."""
    if torch._C._autograd._profiler_enabled():
        raise TraceError("another torch profiler is active")
    known: Any = torch.profiler.supported_activities
    of_device = getattr(ProfilerActivity, device.type.upper(), ProfilerActivity.CPU)
    profiler = profile(activities={ProfilerActivity.CPU, of_device} & known(), record_shapes=True)
    with _silence():
        profiler.start()
    try:
        with _no_other_profiler():
            if warms_up:
                with record_function("bottleneck: warming up"):
                    next(steps)
                    bench.synchronize()
            began_s = time.perf_counter()
            for number in range(count):
                with record_function(f"ProfilerStep#{number}"):  # the name that other tools look for
                    next(steps)
            with record_function("bottleneck: waiting for the device"):
                bench.synchronize()
            seconds = time.perf_counter() - began_s
    finally:
        with _silence():
            profiler.stop()
    return profiler, seconds, count + warms_up


def _export(profiler: Any) -> bytes:
    """Return the Chrome trace as JSON compressed by gzip, without the name of the machine."""
    with tempfile.TemporaryDirectory(prefix="bottleneck-") as folder:
        path = Path(folder) / "trace.json"
        with _silence():
            profiler.export_chrome_trace(str(path))
        text = path.read_bytes()
    return gzip.compress(re.sub(rb'"host_name":\s*"[^"]*"', b'"host_name": ""', text, count=1), 5, mtime=0)


@contextlib.contextmanager
def _no_other_profiler() -> Iterator[None]:
    """Refuse to start or stop another profiler while this one runs.

    A process has one Kineto. A second profiler takes it over, and asking the first one for its result then can end the
    process (seen with torch 2.15).
    """

    def refuse(*_: object, **__: object) -> None:
        raise TraceError("the train step uses torch's profiler itself")

    with contextlib.ExitStack() as entered:
        for name in _ENTRIES:
            if hasattr(autograd_profiler, name):
                entered.enter_context(replaced(autograd_profiler, name, lambda _: refuse))
        yield


@contextlib.contextmanager
def _silence() -> Iterator[None]:
    """Drop output to standard error: Kineto writes there from C++, in the middle of the progress line."""
    with contextlib.suppress(AttributeError, OSError, ValueError):  # there may be none, or a closed one
        sys.stderr.flush()
    try:
        kept = os.dup(2)
    except OSError:  # closed, as in a service
        yield
        return
    try:
        with open(os.devnull, "wb") as nowhere:
            os.dup2(nowhere.fileno(), 2)
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)


def _steps(bench: Bench, arm: Arm) -> Iterator[None]:
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


# --- summary of a trace --------------------------------------------------------------------------------------


def summarise(averages: Any, ran: int, seconds_per_step: float) -> TracedSteps:
    """Return a summary of `key_averages()`; facts about the device are None if it did no work.

    Args:
        averages: Its rows; times are in microseconds.
        ran: Steps that were run under the profiler.
        seconds_per_step: Time of a step.
    """
    rows = [row for row in averages if not getattr(row, "is_user_annotation", False)]
    calls = [row for row in rows if row.device_type.name == "CPU"]
    # Older versions of torch do not mark our ranges on the device, which contain the kernels.
    ranges = {row.key for row in averages if row.device_type.name == "CPU"}
    work = [row for row in rows if row.device_type.name != "CPU" and row.key not in ranges]
    # If no operator used the device, as with the user's own kernels, the kernels are shown.
    shown = ([row for row in calls if row.self_device_time_total > 0] or work) if work else calls
    kernels_us = sum(row.self_device_time_total for row in work if not row.key.startswith(("Memcpy", "Memset")))
    busy_s = min(kernels_us / 1e6 / ran, seconds_per_step)

    def own_us(row: Any) -> float:
        return float(row.self_device_time_total if work else row.self_cpu_time_total)

    total_us = sum(map(own_us, work or calls))
    top = sorted((row for row in shown if own_us(row) > 0), key=lambda row: (-own_us(row), row.key))[:_MAX_ROWS]
    return TracedSteps(
        seconds_per_step=seconds_per_step,
        device_busy_share=busy_s / seconds_per_step if work else None,
        device_busy_s_per_step=busy_s if work else None,
        launches_per_step=sum(row.count for row in calls if _LAUNCH.match(row.key)) / ran if work else None,
        products_s_per_step=sum(own_us(row) for row in calls if _PRODUCT.match(row.key)) / 1e6 / ran,
        top=tuple(
            Operator(
                name=row.key[:_MAX_CHARACTERS],
                self_s_per_step=row.self_cpu_time_total / 1e6 / ran,
                device_s_per_step=row.self_device_time_total / 1e6 / ran if work else None,
                calls_per_step=row.count / ran,
                share=own_us(row) / total_us,
            )
            for row in top
        ),
    )


# --- waiting for the device -----------------------------------------------------------------------------------


def _synchronisations(steps: Iterator[None], count: int) -> tuple[Synchronisation, ...]:
    """List the lines that make the host wait for the device in some steps, by torch's own debug mode."""
    seen: Counter[str] = Counter()

    def note(message: object, _: object, file: str, line: int, *__: object) -> None:
        if _SYNCHRONISES in str(message) and (place := _place(file, line)) is not None:
            seen[place] += 1

    mode, shown = torch.cuda.get_sync_debug_mode(), warnings.showwarning
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        warnings.showwarning = note  # type: ignore[assignment]  # the module's own seam
        torch.cuda.set_sync_debug_mode("warn")
        try:
            for _ in range(count):
                next(steps)
        finally:
            torch.cuda.set_sync_debug_mode(mode)
            warnings.showwarning = shown  # which catch_warnings leaves to its caller without a GIL
    return tuple(Synchronisation(name=place, calls_per_step=calls / count) for place, calls in seen.most_common())


def _place(file: str, line: int) -> str | None:
    """Return the user's line on the stack, else the library's; None if this package asked for it."""
    frame: FrameType | None = sys._getframe(2)
    while frame is not None and not is_ours(frame.f_code.co_filename):
        if is_users(frame.f_code.co_filename):
            file, line = frame.f_code.co_filename, frame.f_lineno
            break
        frame = frame.f_back
    return None if is_ours(file) else f"{shown_path(file)}:{line}"

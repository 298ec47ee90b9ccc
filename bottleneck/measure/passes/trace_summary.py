"""What is kept of a trace as evidence: the most expensive operators, how busy the device is, what waits for it.

What an operator takes is counted on the device where there is one: there the host runs ahead, and its times say how
long it took to ask, not how long the work took. Everything is per step, and measured under the profiler, which makes
each call on the host slower by a few microseconds; times on the device are true.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import dataclass

from bottleneck.measure.passes.chrome_trace import Call, DeviceWork, Trace, busy_s
from bottleneck.results.evidence import Operator, OptimizerPart, Synchronisation, TracedSteps

WINDOW = "bottleneck: traced steps"
"""The annotation around all steps that count, and around waiting for the device after the last one."""
STEP = "ProfilerStep#"
"""The annotation around each step, with its number: the name that other tools look for."""

_MOST_OPERATORS = 30
_MOST_CHARACTERS = 200
_STAGED_BYTES = 1 << 16
_LAUNCH = re.compile(r"^(cuda|cu|hip|ze|ur)\w*Launch")
_WAIT = re.compile(r"^(cuda|hip)((Stream|Device|Event)Synchronize|Memcpy(2D|3D)?$)|^cu(Stream|Ctx|Event)Synchron")
_LAYOUT = re.compile(r"nchwToNhwc|nhwcToNchw", re.IGNORECASE)
CONVOLUTION = re.compile(r"^aten::\w*conv(olution|\d|_)")
MATRIX = re.compile(r"^aten::((add)?(mm|bmm|mv)|baddbmm|linear|matmul|_scaled_mm|_addmm_activation)\b|attention")


@dataclass(frozen=True)
class Steps:
    """The steps of a trace that count."""

    trace: Trace
    """What happened within them."""
    start_s: float
    end_s: float
    """When the device had done the last."""
    count: int
    launching_until_s: float
    """When the host had asked for the last."""

    @property
    def seconds(self) -> float:
        return self.end_s - self.start_s


def find_steps(trace: Trace) -> Steps | None:
    """Return the steps that the annotations mark; None where the trace lacks them."""
    windows = [call for call in trace.of_kind("annotation") if call.name == WINDOW]
    if not windows:
        return None
    window = windows[-1]
    inside = trace.within(window.start_s, window.end_s)
    steps = [call for call in inside.of_kind("annotation") if call.name.startswith(STEP)]
    if not steps or window.end_s <= window.start_s:
        return None
    return Steps(inside, window.start_s, window.end_s, len(steps), max(step.end_s for step in steps))


def summarise(steps: Steps) -> TracedSteps:
    """Return what is kept as evidence; what is about the device is None where it did no work."""
    trace, count, kernels = steps.trace, steps.count, steps.trace.kernels
    spent = _Spent(trace)
    device_busy_s = busy_s(kernels, steps.start_s, steps.end_s) if kernels else None
    launches = sum(1 for call in trace.of_kind("driver") if _LAUNCH.match(call.name))
    return TracedSteps(
        steps=count,
        seconds_per_step=steps.seconds / count,
        device_busy_share=None if device_busy_s is None else device_busy_s / steps.seconds,
        device_busy_s_per_step=None if device_busy_s is None else device_busy_s / count,
        top=_top(spent, count),
        synchronisations=_synchronisations(steps),
        launches_per_step=launches / count if trace.work else None,
        mean_kernel_s=sum(kernel.seconds for kernel in kernels) / len(kernels) if kernels else None,
        operators_per_step=sum(call.leaf for call in trace.of_kind("operator")) / count,
        matrix_s_per_step=spent.matching(MATRIX) / count,
        convolution_s_per_step=spent.matching(CONVOLUTION) / count,
        layout_s_per_step=sum(work.seconds for work in trace.work if _LAYOUT.search(work.name)) / count,
        optimizer=_annotated(trace, "Optimizer.step#", count),
        clearing=_annotated(trace, "Optimizer.zero_grad#", count),
    )


def _owner(work: DeviceWork) -> str:
    """Return the operator that some work of the device belongs to; without one, its own name."""
    if work.cause is not None:
        for outer in work.cause.around:
            if outer.kind == "operator":
                return outer.name
    return work.name


class _Spent:
    """What the operators take, by name."""

    def __init__(self, trace: Trace) -> None:
        self.calls: Counter[str] = Counter()
        self.host_s: defaultdict[str, float] = defaultdict(float)
        self.device_s: defaultdict[str, float] = defaultdict(float)
        for call in trace.of_kind("operator"):
            self.calls[call.name] += 1
            self.host_s[call.name] += call.own_s
        for work in trace.work:
            self.device_s[_owner(work)] += work.seconds
        self.has_device = bool(trace.work)

    @property
    def counted(self) -> dict[str, float]:
        """Seconds where they count: on the device where there is one."""
        return self.device_s if self.has_device else self.host_s

    def matching(self, pattern: re.Pattern[str]) -> float:
        """Seconds of the operators whose names match."""
        return sum(seconds for name, seconds in self.counted.items() if pattern.search(name))


def _top(spent: _Spent, count: int) -> tuple[Operator, ...]:
    total_s = sum(spent.counted.values())
    if total_s <= 0:
        return ()
    first = sorted(spent.counted.items(), key=lambda item: (-item[1], item[0]))[:_MOST_OPERATORS]
    return tuple(
        Operator(
            name=name[:_MOST_CHARACTERS],
            self_s_per_step=spent.host_s[name] / count,
            device_s_per_step=spent.device_s[name] / count if spent.has_device else None,
            calls_per_step=spent.calls[name] / count,
            share=seconds / total_s,
        )
        for name, seconds in first
        if seconds > 0
    )


# --- waiting for the device --------------------------------------------------------------------------------


def _synchronisations(steps: Steps) -> tuple[Synchronisation, ...]:
    """List what makes the host wait for the device within a step, by what asked for it.

    `idle_after_s_per_step` is how long the device had nothing to do from the end of the wait to its next work: while
    the host waits, it cannot ask for more.
    """
    pageable = {work.cause for work in steps.trace.work if _blocks(work)}
    waits: dict[Call, list[Call]] = {}
    for call in steps.trace.of_kind("driver"):
        if (_WAIT.match(call.name) or call in pageable) and call.start_s < steps.launching_until_s:
            waits.setdefault(_outermost(call), []).append(call)
    rows: dict[str, list[float]] = {}
    for outermost, calls in waits.items():
        by = calls[-1].name
        row = rows.setdefault(f"{outermost.name} ({by})" if outermost is not calls[-1] else by, [0.0, 0.0, 0.0])
        row[0] += 1
        row[1] += sum(call.end_s - call.start_s for call in calls)
        row[2] += steps.trace.idle_after_s(calls[-1].end_s)
    return tuple(
        Synchronisation(
            name=name[:_MOST_CHARACTERS],
            calls_per_step=number / steps.count,
            seconds_per_step=waited_s / steps.count,
            idle_after_s_per_step=idle_s / steps.count,
        )
        for name, (number, waited_s, idle_s) in sorted(rows.items(), key=lambda item: (-item[1][2], -item[1][1]))
    )


def _blocks(work: DeviceWork) -> bool:
    """Whether the host waits for a copy although it asked for an asynchronous one: of memory that is not pinned.

    CUDA's driver stages small copies to the device, and returns (CUDA Runtime API, 'API synchronization behavior').
    """
    if work.kind != "gpu_memcpy" or "Pageable" not in work.name:
        return False
    return "DtoH" in work.name or work.size_bytes > _STAGED_BYTES


def _outermost(call: Call) -> Call:
    """Return the outermost operator around a call, which is the one that the user's code called; else the call."""
    found = call
    for outer in call.around:
        if outer.kind == "operator":
            found = outer
    return found


# --- the optimizer -----------------------------------------------------------------------------------------


def _annotated(trace: Trace, prefix: str, count: int) -> OptimizerPart:
    """Return what happens within annotations of the optimizer's; nothing known where there are none.

    torch annotates `step` and `zero_grad` of every optimizer with its class.
    """
    annotations = [call for call in trace.of_kind("annotation") if call.name.startswith(prefix)]
    if not annotations:
        return OptimizerPart()
    inside = _inside(annotations)
    operators = [call for call in trace.of_kind("operator") if inside(call)]
    device_s = sum(work.seconds for work in trace.work if work.cause is not None and inside(work.cause))
    return OptimizerPart(
        name=annotations[0].name[len(prefix) :].partition(".")[0],
        host_s_per_step=sum(call.end_s - call.start_s for call in annotations) / count,
        device_s_per_step=device_s / count if trace.work else None,
        operators_per_step=sum(call.leaf for call in operators) / count,
        fused=any(call.name.startswith("aten::_fused_") for call in operators),
        foreach=any(call.name.startswith("aten::_foreach_") for call in operators),
    )


def _inside(annotations: list[Call]) -> Callable[[Call], bool]:
    wanted = set(annotations)
    return lambda call: any(outer in wanted for outer in call.around)

"""What is known of the train step from its trace and its model: the ground of all advice about computing.

Times on a device are those of the trace, and the step is that of the timed rounds: the profiler slows the host down,
not the device. Where the CPU trains, both come from the trace, since both are slowed down.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from bottleneck.analysis.advice.rule import Case, Rule, Suggestion
from bottleneck.results.evidence import ModelFacts, OptimizerPart, TracedSteps
from bottleneck.results.names import COMPUTE

BUSY = 0.8
"""The share of a step from which on the device is taken to be what limits it; below it, the host is."""
LAUNCH_S = 5e-6
"""What it takes the host to call an operator and to launch its kernel, roughly: a few microseconds for the launch
(NVIDIA, 'Getting Started with CUDA Graphs'), and PyTorch's dispatch on top."""
WORTH_GAIN = 1.01
"""A gain below it is not worth a word."""
_SMALL = ("bfloat16", "float16")


@dataclass(frozen=True)
class StepFacts:
    """A traced step. What the evidence does not hold is None."""

    case: Case
    trace: TracedSteps
    """Of the `device` experiment."""
    model: ModelFacts
    traced_s: float
    """A step under the profiler."""
    busy_s: float | None
    """The part of a step in which the device computes; None without a device beside the CPU."""

    @property
    def step_s(self) -> float:
        """A step with free input, without the profiler."""
        return self.case.device_s

    @property
    def busy_share(self) -> float | None:
        """The part of a step in which the device computes."""
        return None if self.busy_s is None else min(1.0, self.busy_s / self.step_s)

    @property
    def device_limits(self) -> bool:
        """Whether work on the device, or on the CPU where that trains, is what a step takes its time for."""
        return self.case.on_cpu or (self.busy_share is not None and self.busy_share >= BUSY)

    @property
    def host_limits(self) -> bool:
        """Whether the device waits for the host to ask for work."""
        return self.busy_share is not None and self.busy_share < BUSY

    @property
    def is_known(self) -> bool:
        """Whether the trace shows what limits a step; without events of the device it does not."""
        return self.device_limits or self.host_limits

    @property
    def idle_s(self) -> float:
        """The part of a step in which the device does nothing."""
        return 0.0 if self.busy_s is None else max(0.0, self.step_s - self.busy_s)

    def spent_s(self, seconds: float | None) -> float:
        """What something that took so long in the trace takes of a step, where a step takes its time."""
        seconds = seconds or 0.0
        return self._true_s(seconds) if self.busy_s is None else min(seconds, self.step_s)

    def within_s(self, part: OptimizerPart) -> float | None:
        """What an annotated part, such as the optimizer, takes of a step; None where there is none."""
        if self.device_limits and part.device_s_per_step is not None:
            return min(part.device_s_per_step, self.step_s)
        return None if part.host_s_per_step is None else self._true_s(part.host_s_per_step)

    def _true_s(self, seconds: float) -> float:
        """What some time under the profiler is without it, in the same proportion to the step."""
        return min(1.0, seconds / self.traced_s) * self.step_s

    def is_at_least(self, major: int) -> bool:
        """Whether the device is known to be of this compute capability, or of a later one."""
        capability = self.model.device_capability
        return capability is not None and capability[0] >= major

    def computed_share(self, *dtypes: str) -> float | None:
        """The part of the matrix products and convolutions in some types; None where there were none."""
        counted = self.model.computed_dtypes or {}
        total = sum(counted.values())
        return sum(counted.get(name, 0) for name in dtypes) / total if total > 0 else None

    @property
    def small_share(self) -> float | None:
        """The part of the matrix products and convolutions in types of 16 bits."""
        return self.computed_share(*_SMALL)

    def gain(self, saved_s: float) -> float:
        """What the job gains when a step takes less, but not more than the loader can supply."""
        least_s = max(self.case.step_s - saved_s, self.case.loader_s, 0.05 * self.case.step_s)
        return max(1.0, self.case.step_s / least_s)

    def saving(
        self, saved_s: float, title: str, why: str, how: str, evidence: Mapping[str, float | bool | None]
    ) -> Iterator[Suggestion]:
        """Advise what saves some time of a step, if that is worth a word."""
        gain = self.gain(saved_s)
        if gain >= WORTH_GAIN:
            numbers = {**evidence, "step_s": self.step_s, "saved_s_per_step": saved_s}
            yield Suggestion(stage=COMPUTE, title=title, why=why, how=how, evidence=numbers, gain=gain)


def step_facts(case: Case) -> StepFacts | None:
    """Gather what is known of the step; None without a trace of it."""
    trace, model = case.evidence.trace.device, case.evidence.model
    traced_s = trace.seconds_per_step
    if not traced_s or traced_s <= 0 or case.device_s <= 0:
        return None
    busy_s, share = trace.device_busy_s_per_step, trace.device_busy_share
    if busy_s is None and share is not None:
        busy_s = share * traced_s
    return StepFacts(case, trace, model, traced_s, busy_s)


def step_rule(*ids: str) -> Callable[[Callable[[StepFacts], Iterator[Suggestion]]], Rule]:
    """Make a function a rule that is asked where the step holds the job, and a trace of it was taken."""

    def make(check: Callable[[StepFacts], Iterator[Suggestion]]) -> Rule:
        def check_case(case: Case) -> Iterator[Suggestion]:
            facts = step_facts(case) if case.verdict.state == "device_bound" else None
            return iter(()) if facts is None else check(facts)

        return Rule(ids, check_case)

    return make

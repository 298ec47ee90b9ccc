"""What to do where the device waits for the host: too many small launches, or needless waits.

What is gained is an estimate from the trace; the remedies are those of PyTorch's 'Performance Tuning Guide' ('Avoid
unnecessary CPU-GPU synchronization') and of its blog post 'Accelerating PyTorch with CUDA Graphs'.
"""

from __future__ import annotations

from collections.abc import Iterator

from bottleneck.analysis.advice.rule import Case, Suggestion, rule
from bottleneck.analysis.advice.step_facts import LAUNCH_S, WORTH_GAIN, StepFacts, step_facts, step_rule
from bottleneck.results.evidence import Synchronisation
from bottleneck.results.format import duration, number, percent, size
from bottleneck.results.names import COMPUTE

_LAUNCHING_SHARE = 0.2
"""The part of a step that launches take at least before fewer of them are worth advice."""
_FUSED_AWAY = 0.5
"""The part of the operators that a compiler fuses with others: those between matrix products."""
_WAITING_SHARE = 0.02
_FEWEST_WAITS = 0.5
"""For each step; rarer ones are of those that log every so many steps."""


@step_rule("compile")
def _compile(facts: StepFacts) -> Iterator[Suggestion]:
    """Advise torch.compile where calling many small operators takes a real part of the step."""
    if facts.model.compiled is not False:
        return
    calls = facts.trace.operators_per_step if facts.case.on_cpu else facts.trace.launches_per_step
    if calls is None or calls * LAUNCH_S < _LAUNCHING_SHARE * facts.step_s:
        return
    what = "operators" if facts.case.on_cpu else "kernels"
    yield from facts.saving(
        _FUSED_AWAY * calls * LAUNCH_S,
        "Compile the model, which fuses small operators",
        f"A step of {duration(facts.step_s)} calls {number(calls)} {what}, each of which takes the host about "
        f"{duration(LAUNCH_S)}, and nothing is compiled. The gain is an estimate: that half of them are fused with "
        "others.",
        "model = torch.compile(model)",
        {f"{what}_per_step": calls},
    )


@step_rule("cuda-graphs")
def _cuda_graphs(facts: StepFacts) -> Iterator[Suggestion]:
    """Advise CUDA graphs where the device waits for launches, shapes stay the same and nothing synchronises."""
    if not facts.host_limits or not facts.case.on_cuda or facts.model.fixed_shapes is not True:
        return
    launches = facts.trace.launches_per_step or 0.0
    # A graph cannot be captured of a step that waits for the device.
    if launches * LAUNCH_S < _LAUNCHING_SHARE * facts.step_s or _waits(facts):
        return
    yield from facts.saving(
        min(facts.idle_s, launches * LAUNCH_S),
        "Replay the step as a CUDA graph",
        f"The device computes for {duration(facts.busy_s or 0.0)} of each {duration(facts.step_s)} step and waits "
        f"for {number(launches)} launches in the rest; all batches have one shape. The gain is an estimate: that "
        f"{duration(LAUNCH_S)} a launch go.",
        'model = torch.compile(model, mode="reduce-overhead"), or torch.cuda.make_graphed_callables(model, ...)',
        {"launches_per_step": launches, "device_busy_s_per_step": facts.busy_s},
    )


@step_rule("larger-batch")
def _larger_batch(facts: StepFacts) -> Iterator[Suggestion]:
    """Advise twice the batch where the device has time and memory for it."""
    if not facts.host_limits or facts.busy_s is None:
        return
    model = facts.model
    peak, total, free = model.peak_device_bytes, model.device_bytes, model.device_free_bytes
    # Twice of everything, of the parameters too, would still fit.
    if peak is None or total is None or free is None or peak <= 0 or peak > min(total - peak, free):
        return
    batch_size = facts.case.number("batch_size")
    if batch_size is None:
        return
    # A step with twice the batch takes as long as before, or what the device then needs.
    doubled_s = max(2 * facts.busy_s, facts.step_s)
    gain = facts.gain(facts.step_s - doubled_s / 2)
    if gain < WORTH_GAIN:
        return
    yield Suggestion(
        stage=COMPUTE,
        title=f"Raise the batch size from {batch_size:.0f} to {2 * batch_size:.0f}",
        why=f"The device computes for {duration(facts.busy_s)} of each {duration(facts.step_s)} step, and at most "
        f"{size(peak)} of its {size(total)} were in use. The gain is an estimate: that the host needs no "
        "longer for twice the samples. The learning rate may have to change with it.",
        how=facts.case.loader_with(f"batch_size={2 * batch_size:.0f}"),
        evidence={
            "proposed": {"batch_size": int(2 * batch_size)},
            "device_busy_s_per_step": facts.busy_s,
            "peak_device_bytes": peak,
            "device_bytes": total,
            "step_s": facts.step_s,
        },
        gain=gain,
    )


@rule("step-synchronises")
def _synchronises(case: Case) -> Iterator[Suggestion]:
    """Advise fewer waits for the device, where it has nothing to do after them."""
    facts = step_facts(case)
    waits = _waits(facts) if facts is not None else ()
    if facts is None or not waits:
        return
    idle_s = sum(wait.idle_after_s_per_step or 0.0 for wait in waits)
    share = min(1.0, idle_s / facts.traced_s)
    gain = facts.gain(share * facts.step_s)
    if share < _WAITING_SHARE or gain < WORTH_GAIN:
        return
    calls = sum(wait.calls_per_step or 0.0 for wait in waits)
    by = ", ".join((wait.name or "")[:80] for wait in waits[:3])
    yield Suggestion(
        stage=COMPUTE,
        title="Do not wait for the device in every step",
        why=f"The train step waits for the device {number(calls, 0 if calls >= 9.5 else 1)} times ({by}); after that "
        f"the device has nothing to do for {percent(share)} of the step, until the host has asked for more. The gain "
        "is an estimate: that all of that goes.",
        how="log every N steps: total += loss.detach(), and total.item() when step % 50 == 0; the same for "
        "loss.item(), .cpu(), .nonzero() and if tensor:",
        evidence={"waits_per_step": calls, "idle_share": share, "step_s": facts.step_s},
        gain=gain,
    )


def _waits(facts: StepFacts) -> tuple[Synchronisation, ...]:
    """What makes the host wait for the device in most steps."""
    return tuple(wait for wait in facts.trace.synchronisations if (wait.calls_per_step or 0.0) >= _FEWEST_WAITS)


RULES = (
    _compile,
    _cuda_graphs,
    _larger_batch,
    _synchronises,
)

"""How the device can do the same work in less time, where its work is what a step takes its time for.

What is gained is an estimate: the part of the step that a change is about, as the trace shows it, times what the change
at least saves of such work; the rest of the step stays what it is (Amdahl's law). The remedies are those of PyTorch's
'Performance Tuning Guide' and of the pages named with each rule.
"""

from __future__ import annotations

from collections.abc import Iterator

from bottleneck.analysis.advice.rule import Suggestion
from bottleneck.analysis.advice.step_facts import StepFacts, step_rule
from bottleneck.results.format import duration, percent
from bottleneck.results.names import COMPUTE

_VOLTA, _AMPERE = 7, 8
_WORTH_SHARE = 0.1
"""The part of a step that the work in question takes at least."""
_SAVED_IN_16_BITS = 1 / 3
"""Of the time of products and convolutions. Tensor cores do twice as many of 16 bits as of TF32, and many times as
many as of float32 (NVIDIA, 'Ampere Architecture whitepaper'); a third is what remains of it with memory in the way."""
_SAVED_BY_TF32 = 0.5
"""Of the time of products in float32; PyTorch's notes on CUDA ('TensorFloat-32') measure a seventh of the time."""
_SAVED_BY_CHANNELS_LAST = 0.08
"""The least that 'Channels Last Memory Format in PyTorch' reports for mixed precision: 8 to 35 %."""
_FUSED = ("Adam", "AdamW", "SGD")
_SAVED_BY_FUSING = {False: 0.5, True: 0.25}
"""Of the optimizer's time, by whether it works on lists of tensors already. torch.optim's page orders the three
implementations: one loop, `foreach`, `fused`; how far they lie apart depends on the model."""
_OPTIMIZER_SHARE, _CLEARING_SHARE = 0.05, 0.01


@step_rule("mixed-precision")
def _mixed_precision(facts: StepFacts) -> Iterator[Suggestion]:
    """Advise autocast where all products are in float32, on a device that has faster ones of 16 bits."""
    if not facts.device_limits or facts.computed_share("float32") != 1:
        return
    if facts.model.autocast is True or not (facts.is_at_least(_VOLTA) or facts.model.cpu_bfloat16):
        return
    products_s = min(
        facts.spent_s(facts.trace.matrix_s_per_step) + facts.spent_s(facts.trace.convolution_s_per_step),
        facts.step_s,
    )
    if products_s < _WORTH_SHARE * facts.step_s:
        return
    kind = "cpu" if facts.case.on_cpu else "cuda"
    small = "bfloat16" if facts.case.on_cpu or facts.is_at_least(_AMPERE) else "float16"
    scaler = "" if small == "bfloat16" else "; scale the loss with torch.amp.GradScaler()"
    yield from facts.saving(
        _SAVED_IN_16_BITS * products_s,
        "Compute in mixed precision",
        f"Matrix products and convolutions take {_of_step(facts, products_s)}, and all of them are in float32. The "
        f"gain is an estimate: that {small} saves a third of that.",
        f'with torch.autocast("{kind}", dtype=torch.{small}): loss = loss_fn(model(inputs), targets){scaler}',
        {"products_s_per_step": products_s, "float32_share": 1.0},
    )


@step_rule("float32-matmul-precision")
def _matmul_precision(facts: StepFacts) -> Iterator[Suggestion]:
    """Advise TF32 for products in float32 on Ampere and later, where it is not allowed."""
    if not facts.device_limits or not facts.case.on_cuda or not facts.is_at_least(_AMPERE):
        return
    matrix_s, in_float32 = facts.spent_s(facts.trace.matrix_s_per_step), facts.computed_share("float32") or 0.0
    if facts.model.matmul_precision != "highest" or in_float32 <= 0.5 or matrix_s < _WORTH_SHARE * facts.step_s:
        return
    yield from facts.saving(
        _SAVED_BY_TF32 * in_float32 * matrix_s,
        "Let matrix products of float32 use the tensor cores",
        f"Matrix products take {_of_step(facts, matrix_s)}, in full float32 precision "
        '(torch.get_float32_matmul_precision() is "highest"). The gain is an estimate: that TF32 halves that.',
        'torch.set_float32_matmul_precision("high"), once, before training',
        {"matrix_s_per_step": matrix_s, "float32_share": in_float32},
    )


@step_rule("channels-last")
def _channels_last(facts: StepFacts) -> Iterator[Suggestion]:
    """Advise the layout that tensor cores want for convolutions of 16 bits."""
    if not facts.device_limits or not facts.case.on_cuda or not facts.is_at_least(_VOLTA):
        return
    convolution_s = facts.spent_s(facts.trace.convolution_s_per_step)
    layout_s = facts.spent_s(facts.trace.layout_s_per_step)
    if facts.model.channels_last is not False or (facts.small_share or 0.0) <= 0.5:
        return
    if convolution_s < _WORTH_SHARE * facts.step_s:
        return
    converting = f" Converting between layouts takes {duration(layout_s)} of that." if layout_s > 0 else ""
    yield from facts.saving(
        max(layout_s, _SAVED_BY_CHANNELS_LAST * convolution_s),
        "Keep images in the channels-last layout",
        f"Convolutions take {_of_step(facts, convolution_s)}, on tensors with the channels outermost.{converting} The "
        f"gain is an estimate: what the conversions take, or {percent(_SAVED_BY_CHANNELS_LAST)} of the convolutions.",
        "model = model.to(memory_format=torch.channels_last); "
        "images = images.to(device, non_blocking=True, memory_format=torch.channels_last)",
        {"convolution_s_per_step": convolution_s, "layout_s_per_step": layout_s},
    )


@step_rule("cudnn-benchmark")
def _cudnn_benchmark(facts: StepFacts) -> Iterator[Suggestion]:
    """Advise trying the algorithms of cuDNN where all batches have one shape; the gain is unknown before it."""
    if not facts.device_limits or not facts.case.on_cuda:
        return
    convolution_s = facts.spent_s(facts.trace.convolution_s_per_step)
    if facts.model.cudnn_benchmark is not False or facts.model.fixed_shapes is not True:
        return
    if convolution_s < _WORTH_SHARE * facts.step_s:
        return
    yield Suggestion(
        stage=COMPUTE,
        title="Let cuDNN try its algorithms and keep the fastest",
        why=f"Convolutions take {_of_step(facts, convolution_s)}, all batches have one shape, and cuDNN chooses by "
        "rule of thumb. Try it to see what it gains.",
        how="torch.backends.cudnn.benchmark = True, once, before training",
        evidence={"convolution_s_per_step": convolution_s, "cudnn_benchmark": False, "fixed_shapes": True},
    )


@step_rule("fused-optimizer")
def _fused_optimizer(facts: StepFacts) -> Iterator[Suggestion]:
    """Advise the fused implementation where the optimizer has one, does not use it, and takes its time."""
    if not facts.is_known or not (facts.case.on_cpu or facts.case.on_cuda):
        return
    name, optimizer_s = facts.model.optimizer, facts.within_s(facts.trace.optimizer)
    if name not in _FUSED or facts.model.optimizer_fused is not False or optimizer_s is None:
        return
    if optimizer_s < _OPTIMIZER_SHARE * facts.step_s:
        return
    saved = _SAVED_BY_FUSING[facts.model.optimizer_foreach is True]
    yield from facts.saving(
        saved * optimizer_s,
        "Use the fused implementation of the optimizer",
        f"{name}.step takes {_of_step(facts, optimizer_s)}, and is not fused. The gain is an estimate: that fusing "
        f"saves {percent(saved)} of that.",
        f"torch.optim.{name}(model.parameters(), ..., fused=True)",
        {"optimizer_s_per_step": optimizer_s, "fused": False},
    )


@step_rule("set-to-none")
def _set_to_none(facts: StepFacts) -> Iterator[Suggestion]:
    """Advise dropping gradients where they are filled with zeros, which the trace shows."""
    if not facts.is_known:
        return
    clearing_s = facts.within_s(facts.trace.clearing)
    fills = facts.trace.clearing.operators_per_step or 0.0
    if clearing_s is None or fills < 1 or clearing_s < _CLEARING_SHARE * facts.step_s:
        return
    yield from facts.saving(
        clearing_s,
        "Drop the gradients instead of filling them with zeros",
        f"zero_grad fills them with {fills:.0f} operators a step, which takes {_of_step(facts, clearing_s)}. The gain "
        "is an estimate: that all of that goes.",
        "optimizer.zero_grad(set_to_none=True), which is the default",
        {"clearing_s_per_step": clearing_s, "operators_per_step": fills},
    )


def _of_step(facts: StepFacts, seconds: float) -> str:
    return f"{duration(seconds)} of each {duration(facts.step_s)} step ({percent(seconds / facts.step_s)})"


RULES = (
    _mixed_precision,
    _matmul_precision,
    _channels_last,
    _cudnn_benchmark,
    _fused_optimizer,
    _set_to_none,
)

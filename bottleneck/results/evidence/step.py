"""The train step: how it ran, the model, and some steps under torch's profiler."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from bottleneck.results.evidence.fields import left_out, null
from bottleneck.results.values import Count, Quantity


@dataclass(frozen=True, kw_only=True)
class TrainingSeen:
    """The train step while blocks were measured."""

    put_back: Quantity | None = left_out()
    put_back_skipped: Quantity | None = left_out()
    blocks: Count | None = None
    """Blocks with fresh batches."""
    distinct_shapes: Count | None = None
    """Of all batches; None on a CPU, where shapes are not recorded."""
    shapes_new_in_blocks: Quantity | None = None
    """Shapes that came up for the first time in these blocks."""
    compiled_in_blocks: Quantity | None = None
    allocations_in_blocks: Quantity | None = None
    allocation_retries_in_blocks: Quantity | None = None


@dataclass(frozen=True, kw_only=True)
class LoopSeen:
    """What a script's own loop does with a batch that is on the device already, in time of the host: means."""

    batches: Count | None = None
    until_optimizer_s: Quantity | None = None
    """Until its optimizers step, and between them; of a batch without a step all of its time."""
    optimizer_s: Quantity | None = None
    after_optimizer_s: Quantity | None = None
    """From the last step of an optimizer until the loop asks for the next batch."""
    other_loaders_s: Quantity | None = None
    """Of all that: waiting for other loaders, which go on as they are."""


@dataclass(frozen=True, kw_only=True)
class ModelFacts:
    """Facts about the model, the optimizer and torch's settings."""

    parameters: Quantity | None = None
    parameter_bytes: Quantity | None = None
    dtypes: Mapping[str, Quantity] | None = None
    compiled: bool | None = None
    own_train_step: bool | None = None
    computed_dtypes: Mapping[str, Quantity] | None = None
    """Matrix products and convolutions of the traced steps, by type."""
    autocast: bool | None = None
    """A model of `float32` computed in a smaller type."""
    optimizer: str | None = None
    optimizer_fused: bool | None = None
    optimizer_foreach: bool | None = None
    convolutions: Quantity | None = None
    channels_last: bool | None = None
    fixed_shapes: bool | None = None
    cudnn_benchmark: bool | None = None
    matmul_precision: str | None = None
    peak_device_bytes: Quantity | None = None
    """The most that tensors took of a CUDA device."""
    device_bytes: Quantity | None = None
    device_free_bytes: Quantity | None = None
    device_capability: tuple[Count, Count] | None = None
    cpu_bfloat16: bool | None = None


@dataclass(frozen=True, kw_only=True)
class Operator:
    """What an operator takes in the traced steps."""

    name: str | None = None
    self_s_per_step: Quantity | None = None
    """On the host, without the operators that it calls."""
    device_s_per_step: Quantity | None = None
    """None without a device."""
    calls_per_step: Quantity | None = None
    share: Quantity | None = None


@dataclass(frozen=True, kw_only=True)
class Synchronisation:
    """What makes the host wait for the device within a step."""

    name: str | None = None
    """What asked for it, and the driver's call."""
    calls_per_step: Quantity | None = None
    seconds_per_step: Quantity | None = None
    idle_after_s_per_step: Quantity | None = None
    """How long the device then has nothing to do."""


@dataclass(frozen=True, kw_only=True)
class OptimizerPart:
    """A part of the step that torch annotates, such as that of the optimizer."""

    name: str | None = None
    host_s_per_step: Quantity | None = None
    device_s_per_step: Quantity | None = None
    """None without a device."""
    operators_per_step: Quantity | None = None
    fused: bool | None = None
    foreach: bool | None = None


@dataclass(frozen=True, kw_only=True)
class TracedSteps:
    """Some steps of one experiment under torch's profiler."""

    steps: Count | None = None
    seconds_per_step: Quantity | None = None
    device_busy_share: Quantity | None = None
    """Share of a step in which the device computes; None without one."""
    device_busy_s_per_step: Quantity | None = None
    top: tuple[Operator, ...] = ()
    synchronisations: tuple[Synchronisation, ...] = ()
    launches_per_step: Quantity | None = None
    mean_kernel_s: Quantity | None = None
    operators_per_step: Quantity | None = None
    """Operators that call no other."""
    matrix_s_per_step: Quantity | None = None
    convolution_s_per_step: Quantity | None = None
    layout_s_per_step: Quantity | None = None
    optimizer: OptimizerPart = null(OptimizerPart())
    """Its `step`."""
    clearing: OptimizerPart = null(OptimizerPart())
    """Its `zero_grad`."""


@dataclass(frozen=True, kw_only=True)
class Traces:
    """Traced steps, by experiment."""

    device: TracedSteps = left_out(TracedSteps())
    raw: TracedSteps = left_out(TracedSteps())

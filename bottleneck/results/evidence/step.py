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
    """How often weights and optimizer were restored at the beginning of a round."""
    put_back_skipped: Quantity | None = left_out()
    """How often that was left out for the time it takes."""
    blocks: Count | None = None
    """Blocks with fresh batches."""
    distinct_shapes: Count | None = None
    """Of all batches; None on a CPU, where shapes are not recorded."""
    shapes_new_in_blocks: Quantity | None = None
    """Shapes that came up for the first time in these blocks."""
    compiled_in_blocks: Quantity | None = None
    """Graphs compiled in them."""
    allocations_in_blocks: Quantity | None = None
    """Pieces of memory taken from the device in them."""
    allocation_retries_in_blocks: Quantity | None = None
    """Times that the allocator found none left."""


@dataclass(frozen=True, kw_only=True)
class ModelFacts:
    """Facts about the model, the optimizer and torch's settings."""

    parameters: Quantity | None = None
    parameter_bytes: Quantity | None = None
    dtypes: Mapping[str, Quantity] | None = None
    """Parameters of each type."""
    compiled: bool | None = None
    """By `torch.compile`."""
    own_train_step: bool | None = None
    """A `train_step` was given."""
    computed_dtypes: Mapping[str, Quantity] | None = None
    """Matrix products and convolutions of the traced steps, by type."""
    autocast: bool | None = None
    """A model of `float32` computed in a smaller type."""
    optimizer: str | None = None
    """Its class."""
    optimizer_fused: bool | None = None
    optimizer_foreach: bool | None = None
    convolutions: Quantity | None = None
    """Layers."""
    channels_last: bool | None = None
    """Images are in that layout."""
    fixed_shapes: bool | None = None
    """All batches had one shape."""
    cudnn_benchmark: bool | None = None
    matmul_precision: str | None = None
    peak_device_bytes: Quantity | None = None
    """The most that tensors took of a CUDA device."""
    device_bytes: Quantity | None = None
    """Its memory."""
    device_free_bytes: Quantity | None = None
    device_capability: tuple[Count, Count] | None = None
    """Major and minor number of an NVIDIA device."""
    cpu_bfloat16: bool | None = None
    """The processor computes in it."""


@dataclass(frozen=True, kw_only=True)
class Operator:
    """What an operator takes in the traced steps."""

    name: str | None = None
    """As torch calls it."""
    self_s_per_step: Quantity | None = None
    """On the host, without the operators that it calls."""
    device_s_per_step: Quantity | None = None
    """None without a device."""
    calls_per_step: Quantity | None = None
    share: Quantity | None = None
    """Its share of the own time of all operators."""


@dataclass(frozen=True, kw_only=True)
class Synchronisation:
    """What makes the host wait for the device within a step."""

    name: str | None = None
    """What asked for it, and the driver's call."""
    calls_per_step: Quantity | None = None
    seconds_per_step: Quantity | None = None
    """How long the host waits."""
    idle_after_s_per_step: Quantity | None = None
    """How long the device has nothing to do after that."""


@dataclass(frozen=True, kw_only=True)
class OptimizerPart:
    """A part of the step that torch annotates, such as that of the optimizer."""

    name: str | None = None
    """The class of the optimizer."""
    host_s_per_step: Quantity | None = None
    device_s_per_step: Quantity | None = None
    """None without a device."""
    operators_per_step: Quantity | None = None
    """Operators that it calls."""
    fused: bool | None = None
    """It calls fused ones."""
    foreach: bool | None = None
    """It calls those that take lists."""


@dataclass(frozen=True, kw_only=True)
class TracedSteps:
    """Some steps of one experiment under torch's profiler."""

    steps: Count | None = None
    seconds_per_step: Quantity | None = None
    """Under the profiler."""
    device_busy_share: Quantity | None = None
    """Share of that in which the device computes; None without one."""
    device_busy_s_per_step: Quantity | None = None
    top: tuple[Operator, ...] = ()
    """The costliest operators."""
    synchronisations: tuple[Synchronisation, ...] = ()
    launches_per_step: Quantity | None = None
    """Kernels that the host launches."""
    mean_kernel_s: Quantity | None = None
    operators_per_step: Quantity | None = None
    """Operators that call no other."""
    matrix_s_per_step: Quantity | None = None
    """Matrix products."""
    convolution_s_per_step: Quantity | None = None
    layout_s_per_step: Quantity | None = None
    """Changes of the layout of images."""
    optimizer: OptimizerPart = null(OptimizerPart())
    """Its `step`."""
    clearing: OptimizerPart = null(OptimizerPart())
    """Its `zero_grad`."""


@dataclass(frozen=True, kw_only=True)
class Traces:
    """Traced steps, by experiment."""

    device: TracedSteps = left_out(TracedSteps())
    raw: TracedSteps = left_out(TracedSteps())

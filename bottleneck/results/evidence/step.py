"""The train step: how it ran, the model, and some steps under torch's profiler."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from bottleneck.results.evidence.fields import left_out
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
    """Until its optimizers step, between them, and in a closure that one calls; of a batch without a step all of its
    time."""
    optimizer_s: Quantity | None = None
    after_optimizer_s: Quantity | None = None
    """From the last step of an optimizer until the loop asks for the next batch."""
    other_loaders_s: Quantity | None = None
    """Of all that: waiting for other loaders, which go on as they are."""


@dataclass(frozen=True, kw_only=True)
class ModelFacts:
    """Facts about the model and the device."""

    compiled: bool | None = None
    computed_dtypes: Mapping[str, Quantity] | None = None
    """Matrix products and convolutions of the traced steps, by type."""
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
    """A line that makes the host wait for the device within a step."""

    name: str | None = None
    """The file and the line."""
    calls_per_step: Quantity | None = None


@dataclass(frozen=True, kw_only=True)
class TracedSteps:
    """Some steps of one experiment under torch's profiler."""

    steps: Count | None = None
    seconds_per_step: Quantity | None = None
    device_busy_share: Quantity | None = None
    """Share of a step in which the device computes; None without one."""
    device_busy_s_per_step: Quantity | None = None
    launches_per_step: Quantity | None = None
    products_s_per_step: Quantity | None = None
    """What matrix products and convolutions take, on the device where there is one."""
    top: tuple[Operator, ...] = ()
    synchronisations: tuple[Synchronisation, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Traces:
    """Traced steps, by experiment."""

    device: TracedSteps = left_out(TracedSteps())
    raw: TracedSteps = left_out(TracedSteps())

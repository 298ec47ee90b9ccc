"""The records of a comparison of saved results, as written to JSON version 1."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from bottleneck.results.names import is_cpu
from bottleneck.results.records import Interval, Rate, State, Tool

ChangeFinding = Literal["faster", "slower", "within_noise", "undecided"]


@dataclass(frozen=True)
class Side:
    """One of the results that are compared, in short."""

    label: str
    """What it is called here, such as the name of its file."""
    created: str
    state: State
    bottleneck: str | None
    efficiency: Interval | None
    samples_per_s: float | None
    """Throughput of the job as it is: coupled, nothing cached."""
    sentence: str
    """Its verdict, on one line."""
    device: str | None
    """Of the train step, such as `cuda:0`; None where that is unknown."""

    @property
    def on_cpu(self) -> bool:
        """Whether model and workers share the cores, so that the efficiency says little."""
        return is_cpu(self.device)


@dataclass(frozen=True)
class Change:
    """What became of one experiment, with the train step."""

    name: str
    base: Rate | None
    head: Rate | None
    speedup: Interval | None
    """Throughput of the head over that of the base; None where one of them was not measured often enough."""
    finding: ChangeFinding | None
    """None where one of the two was not measured."""


@dataclass(frozen=True)
class StageChange:
    """What a stage cost before and after; None where it was not there or not measured."""

    name: str
    base_cost_s_per_batch: Interval | None
    head_cost_s_per_batch: Interval | None


@dataclass(frozen=True)
class Difference:
    """Something in which the results are unlike, so that their throughputs are not those of one job on one machine."""

    key: str
    values: tuple[str, ...]
    """In the order of the results."""


@dataclass(frozen=True)
class Comparison:
    """Two results, the later against the earlier."""

    schema_version: int
    kind: Literal["comparison"]
    tool: Tool
    base: Side
    head: Side
    sentence: str
    throughput: Change
    """That of the job as it is."""
    experiments: tuple[Change, ...]
    stages: tuple[StageChange, ...]
    unlike: tuple[Difference, ...]
    warnings: tuple[str, ...]
    rate_unit: str = "samples/s"
    """What the throughputs count: `batches/s` where the size of a batch is not known."""

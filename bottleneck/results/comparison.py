"""Records of a comparison of saved results, as written to JSON version 1."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from bottleneck.results.names import is_cpu
from bottleneck.results.records import Interval, Rate, State, Tool

ChangeFinding = Literal["faster", "slower", "within_noise", "undecided"]


@dataclass(frozen=True)
class Side:
    """Summary of one of the results that are compared."""

    label: str
    """Name in the comparison, such as the name of its file."""
    created: str
    state: State
    bottleneck: str | None
    efficiency: Interval | None
    samples_per_s: float | None
    """Throughput of the original job: coupled, nothing cached."""
    sentence: str
    """Verdict on one line."""
    device: str | None
    """Device of the train step, such as `cuda:0`; None if unknown."""

    @property
    def on_cpu(self) -> bool:
        """True if model and workers share the cores, so that the efficiency means little."""
        return is_cpu(self.device)


@dataclass(frozen=True)
class Change:
    """Change of one experiment, with the train step."""

    name: str
    base: Rate | None
    head: Rate | None
    speedup: Interval | None
    """Throughput of the head over that of the base; None if one of them was not measured often enough."""
    finding: ChangeFinding | None
    """None if one of the two was not measured."""


@dataclass(frozen=True)
class StageChange:
    """Cost of a stage before and after; None if the stage did not exist or was not measured."""

    name: str
    base_cost_s_per_batch: Interval | None
    head_cost_s_per_batch: Interval | None


@dataclass(frozen=True)
class Difference:
    """A difference between the jobs or machines, because of which their throughputs are hard to compare."""

    key: str
    values: tuple[str, ...]
    """Values in the order of the results."""


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
    """Change of the original job."""
    experiments: tuple[Change, ...]
    stages: tuple[StageChange, ...]
    unlike: tuple[Difference, ...]
    warnings: tuple[str, ...]
    rate_unit: str = "samples/s"
    """Unit of the throughputs; `batches/s` if the size of a batch is unknown."""

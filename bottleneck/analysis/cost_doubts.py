"""The costs beside a second witness: the clocks of the workers themselves."""

from __future__ import annotations

from collections.abc import Iterator

from bottleneck.analysis.costs import Costs
from bottleneck.analysis.names import COLLATE, HANDOFF
from bottleneck.analysis.readings import Readings
from bottleneck.results.format import duration
from bottleneck.results.records import Interval, StageSpan, Warning

_TOLERANCE = 0.1


def doubtful_costs(readings: Readings, costs: Costs) -> Iterator[Warning]:
    """Warn of each stage whose cost is not what the clocks around it say, beyond a tenth and both errors."""
    for span in readings.spans:
        costing = costs.costing(span.name)
        cost = costing.interval() if costing is not None and costing.left_out else None
        if cost is None or span.wall_s_per_batch is None:
            continue
        clock = _clock(span, costs)
        away_s = max(cost.low - clock.high, clock.low - cost.high)
        if away_s > _TOLERANCE * span.wall_s_per_batch:
            yield Warning(
                "cost-differs-from-clock",
                f"{span.name} costs {_told(cost)} a batch, and the clocks around it show "
                f"{duration(span.wall_s_per_batch)}: something else gets faster or slower with it, such as a core or "
                "a cache that it shares. The cost is what goes when the stage goes. Close what else runs on this "
                "machine and measure again; where the two stay apart, trust neither to the tenth.",
            )


def _clock(span: StageSpan, costs: Costs) -> Interval:
    """Return what the clocks leave possible: reading them takes as long as serving, at most.

    Those around `collate` have the writing into shared memory in them, which is part of the hand-off's cost.
    """
    assert span.wall_s_per_batch is not None
    wall_s = span.wall_s_per_batch
    price_s = costs.serving.high if costs.serving is not None else 0.0
    written = costs.interval(HANDOFF) if span.name == COLLATE else None
    written_s = max(0.0, written.high) if written is not None else 0.0
    return Interval(wall_s, wall_s - max(0.0, price_s) - written_s, wall_s)


def _told(cost: Interval) -> str:
    return f"{duration(cost.estimate)} ({duration(cost.low)} to {duration(cost.high)})"

"""Where costs are not what they seem: beside the workers' own clocks, and beside all that the loader takes."""

from __future__ import annotations

from collections.abc import Iterator

from bottleneck.analysis.estimates.costs import Costs
from bottleneck.analysis.estimates.series import Readings
from bottleneck.results.format import duration
from bottleneck.results.names import COLLATE, HANDOFF
from bottleneck.results.records import Interval, Warning

_TOLERANCE = 0.1


def doubtful_costs(readings: Readings, costs: Costs) -> Iterator[Warning]:
    """Warn of costs that another measurement contradicts."""
    yield from _unlike_the_clocks(readings, costs)
    yield from _not_additive(costs)


def _not_additive(costs: Costs) -> Iterator[Warning]:
    """Warn where more than a tenth of what the loader takes is no single stage's, or is counted twice."""
    together = costs.together
    all_s, total, rest = together.all_s_per_batch, together.sum_s_per_batch, together.rest_s_per_batch
    if all_s is None or total is None or rest is None:
        return
    tenth_s = _TOLERANCE * all_s
    facts = f"The stages cost {duration(total.estimate)} a batch one by one, and the loader alone takes "
    facts += f"{duration(all_s)}: "
    if rest.low > tenth_s:
        yield Warning(
            "costs-do-not-add-up",
            f"{facts}{_range(rest)} of it is no single stage's, such as the loop of the loader itself. No faster stage "
            "takes that away; larger batches make it a smaller part.",
        )
    elif rest.high < -tenth_s:
        yield Warning(
            "costs-do-not-add-up",
            f"{facts}they share {_range(Interval(-rest.estimate, -rest.high, -rest.low))}, such as a cache or a lock, "
            "that goes with either of two. Do not add up their costs.",
        )


def _unlike_the_clocks(readings: Readings, costs: Costs) -> Iterator[Warning]:
    """Warn of each stage whose cost is not what the clocks around it say, beyond a tenth and both errors."""
    price_s = _price_of_clocks(readings)
    for span in readings.spans:
        costing = costs.costing(span.name)
        cost = costing.interval() if costing is not None and costing.left_out else None
        wall_s = span.wall_s_per_batch
        if costing is None or cost is None or wall_s is None:
            continue
        # Those around `collate` have the writing into shared memory in them, which is part of the hand-off's cost.
        written = costs.interval(HANDOFF) if span.name == COLLATE else None
        written_s = max(0.0, written.high) if written is not None else 0.0
        away_s = max(cost.low - wall_s, wall_s - price_s - written_s - cost.high)
        if away_s > max(_TOLERANCE * wall_s, costing.below_s, costing.above_s):
            yield Warning(
                "cost-differs-from-clock",
                f"{span.name} costs {_range(cost)} a batch, and the clocks around it show "
                f"{duration(wall_s)}: something else gets faster or slower with it, such as a core or "
                "a cache that it shares. The cost is what goes when the stage goes. Close what else runs on this "
                "machine and measure again; where the two stay apart, trust neither to the tenth.",
            )


def _price_of_clocks(readings: Readings) -> float:
    """What reading the clocks takes at most [s per batch]: they show more than the loader takes by that much."""
    if readings.alone is None:
        return 0.0
    clocks_s = sum(span.wall_s_per_batch or 0.0 for span in readings.spans)
    return max(0.0, clocks_s - readings.alone.seconds_per_batch)


def _range(cost: Interval) -> str:
    return f"{duration(cost.estimate)} ({duration(cost.low)} to {duration(cost.high)})"

"""The ladder measured at the end: each rung in turns with all others."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from bottleneck.analysis.estimates.statistics import ratio, series
from bottleneck.results.records import Block
from bottleneck.results.tuning import Losses
from bottleneck.tuning.change import Settings
from bottleneck.tuning.lane import Lane
from bottleneck.tuning.turns import Turns

FEWEST_ROUNDS = 5
_MOST_ROUNDS = 10


@dataclass(frozen=True)
class Step:
    """The job with all settings up to this one."""

    added: Settings
    settings: Settings
    blocks: tuple[Block, ...]
    losses: Losses | None
    peak_device_bytes: int | None
    setup_s: float


def measure_rungs(
    turns: Turns, lanes: Sequence[Lane], deadline_s: float, clock: Callable[[], float]
) -> list[list[Block]]:
    """Blocks of each lane in turns: what each was kept for was its luckiest moment, too."""
    blocks: list[list[Block]] = [[] for _ in lanes]
    for number in range(1, _MOST_ROUNDS + 1):
        for kept, block in zip(blocks, turns.measure(lanes, number, deadline_s - clock()), strict=True):
            kept.append(block)
        if number >= FEWEST_ROUNDS and clock() > deadline_s:
            break
    return blocks


def confirmed_rungs(blocks: Sequence[Sequence[Block]]) -> int:
    """How many rungs to keep: up to the last one that is surely faster than the job as it is, which is the first."""
    measured = [series(each) for each in blocks]
    totals = [ratio(measured[0], each) for each in measured[1:]]
    sure = [at for at, total in enumerate(totals, 1) if total is not None and total.low > 1]
    return 1 + max(sure, default=0)

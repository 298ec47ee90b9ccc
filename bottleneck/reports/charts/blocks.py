"""Every block with the train step, round by round: drift and outliers show. Positions are user units of an SVG."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from bottleneck.reports import sanitize
from bottleneck.results.format import LARGEST, percent
from bottleneck.results.records import Block, Result

WIDTH, LABEL_WIDTH = 720, 190
"""The room for names is for letters of half again the size: on a narrow screen the plot shrinks and they do not."""
MAX_LANES = 40
MAX_DOTS = 4_000
"""Blocks that are drawn; a page of more takes browsers long."""
_LANE = 34
_WIDEST_DEVIATION, _LEAST_DEVIATION = 0.5, 0.02


@dataclass(frozen=True)
class Dot:
    """A single measured block."""

    x: float
    y: float
    outlier: bool
    """It lies further out than its lane reaches."""
    tip: str


@dataclass(frozen=True)
class BlockPlot:
    """A lane for each experiment, and a dot for each of its blocks."""

    title: str
    note: str
    lanes: tuple[tuple[str, float], ...]
    """Names, and where the middle of the lane is."""
    dots: tuple[Dot, ...]
    height: float
    width: float = WIDTH
    left: float = LABEL_WIDTH


def plot_blocks(result: Result) -> BlockPlot | None:
    """The plot; None where no experiment has two blocks."""
    found = [(e.name, e.coupled) for e in result.experiments if e.coupled and len(e.coupled.blocks) > 1][:MAX_LANES]
    if not found:
        return None
    rounds = max(block.round for _, rate in found for block in rate.blocks)
    deviations = [_deviations(rate.blocks)[: MAX_DOTS // len(found)] for _, rate in found]
    largest = max((abs(value) for lane in deviations for _, value in lane), default=0.0)
    span = min(_WIDEST_DEVIATION, max(_LEAST_DEVIATION, largest))
    lanes = [(name, at * _LANE + _LANE / 2) for at, (name, _) in enumerate(found)]
    dots = []
    for (name, middle), lane in zip(lanes, deviations, strict=True):
        for block, deviation in lane:
            x = LABEL_WIDTH + 8 + (WIDTH - LABEL_WIDTH - 24) * (block.round / rounds if rounds else 0.5)
            y = middle - min(span, max(-span, deviation)) / span * (_LANE / 2 - 4)
            tip = f"{name}, round {block.round}: {percent(deviation)} from the mean"
            dots.append(Dot(x, y, abs(deviation) > _WIDEST_DEVIATION, tip))
    return BlockPlot(
        "Blocks, round by round",
        f"Time per sample against the mean of the experiment; each lane reaches ±{percent(span)}. "
        "A slope is drift, a dot by itself an outlier; an orange one lies further out than its lane.",
        tuple((sanitize.shown(name, 18), middle) for name, middle in lanes),
        tuple(dots),
        len(found) * _LANE,
    )


def _deviations(blocks: Sequence[Block]) -> list[tuple[Block, float]]:
    usable = [block for block in blocks if block.samples > 0 and 0 < block.seconds < LARGEST]
    samples, seconds = sum(block.samples for block in usable), sum(block.seconds for block in usable)
    if not usable or not 0 < samples / seconds < LARGEST:
        return []
    return [(block, block.seconds / block.samples * samples / seconds - 1) for block in usable]

"""The plot of the blocks: what is drawn where, for the numbers of a result."""

import math
from dataclasses import replace

import pytest

from bottleneck.reports.evidence import plot_blocks
from tests.support.results_factory import make_empty_result, make_result


def test_every_block_is_a_dot_and_what_took_longer_is_higher():
    result = make_result()
    plot = plot_blocks(result)
    raw = next(e for e in result.experiments if e.name == "raw")
    dots = [dot for dot in plot.dots if dot.tip.startswith("raw, ")]
    assert len(dots) == len(raw.coupled.blocks)
    by_time = sorted(zip((b.seconds for b in raw.coupled.blocks), dots, strict=True), key=lambda pair: pair[0])
    heights = [dot.y for _, dot in by_time]
    assert heights == sorted(heights, reverse=True)


def test_where_nothing_was_measured_nothing_is_drawn():
    assert plot_blocks(make_empty_result()) is None


@pytest.mark.parametrize("seconds", [math.inf, 1e300, -1e300, math.nan, 0.0])
def test_blocks_from_a_file_that_make_no_sense_stay_on_the_paper(seconds):
    result = make_result()

    def odd(rate):
        return replace(rate, blocks=(replace(rate.blocks[0], seconds=seconds), *rate.blocks[1:]))

    experiments = tuple(replace(e, coupled=odd(e.coupled)) if e.coupled else e for e in result.experiments)
    plot = plot_blocks(replace(result, experiments=experiments))
    assert plot.dots
    for dot in plot.dots:
        assert 0 <= dot.x <= plot.width
        assert 0 <= dot.y <= plot.height

"""The loop of a script, split at the step of its optimizer, in each report."""

from dataclasses import replace

import pytest

from bottleneck.reports.render import render
from bottleneck.results.evidence import LoopSeen
from tests.support.in_full import render_in_full
from tests.support.results_factory import make_result

SEEN = LoopSeen(batches=100, until_optimizer_s=0.006, optimizer_s=0.001, after_optimizer_s=0.003)


def with_loop(seen):
    result = make_result()
    return replace(result, evidence=replace(result.evidence, loop=seen))


@pytest.mark.parametrize("form", ["text", "markdown", "html"])
def test_a_slow_logger_shows(form):
    text = render_in_full(with_loop(SEEN), form)
    assert "3.00 ms" in text
    assert "After the optimizer" in text
    quick = render_in_full(with_loop(replace(SEEN, after_optimizer_s=0.0005)), form)
    assert "0.50 ms" in quick
    assert "After the optimizer" not in quick


def test_what_is_not_known_is_not_shown():
    assert "inside the loop" not in render(make_result(), "text").lower()

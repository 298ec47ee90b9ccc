"""What is promised of a piece of advice: no more than what was measured or estimated."""

from dataclasses import replace

import pytest

from bottleneck.reports.advice import expected_gain
from bottleneck.results.records import Interval
from tests.support.results_factory import make_advice


@pytest.mark.parametrize(
    ("gain", "basis", "told"),
    [
        (Interval(2.49, 2.44, 2.54), "measured", "Gain: at most 2.49x (2.44–2.54), a measured upper bound."),
        # Guards: 'at most 0.85x' reads as a promise.
        (Interval(0.85, 0.56, 1.29), "measured", "Gain: not measured precisely enough."),
        (Interval(2.6, 1.0, 2.6), "estimated", "Gain: up to 2.6x, an estimate."),
        (Interval(1.5, 1.2, 1.8), "estimated", "Gain: about 1.50x (1.20–1.80), an estimate."),
        (None, None, ""),
    ],
)
def test_the_gain_says_what_it_rests_on(gain, basis, told):
    assert expected_gain(replace(make_advice()[0], gain=gain, gain_basis=basis)) == told

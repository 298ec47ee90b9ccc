"""The observer effect is looked at on real workers, a plain loader's and a diagnosis'."""

from dataclasses import replace
from functools import partial

import pytest

from benchmarks.observer import measure_observer_effect
from benchmarks.planted import find_planted


@pytest.mark.integration
@pytest.mark.parametrize("name", ["load_wait", "no_workers"])
def test_pairs_of_a_plain_loop_and_of_the_job_under_diagnosis(name, monkeypatch):
    monkeypatch.setattr("benchmarks.observer.BLOCK_S", 0.1)
    effect = measure_observer_effect(
        name, partial(replace(find_planted(name), batch_size=4).build, length=1_000_000), most_pairs=3
    )
    assert len(effect.ratios) == 3
    assert all(0.5 < ratio < 2.0 for ratio in effect.ratios)
    assert effect.ratio.low < effect.ratio.estimate < effect.ratio.high

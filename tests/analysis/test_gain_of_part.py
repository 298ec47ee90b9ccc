"""What a job gains where a part of a stage becomes free, for a loader whose time is known."""

from types import SimpleNamespace

import pytest

from bottleneck.analysis.advice.case import Case
from bottleneck.results.records import Interval


def gain_of_part(part, *, device_s, loader_s, stage_s, cost_known=True):
    """The promise for a part of a stage of `stage_s`, in a loader of `loader_s` a step."""
    step_s = max(device_s, loader_s)
    free = Interval(*[step_s / max(device_s, loader_s - stage_s)] * 3)
    cost = Interval(stage_s, stage_s, stage_s) if cost_known else None
    stage = SimpleNamespace(name="augment", gain_if_free=free, cost_s_per_batch=cost, exposed_s_per_batch=None)
    case = SimpleNamespace(step_s=step_s, device_s=device_s, gain_of=lambda _: free.estimate)
    return Case.gain_of_part(case, stage, part)


@pytest.mark.parametrize("part", [0.1, 0.3, 0.5, 0.9, 1.0])
@pytest.mark.parametrize(("device_s", "loader_s", "stage_s"), [(0.010, 0.020, 0.018), (0.001, 0.020, 0.018)])
def test_it_is_what_the_loader_and_the_step_allow(part, device_s, loader_s, stage_s):
    # Guards: a transform whose removal made a job 1.73 times as fast was said to bring 1.35 at most.
    truth = loader_s / max(device_s, loader_s - part * stage_s)
    assert gain_of_part(part, device_s=device_s, loader_s=loader_s, stage_s=stage_s) == pytest.approx(truth)


def test_without_its_cost_it_goes_with_the_gain_of_the_whole_stage():
    half = gain_of_part(0.5, device_s=0.010, loader_s=0.020, stage_s=0.018, cost_known=False)
    assert half == pytest.approx(1 / (1 - 0.5 * 0.5))


def test_a_stage_that_holds_nothing_up_promises_nothing():
    assert gain_of_part(0.5, device_s=0.020, loader_s=0.010, stage_s=0.009) == 1.0

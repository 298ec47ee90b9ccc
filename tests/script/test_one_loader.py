"""Of a loop over several loaders no efficiency is told where it waits for those that are not varied."""

from dataclasses import replace

import pytest

from bottleneck.reports.render import FORMATS, render
from bottleneck.results.evidence import LoopSeen
from bottleneck.script.loop_time import of_new_workers, of_one_loader
from tests.support.results_factory import make_device_bound_result, make_result

SEEN = LoopSeen(
    batches=10, until_optimizer_s=0.02, optimizer_s=0.001, after_optimizer_s=0.001, other_loaders_s=0.012
)  # fmt: skip


@pytest.mark.parametrize(
    ("result", "state"), [(make_result(), "input_bound"), (make_device_bound_result(), "undecided")]
)
def test_waits_for_other_loaders_are_no_time_of_the_device(result, state):
    found = of_one_loader(result.verdict, SEEN)
    assert (found.state, found.efficiency, found.headroom) == (state, None, None)
    assert found.bottleneck == (result.verdict.bottleneck if state == "input_bound" else None)
    assert "a step takes 22.0 ms, of which 12.0 ms are waits for others" in found.sentence
    assert all("waits for several loaders" in render(replace(result, verdict=found), form) for form in FORMATS)


def test_a_loader_that_keeps_up_takes_nothing_away():
    verdict = make_result().verdict
    assert of_one_loader(verdict, replace(SEEN, other_loaders_s=0.001)) is verdict
    assert of_one_loader(verdict, LoopSeen()) is verdict


def test_workers_that_start_for_each_batch_are_not_in_an_efficiency():
    # Guards: next(iter(loader)) in the loop, whose workers start for each batch by itself, and once while it is fed.
    held, free = of_new_workers(make_result().verdict), of_new_workers(make_device_bound_result().verdict)
    assert (held.state, held.bottleneck, held.efficiency) == ("input_bound", make_result().verdict.bottleneck, None)
    assert (free.state, free.bottleneck, free.efficiency) == ("undecided", None, None)
    assert "batches = iter(loader)" in free.sentence

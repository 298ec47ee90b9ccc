"""Some steps of the job beside what its workers do meanwhile, on one clock."""

from bottleneck.loader.observe.batch_made import BatchMade
from bottleneck.measure.passes.watch_steps import describe_watched
from bottleneck.results.evidence import Watched


def test_steps_and_batches_have_one_zero():
    steps = [(50.0, 53.0, 54.0), (54.5, 55.0, 57.0)]
    made = {
        1: [BatchMade(46.0, 49.0, {"load": 3.0}), BatchMade(49.0, 52.5, {"load": 2.5, "collate": 1.0})],
        0: [BatchMade(52.0, 56.0, {"load": 4.0}), BatchMade(56.0, 58.0, {"load": 2.0})],
    }
    watched = describe_watched(steps, made)
    assert [(step.begin_s, step.wait_s, step.work_s) for step in watched.steps] == [(0.0, 3.0, 1.0), (4.5, 0.5, 2.0)]
    # What was over before, and what the steps did not live to see, is left out.
    assert [(each.worker, each.begin_s, each.end_s) for each in watched.batches] == [(0, 2.0, 6.0), (1, -1.0, 2.5)]
    assert watched.batches[1].stages_s == {"load": 2.5, "collate": 1.0}


def test_without_steps_or_clocks_nothing_was_watched():
    assert describe_watched([], {0: [BatchMade(1.0, 2.0, {"load": 1.0})]}) == Watched()
    assert describe_watched([(0.0, 1.0, 2.0)], {}) == Watched()

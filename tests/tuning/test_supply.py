"""Changes that a model of workers and queue rules out, listed with the reason; and the duration of a tuning."""

import math
import re
import sys
from dataclasses import replace

import pytest
import torch
from torch import nn
from torch.utils.data import TensorDataset

from bottleneck.results.records import Advice
from bottleneck.tuner.change import Change
from bottleneck.tuner.changes import BUILT_IN, loader
from bottleneck.tuner.supply import Supply
from tests.tuning.jobs import BY_NAME, CUDA, NEEDS_IN_ORDER, here, table_job
from tests.tuning.world import OneAtATime, SlowBatches, World, diagnosed, job, tuning_of

EVEN, UNEVEN = 0.05, 0.6
LOADER = tuple(change.name for change in loader.CHANGES)


@pytest.fixture(autouse=True)
def eight_cores(monkeypatch):
    monkeypatch.setattr("bottleneck.tuner.lanes.usable_cores", lambda: 8.0)
    monkeypatch.delitem(sys.modules, "cv2", raising=False)  # which has threads to try as well


def tuned_job(world, workers, before, names=LOADER, in_script=True):
    """Return the record of tuning a job with long epochs."""
    dataset = TensorDataset(torch.zeros(10**6, 3), torch.zeros(10**6, dtype=torch.long))
    session = tuning_of(world, names, 300.0, before, job(num_workers=workers, dataset=dataset), in_script=in_script)
    session.run()
    return session.found


def tried(found):
    return {trial.setting for trial in found.trials if trial.pairs}


def reasons(found):
    return {trial.setting: trial.reason for trial in found.trials if trial.outcome == "not_applicable"}


# --- a loader that keeps up ----------------------------------------------------------------------------------


@pytest.mark.parametrize("in_script", [True, False])
def test_where_the_loader_keeps_up_nothing_is_tried_that_only_makes_batches_come_sooner(in_script):
    before = diagnosed(8, state="undecided", cv=EVEN, seconds_each=0.3)
    found = tuned_job(SlowBatches(0.3, 0.138), 8, before, in_script=in_script)
    assert tried(found) == set()
    assert "waits for its batches in 0.0 % of its time" in reasons(found)["num_workers"]


def test_where_workers_slow_the_step_fewer_are_tried_although_the_loader_keeps_up():
    found = tuned_job(SlowBatches(0.3, 0.138), 8, diagnosed(8, state="input_bound"), ["num_workers"])
    assert "num_workers=4" in tried(found)


# --- a loader that does not ----------------------------------------------------------------------------------


@NEEDS_IN_ORDER
@pytest.mark.parametrize("cv", [EVEN, UNEVEN, None])
def test_a_longer_queue_is_tried_only_where_batches_are_uneven(cv):
    found = tuned_job(OneAtATime(0.4, 0.01), 4, diagnosed(4, cv=cv), ["prefetch_factor", "in_order"])
    assert tried(found) == (set() if cv == EVEN else {"prefetch_factor=4", "in_order"})
    if cv == EVEN:
        assert "a queue of any length is empty" in reasons(found)["prefetch_factor"]


@pytest.mark.parametrize(
    ("cores", "fewer"),
    [
        ((0.2, 0.3), False),
        ((1.0, 6.5), True),  # workers and step take the cores from each other
        ((None, None), True),
    ],
)
def test_fewer_workers_are_tried_only_where_they_may_stand_in_each_others_way(cores, fewer):
    found = tuned_job(OneAtATime(0.4, 0.01), 4, diagnosed(4, cores=cores, seconds_each=0.4), ["num_workers"])
    assert ("num_workers=2" in tried(found)) == fewer
    assert ("num_workers=2" in reasons(found)) != fewer


def test_without_workers_is_tried_where_a_batch_may_be_made_in_less_than_it_is_waited_for():
    # A batch is there every 100 ms, of which the step takes 10.
    costly, cheap = (
        tuned_job(OneAtATime(0.4, 0.01), 4, diagnosed(4, seconds_each=made_s), ["num_workers"])
        for made_s in (0.4, 0.01)
    )
    assert "num_workers=0" in tried(cheap)
    assert "num_workers=0" not in tried(costly)
    assert "without workers a batch takes at least 210 ms, and now 100 ms" in reasons(costly)["num_workers=0"]


def test_between_two_numbers_of_workers_that_are_alike_none_is_tried():
    found = tuned_job(OneAtATime(0.4, 0.01), 4, diagnosed(4), ["num_workers"])
    assert tried(found) == {"num_workers=8"}
    assert reasons(found)["num_workers=6"] == "8 workers make no difference compared with 4"


def test_as_many_workers_as_the_step_needs_are_tried_at_once_where_cores_are_idle():
    found = tuned_job(SlowBatches(0.3, 0.05), 1, diagnosed(1))
    assert tried(found) == {"num_workers=6"}
    found = tuned_job(SlowBatches(0.3, 0.05), 1, diagnosed(1, cores=(1.0, 1.0)), ["num_workers"])
    assert "num_workers=4" in tried(found)  # the step computes on the cores, too


def test_of_an_accelerator_the_step_takes_no_cores():
    next_value = BY_NAME["num_workers"].next_value
    given = table_job(num_workers=2)
    assert next_value(here(given, CUDA, workers_needed=7), {}) == 7
    assert next_value(here(given, workers_needed=7), {}) == 4
    assert next_value(here(given, CUDA, workers_needed=70), {}) == 8


# --- the step ------------------------------------------------------------------------------------------------


def same(pipeline):
    return pipeline.replace(model=nn.Sequential(pipeline.model))


def slower(pipeline):
    changed = same(pipeline)
    changed.model.slow = True
    return changed


SAME = Change("same", same, on="step", step_only=True)


@pytest.mark.parametrize(
    ("cores", "names"),
    [((0.2, 0.3), set()), ((1.0, 6.5), {"same"})],
)
def test_a_quicker_step_is_not_tried_while_the_job_waits_for_its_batches(cores, names):
    found = tuned_job(OneAtATime(0.4, 0.01), 4, diagnosed(4, cores=cores), [SAME], in_script=False)
    assert {trial.setting for trial in found.trials if trial.outcome != "not_applicable"} == names
    assert Supply(waiting_share=0.9).why_not_step(on_cpu=False) is not None
    assert Supply(waiting_share=0.1).why_not_step(on_cpu=False) is None


def test_steps_by_themselves_settle_what_changes_nothing_about_them():
    world = SlowBatches(0.3, 0.138, noise=0.005)
    found = tuned_job(world, 8, diagnosed(8, state="undecided"), [SAME], in_script=False)
    (trial,) = found.trials
    assert (trial.outcome, trial.pairs) == ("dropped", ())
    assert re.fullmatch(r"the step alone takes 13\d ms, and 13\d ms without it", trial.reason)


def test_a_step_that_is_quicker_by_itself_is_measured_in_the_job():
    halved = Change("halved", _quick, on="step", step_only=True)
    found = tuned_job(SlowBatches(0.3, 0.138), 8, diagnosed(8, state="undecided"), [halved], in_script=False)
    assert tried(found) == {"halved"}
    assert [rung.settings for rung in found.ladder] == [(), ("halved",)]


def _quick(pipeline):
    changed = same(pipeline)
    changed.model.quick = True
    return changed


def test_a_change_to_more_than_the_step_is_never_judged_by_that_alone():
    found = tuned_job(World(0.0001, 0.001), 8, diagnosed(8, state="undecided"), [replace(SAME, step_only=False)])
    assert found.trials[0].outcome == "not_applicable"  # in a script
    found = tuned_job(
        World(0.0001, 0.001), 8, diagnosed(8, state="undecided"), [replace(SAME, step_only=False)], in_script=False
    )
    assert tried(found) == {"same"}


def test_changes_to_the_step_alone_are_marked_as_such():
    assert {change.name for change in BUILT_IN if change.on == "step" and not change.step_only} == {
        "batch_size",  # loads other batches
        "threads",  # takes cores from the workers
    }
    assert not [change.name for change in BUILT_IN if change.step_only and change.on != "step"]


# --- how long it takes ---------------------------------------------------------------------------------------

CLEAR = [(0.04, 0.01, 1), (0.3, 0.05, 1), (1.25, 0.138, 3), (2.0, 0.5, 1), (1.0, 0.5, 1)]


@pytest.mark.parametrize(("worker_s", "step_s", "workers"), CLEAR)
@pytest.mark.parametrize("in_script", [True, False])
def test_a_clear_job_is_tuned_within_ninety_seconds(worker_s, step_s, workers, in_script, monkeypatch):
    monkeypatch.setattr("bottleneck.tuner.lanes.usable_cores", lambda: 16.0)
    before = diagnosed(workers, cv=EVEN, seconds_each=worker_s)
    found = tuned_job(SlowBatches(worker_s, step_s), workers, before, in_script=in_script)
    assert found.seconds <= 90.0
    needed = math.ceil(worker_s / step_s)
    assert found.ladder[-1].settings == (f"num_workers={needed:.0f}",)
    gain = worker_s / workers / step_s
    assert found.ladder[-1].total.low <= gain <= found.ladder[-1].total.high


@pytest.mark.parametrize(
    ("world", "state"),
    [
        (SlowBatches(0.3, 0.138), "undecided"),
        (SlowBatches(2.0, 0.5), "undecided"),
        (OneAtATime(0.03, 0.001), "input_bound"),
        (OneAtATime(0.8, 0.1), "input_bound"),
    ],
)
def test_that_nothing_helps_is_known_within_a_minute(world, state):
    workers = 8 if state == "undecided" else 4
    found = tuned_job(world, workers, diagnosed(workers, state=state, cv=EVEN, seconds_each=world.worker_s))
    assert len(found.ladder) == 1
    assert found.seconds <= 60.0


def test_steps_that_nothing_makes_quicker_take_no_block_each():
    names = [*LOADER, *(replace(SAME, name=f"same-{number}") for number in range(8))]
    before = diagnosed(8, state="undecided", cv=EVEN)
    found = tuned_job(SlowBatches(0.3, 0.138, noise=0.01), 8, before, names, in_script=False)
    assert len(found.ladder) == 1
    assert found.seconds <= 60.0


# --- the order -----------------------------------------------------------------------------------------------


def test_what_the_diagnosis_advises_is_tried_before_what_is_tried_in_any_job():
    # With a budget of 90 s, numbers of workers that gain nothing left no time for the advised change.
    before = diagnosed(4)
    advised = Advice("cache-dataset", "load", title="", why="", how="", evidence={})
    kept = Change("kept", same, advice=("cache-dataset",))
    found = tuned_job(OneAtATime(0.4, 0.01), 4, replace(before, advice=(advised,)), [*LOADER, kept])
    assert found.trials[0].setting == "kept"
    found = tuned_job(OneAtATime(0.4, 0.01), 4, before, [*LOADER, kept])
    assert found.trials[0].setting != "kept"

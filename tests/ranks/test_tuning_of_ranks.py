"""One tuning of several ranks, in invented time: all decide the same, and what one of them cannot is dropped on all."""

from contextlib import nullcontext
from dataclasses import replace
from types import SimpleNamespace

import pytest

from bottleneck.errors import MeasurementError
from bottleneck.measure.machine.environment import read_process_times
from bottleneck.results.json import to_json
from bottleneck.tuner.ranks import Ranks
from tests.ranks.test_group import on_all_ranks
from tests.support.results_factory import make_result
from tests.tuning.jobs import BY_NAME
from tests.tuning.world import QUICKER, World, job, tuned


@pytest.fixture(autouse=True)
def three_ranks_of_one_process(monkeypatch):
    """With eight cores each. Threads share the filters of warnings, which one would restore for the others."""
    monkeypatch.setattr(
        "bottleneck.tuner.session.warnings",
        SimpleNamespace(catch_warnings=nullcontext, filterwarnings=lambda *_, **__: None),
    )
    monkeypatch.setattr("bottleneck.tuner.lanes.usable_cores", lambda: 24.0)


def tuned_on_ranks(changes, prepare=lambda world, rank: None, **fields):
    """The record of each of three ranks, or what it raised; the last one loads three times as slowly as the first."""

    def tune(group):
        world = World(load_s=0.004 * (1 + group.rank))
        world.random.seed(group.rank)
        world.ranks = Ranks(group, world.clock)
        prepare(world, group.rank)
        given = job(**{name: value(group.rank) for name, value in fields.items()})
        return tuned(world, [change(group.rank) if callable(change) else change for change in changes], pipeline=given)

    return [each if isinstance(each, BaseException) else each[0] for each in on_all_ranks(tune)]


def rows(record):
    return [(trial.setting, trial.outcome, trial.gain) for trial in record.trials]


def test_all_ranks_decide_the_same_by_the_slowest_of_them():
    records = tuned_on_ranks(["num_workers", "prefetch_factor"])
    first = records[0]
    assert [rows(each) for each in records] == [rows(first)] * 3
    assert [each.ladder for each in records] == [first.ladder] * 3
    assert first.ladder[0].rate.samples_per_s == pytest.approx(1 / 0.012, rel=0.05)
    assert first.ladder[-1].settings == ("num_workers=8",)


def refuses(world, rank):
    world.refused = (lambda pipeline: pipeline.loader_args["num_workers"] == 4) if rank == 1 else None


def raising(_):
    raise KeyError("where")


@pytest.mark.parametrize(
    ("changes", "prepare", "fields", "outcome", "said"),
    [
        (["num_workers"], refuses, {}, "failed", "On rank 1: The train step raised: CUDA out of memory"),
        (
            [lambda rank: replace(BY_NAME["num_workers"], why_not=lambda _: "it is a stream" if rank == 2 else None)],
            None, {}, "not_applicable", "on rank 2, it is a stream",
        ),
        (
            [lambda rank: replace(QUICKER, in_script=True, apply=QUICKER.apply if rank else raising)],
            None, {}, "failed", "KeyError: 'where'",
        ),
        (
            ["num_workers"], None, {"num_workers": lambda rank: 3 - rank % 2}, "not_applicable",
            "ranks would not try the same: num_workers=6 on rank 0, num_workers=4 on rank 1",
        ),
        ([lambda _: QUICKER], None, {}, "not_applicable", "keeps its train step"),
    ],
    ids=["one lacks memory", "one has a reason", "one cannot make it", "they differ", "the step"],
)  # fmt: skip
def test_what_one_rank_cannot_is_tried_on_none(changes, prepare, fields, outcome, said):
    records = tuned_on_ranks(changes, prepare or (lambda *_: None), **fields)
    assert [rows(each) for each in records] == [rows(records[0])] * 3
    assert records[0].trials[0].outcome == outcome
    assert said in records[0].trials[0].reason


def test_a_block_that_fails_on_one_rank_ends_the_tuning_on_all():
    def prepare(world, rank):
        world.failing = {("changed", 2)} if rank == 1 else ()

    first, failed, last = tuned_on_ranks(["num_workers"], prepare)
    assert str(failed) == "The dataset raised at index 777."
    for heard in (first, last):
        assert isinstance(heard, MeasurementError)
        assert str(heard).startswith("Rank 1 on ")


def test_the_diagnosis_of_all_ranks_is_that_of_the_first():
    results = on_all_ranks(lambda group: Ranks(group).diagnosis(make_result(environment={"rank": group.rank})))
    assert {to_json(each) for each in results} == {to_json(results[0])}
    assert results[2].environment == {"rank": 0}


def test_what_other_ranks_use_is_no_load_of_others():
    def times(group):
        group.announce()
        group.join()
        return Ranks(group).process_times()

    alone = read_process_times()
    assert on_all_ranks(times)[0].own >= 3 * alone.own  # here all three are one process

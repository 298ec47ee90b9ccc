"""The number of workers of a job in seconds, in invented time: the number found, its proof, and the report."""

import re
from contextlib import nullcontext

import pytest
from torch.utils.data import IterableDataset

from bottleneck.cli.main import run
from bottleneck.errors import MeasurementError, UsageError
from bottleneck.reports.render import render
from bottleneck.tuner.changes import choose
from bottleneck.tuner.quick import WorkerTuning
from bottleneck.tuner.record import conclude
from tests.tuning.test_search import Planted
from tests.tuning.world import World, job


@pytest.fixture(autouse=True)
def eight_cores(monkeypatch):
    monkeypatch.setattr("bottleneck.tuner.lanes.usable_cores", lambda: 8.0)


def tuned(world, loader, seconds=15.0, pipeline=None):
    """The record of a quick tuning of a job of that world, whose loader alone is planted."""
    loader.clock = world.clock

    def visiting(_loader, until_s, _clock):
        return lambda count: loader.visit(count, until_s)

    given = pipeline or job()
    kept, told = [], []
    session = WorkerTuning(
        given, choose(["num_workers"])[0], seconds, tell=told.append, opener=world.opener, visiting=visiting,
        clock=world.clock, left_as_found=lambda: nullcontext(kept.append("as found")),
    )  # fmt: skip
    try:
        session.run()
    finally:
        assert world.open == []
    record = conclude(session.found, session.best, {}, {})
    assert kept == ["as found"]
    assert {update.phase for update in told} <= {"measuring the job", "running the loader alone"}
    return record


def outcomes(record):
    return {trial.setting: trial.outcome for trial in record.trials}


def waiting(**fields):
    """A job whose worker takes 40 ms for a batch, and its step 10; a block of ten batches takes 0.1 s or more."""
    world = World(load_s=0.004, step_s=0.001, start_s=0.3)
    lane = world.lane

    class Short(lane):
        def __init__(self, *arguments):
            super().__init__(*arguments)
            self.samples = 100

    world.lane = Short
    return world, Planted(**{"wait_s": 0.040, **fields})


def test_as_many_workers_as_the_step_needs_are_found_and_proven_in_seconds():
    record = tuned(*waiting())
    assert [rung.settings for rung in record.ladder] == [(), ("num_workers=5",)]
    assert record.ladder[1].gain.low <= 4.0 <= record.ladder[1].gain.high
    assert outcomes(record)["num_workers=5"] == "kept"
    assert record.lines == ("DataLoader(..., num_workers=5)",)
    assert record.seconds <= 15.0
    assert (record.before, record.after) == (None, None)
    said = render(record, "text")
    assert "num_workers=5" in said
    assert re.search(r"Tuned in \d+(\.\d)? s", said)


def test_a_job_that_hardly_waits_for_its_batches_keeps_its_workers():
    world, loader = waiting()
    record = tuned(world, loader, pipeline=job(num_workers=8))
    assert [rung.settings for rung in record.ladder] == [()]
    assert (record.trials, loader.visited) == ((), [])
    assert record.seconds < 3.0


def test_what_the_job_itself_does_not_confirm_is_not_kept():
    # The loader alone would be twice as fast; in the job, the step computes on the same cores.
    world, loader = waiting()
    world.pace_s = lambda pipeline: 0.004
    record = tuned(world, loader)
    assert [rung.settings for rung in record.ladder] == [()]
    assert set(outcomes(record).values()) == {"undecided"}
    assert record.gain is None


def test_numbers_that_were_visited_on_the_way_are_listed_with_their_throughput():
    record = tuned(*waiting(lock_s=0.020))
    listed = {trial.setting: trial.reason for trial in record.trials if trial.outcome == "dropped"}
    assert listed
    assert all("by the loader alone, the job would have" in reason for reason in listed.values())


def test_a_number_that_does_not_run_is_a_row():
    world, loader = waiting()
    visit = loader.visit

    def refusing(count, until_s):
        if count > 4:
            raise MeasurementError("Shared memory ran out.")
        return visit(count, until_s)

    loader.visit = refusing
    record = tuned(world, loader)
    assert outcomes(record)["num_workers=5"] == "failed"
    world, loader = waiting()
    loader.visit = lambda count, until_s: 1 / 0
    with pytest.raises(ZeroDivisionError):
        tuned(world, loader)


def test_batches_that_take_too_long_are_told():
    world, loader = waiting(wait_s=8.0)
    record = tuned(world, loader)
    assert [rung.settings for rung in record.ladder] == [()]
    assert [warning.id for warning in record.warnings] == ["no-time"]


class Numbers(IterableDataset):
    def __iter__(self):
        return iter(range(10))


def test_a_stream_has_no_number_of_workers_to_be_found():
    with pytest.raises(UsageError, match="is a stream"):
        tuned(*waiting(), pipeline=job(dataset=Numbers()))


# --- the command ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ([], "--seconds is for the number of workers only"),
        (["--try", "num_workers", "--try", "in_order"], "--seconds is for the number of workers only"),
        (["--try", "num_workers", "--patch", "p.diff"], "--patch needs the whole tuning"),
    ],
)
def test_what_does_not_go_with_seconds_is_one_sentence(options, said, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "job.py").write_text("")
    assert run(["tune", "--seconds", "15", *options, "job.py:build"]) == 2
    assert said in capsys.readouterr().err

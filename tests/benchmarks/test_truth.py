"""The clocks around planted stages, and planted work: each takes what it says."""

import time
from collections import Counter, defaultdict
from dataclasses import replace

import pytest
from torch.utils.data import IterableDataset

from benchmarks import truth, work
from benchmarks.planted import PLANTED, Planted, PlantedStage, find_planted
from benchmarks.taken_out import CannotBeTakenOut, without
from benchmarks.truth import (
    COLLATION,
    SAMPLE,
    WRITING,
    clocked_fields,
    measure_truth,
    stage_seconds,
)
from benchmarks.verdicts import CostFound, Trial, costs_table
from benchmarks.work import Work, spin, wait
from bottleneck.results.records import Interval

# --- clocks -------------------------------------------------------------------------------------------------


IN_THE_MAIN_PROCESS = {"compute", "copy", "handoff"}


@pytest.mark.parametrize("planted", PLANTED, ids=lambda planted: planted.name)
def test_every_planted_stage_has_a_clock(planted: Planted):
    # Without work in it, so that nothing has to be waited for.
    idle = replace(planted, step_s=0.0, stages=tuple(replace(s, cost_s_per_batch=0.0) for s in planted.stages))
    fields = clocked_fields(idle)
    truth.clocks_s.clear()
    dataset = fields["dataset"]
    source = iter(dataset) if isinstance(dataset, IterableDataset) else (dataset[i] for i in range(100))
    _, clocks = fields["collate_fn"]([next(source) for _ in range(planted.batch_size)])
    found = stage_seconds(idle, clocks)
    assert set(found) == set(planted.costs_s_per_batch) - IN_THE_MAIN_PROCESS
    # What is left of an idle collation without the writing, which is timed after it, may be less than nothing.
    assert all(seconds > 0 for stage, seconds in found.items() if stage != "collate")
    assert all(seconds > 0 for seconds in clocks.values())


@pytest.mark.parametrize("name", ["load_spin", "stream"])
def test_the_clocks_go_on_from_batch_to_batch_once_warm(name):
    planted = find_planted(name)
    idle = replace(planted, stages=tuple(replace(s, cost_s_per_batch=0.0) for s in planted.stages))
    truth.clocks_s.clear()
    (seen,) = truth.Stages(clocked_fields(idle), seconds=0.0)
    assert len(seen) == 2
    assert 0 < seen[0][COLLATION] < seen[1][COLLATION]
    assert seen[0][SAMPLE] > 0


def test_a_stage_without_a_clock_is_the_rest():
    found = stage_seconds(find_planted("finish"), {"augment": 0.003, SAMPLE: 0.020})
    assert found["load"] == pytest.approx(0.017)


def test_collation_is_all_but_the_write_into_shared_memory():
    clocks = {COLLATION: 0.0040, WRITING: 0.0003, SAMPLE: 0.02, "load": 0.01, "augment": 0.01}
    assert stage_seconds(find_planted("last_straw"), clocks)["collate"] == pytest.approx(0.0037)
    assert stage_seconds(find_planted("marked_pad"), {**clocks, "pad": 0.0030})["collate"] == pytest.approx(0.0007)


def test_estimates_are_judged_by_what_was_real():
    planted = find_planted("load_spin")
    costs = (CostFound("load", 0.015, Interval(0.018, 0.017, 0.019)), CostFound("odd", 0.001, None))
    trial = Trial(planted, 30.0, "input_bound", "load", None, None, costs)
    assert not trial.costs[0].within_tolerance
    judged = trial.judged_by({"load": 0.016}, {"load": 0.018})
    assert judged.costs[0].real_s == pytest.approx(0.017)
    assert judged.costs[0].within_tolerance
    assert judged.costs[1].real_s is None
    assert "17 ms" in costs_table([judged])


@pytest.mark.parametrize("planted", PLANTED, ids=lambda planted: planted.name)
def test_most_stages_can_be_taken_out_and_nothing_else_goes_with_them(planted, monkeypatch):
    done = []
    monkeypatch.setattr(Work, "complete", lambda self, mark, times=1.0: done.append(self))
    truth.batch_maker(planted.build())()
    whole = Counter(done)
    for stage in set(planted.costs_s_per_batch) - IN_THE_MAIN_PROCESS:
        try:
            make = truth.batch_maker(without(planted.build(), stage))
        except CannotBeTakenOut:
            assert stage in ("load", "other", "collate", "Crop", "Blur", "Jitter")
            continue
        make()
        done.clear()
        make()
        gone = {work for work in whole - Counter(done) if work.seconds}
        own = {planted.work(stage)} if planted.layout != "composed" else gone
        assert {work.seconds for work in gone} == {work.seconds for work in own} or planted.layout == "marked"


def test_what_a_batch_takes_is_timed_in_turns(monkeypatch):
    now = [0.0]
    monkeypatch.setattr(truth.time, "perf_counter", lambda: now[0])

    def way(seconds):
        def collate(samples):
            now[0] += seconds

        return {"dataset": range(10), "batch_size": 2, "collate_fn": collate}

    (turns,) = truth.InTurns((way(0.03), way(0.02)), seconds=1.0)
    assert len(turns) >= truth.FEWEST_TURNS
    assert all(turn == (pytest.approx(0.03), pytest.approx(0.02)) for turn in turns)


@pytest.mark.integration
def test_waiting_of_real_workers_is_found_again():
    stages = (PlantedStage("load", 0.008, "wait"), PlantedStage("augment", 0.016, "wait"))
    planted = Planted("twice", "", "augment", stages, num_workers=2, batch_size=4, step_s=0.001)
    started = time.perf_counter()
    found = measure_truth(planted, 1.0)
    assert time.perf_counter() - started > 2.0
    assert set(found) == {"load", "augment", "compute"}
    assert 0.9 * 0.008 <= found["load"] < found["augment"]
    assert found["augment"] / found["load"] == pytest.approx(2.0, rel=0.5)


# --- work ---------------------------------------------------------------------------------------------------


class Clocks:
    """The clock of one process: sleeping moves it, later than asked by a fixed lateness, and so does each reading."""

    def __init__(self, lateness_s: float = 0.0, tick_s: float = 0.0) -> None:
        self.wall_s = 100.0
        self.lateness_s, self.tick_s = lateness_s, tick_s
        self.slept: list[float] = []

    def perf_counter(self) -> float:
        self.wall_s += self.tick_s
        return self.wall_s

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.wall_s += seconds + self.lateness_s


@pytest.fixture
def clocks(monkeypatch):
    def install(**arguments):
        clocks = Clocks(**arguments)
        monkeypatch.setattr(work, "time", clocks)
        monkeypatch.setattr(work, "_debts_s", defaultdict(float))
        return clocks

    return install


def test_wait_counts_what_was_done_since_the_mark(clocks):
    now = clocks()
    planted = wait(0.010)
    mark = planted.begin()
    now.wall_s += 0.004
    planted.complete(mark)
    assert now.slept == [pytest.approx(0.006)]


def test_late_sleeps_do_not_add_up(clocks):
    now = clocks(lateness_s=0.0002)
    start, planted = now.wall_s, wait(0.001)
    for _ in range(100):
        planted.run()
    # Without the correction this would be 120 ms.
    assert now.wall_s - start == pytest.approx(0.100, abs=0.0003)


def test_a_long_stop_is_not_made_up_for(clocks):
    now = clocks(lateness_s=0.5)
    planted = wait(0.002)
    planted.run()
    now.lateness_s = 0.0
    start = now.wall_s
    for _ in range(10):
        planted.run()
    assert now.wall_s - start >= 10 * 0.002 - work.MAX_DEBT_S - 1e-9


def test_a_stage_does_not_pay_for_the_one_before(clocks):
    now = clocks(lateness_s=0.0005)
    late, punctual = wait(0.002), wait(0.002)
    late.run()
    now.lateness_s = 0.0
    start = now.wall_s
    punctual.run()
    assert now.wall_s - start == pytest.approx(0.002)


def test_rounds_of_spinning_do_not_add_up(clocks):
    now = clocks(tick_s=0.0003)
    start_s, planted = now.wall_s, spin(0.001)
    for _ in range(100):
        planted.run()
    # Each begins with a reading of the clock, before its mark. Without the correction each would end late as well.
    assert now.wall_s - start_s == pytest.approx(0.100 + 100 * 0.0003, abs=0.0007)


@pytest.mark.parametrize("kind", [wait, spin])
def test_no_work_takes_no_time(clocks, kind):
    now = clocks()  # a clock that never moves: spinning would never end
    kind(0.0).run()
    assert now.slept == []

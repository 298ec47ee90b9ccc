"""Judgements of the bench, and the results that it keeps; every number is invented."""

import pytest
from click.testing import CliRunner

from benchmarks import bench, kept, monitored
from benchmarks.causes import Found, check_causes
from benchmarks.checks import Check
from benchmarks.counts import JOBS, Counted, check_counts
from benchmarks.kept import Part, read, to_markdown, write
from benchmarks.planned import Prediction, check_predictions
from benchmarks.planted import find_planted
from benchmarks.script_jobs import STYLES, Answer, Plain, Run
from benchmarks.slow_starts import SLOW_STARTS, Started, check_starts
from benchmarks.verdicts import CostFound, Trial, check_trials
from bottleneck.results.records import Advice, Interval
from bottleneck.tuner.workers import Workers

# --- diagnoses ----------------------------------------------------------------------------------------------


LAST_STRAW = find_planted("last_straw")


def trial(**changes) -> Trial:
    fields = {
        "planted": LAST_STRAW,
        "seconds": 30.0,
        "state": "input_bound",
        "bottleneck": "augment",
        "efficiency": Interval(0.73, 0.72, 0.74),
        "coupled_raw_s": 0.022,
        "costs": (CostFound("augment", 0.014, Interval(0.0145, 0.0140, 0.0150)),),
    }
    return Trial(**{**fields, **changes})


# --- verdicts and costs -----------------------------------------------------------------------------------


def test_a_verdict_is_right_when_state_and_bottleneck_are():
    assert trial().right
    assert not trial(bottleneck="load").right
    assert not trial(state="undecided").right


@pytest.mark.parametrize(
    ("estimate", "within"),
    [
        (Interval(0.0153, 0, 1), True),
        (Interval(0.0127, 0, 1), True),
        (Interval(0.0156, 0, 1), False),
        (Interval(0.0124, 0, 1), False),
        (None, False),
    ],
)
def test_a_cost_is_within_ten_percent_or_not_whatever_its_interval_allows_for(estimate, within):
    assert CostFound("augment", 0.014, estimate).within_tolerance is within


def test_coverage_counts_the_intervals_that_contain_the_truth():
    def cost(low, real_s=0.015, high=0.016):
        return CostFound("augment", 0.014, Interval(0.0155, low, high), real_s)

    held, above, below, no_clock = cost(0.0149), cost(0.0152), cost(0.013, high=0.0148), cost(0.0149, real_s=None)
    watched = CostFound("Blur", 0.014, Interval(0.014, 0.014, 0.014), 0.015)  # without an interval
    assert [one.covered for one in (held, above, below, no_clock, watched)] == [True, False, False, None, None]
    check = check_trials([trial(costs=(held,) * 8 + (above, no_clock, watched))])[2]
    assert not check.held
    assert check.measured == "8 of 9 (89%); mean signed error +0.50 ms, +3.3 %"
    assert check.off == ("last_straw/augment: 0.2 ms above the truth, 15 ms",)
    assert check_trials([trial(costs=(held,) * 9 + (above,))])[2].held


# --- slow starts ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("reported_s", "saved_s", "right", "held"),
    [(3.1, 5.0, True, True), (3.4, 3.1, False, True), (2.9, 2.9, True, False), (3.0, 7.6, True, False)],
)
def test_a_slow_start_is_right_to_a_tenth_and_its_change_saves_most_of_the_promise(reported_s, saved_s, right, held):
    advice = Advice("slow-start", None, "", "", "", {"saves_s": 6.0})
    began = Started(SLOW_STARTS[0], 3.0, reported_s, advice, (9.0, 9.0, 19.0), (9.0 - saved_s,) * 3)
    assert [check.held for check in check_starts([began])] == [right, held]


def test_a_slow_start_without_its_advice_promises_nothing_and_misses():
    began = Started(SLOW_STARTS[0], 3.0, 0.0, None, (9.0,), (6.0,), "status 1: no")
    assert [check.missed for check in check_starts([began])] == [True, True]


# --- plans ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("of_ten", "held"), [(10, True), (9, True), (8, False)])
def test_nine_of_ten_plans_are_right_in_throughput_and_efficiency(of_ten, held):
    share = Interval(0.5, 0.4, 0.6)

    def planned(per_s):
        return Prediction("job", (2, 2), (4, 2), (100.0, 0.5), (Interval(per_s, 0, 200), share))

    check = check_predictions([planned(109.0)] * of_ten + [planned(111.0)] * (10 - of_ten))
    assert (check.measured, check.held) == (f"{of_ten} of 10", held)
    assert planned(100.0).off == 0


# --- scripts ------------------------------------------------------------------------------------------------


LOAD = next(script for script in STYLES if script.bottleneck == "load")
TRUE = Interval(0.70, 0.69, 0.71)


def answer(efficiency=TRUE, bottleneck="load", raw_s=0.030):
    return Answer("input_bound", bottleneck, efficiency, raw_s, 25.0)


def run(described=None, **found):
    return Run(LOAD, Plain(0.030, 0.021), answer(**found), described)


@pytest.mark.parametrize(
    ("efficiency", "agrees"),
    [
        (TRUE, True),
        (Interval(0.72, 0.71, 0.73), True),  # 2 points off
        (Interval(0.75, 0.69, 0.81), True),  # within
        (Interval(0.75, 0.71, 0.79), False),
        (None, False),
    ],
)
def test_the_truth_is_in_the_interval_or_near(efficiency, agrees):
    assert run(efficiency=efficiency).agrees == agrees


# --- parts --------------------------------------------------------------------------------------------------


VERDICTS = Part(
    "verdicts", "2026-01-02", {"cores": "2", "steady": "0.7 ms"}, (("Planted", "| a |"), ("More", "| b |")),
    (Check("right", "all", "21 | 21", held=True),), "revision a1",
)  # fmt: skip
SPEED = Part(
    "speed",
    "2026-01-03",
    {"cores": "2", "steady": "1.2 ms"},
    (("Time", "| c |"),),
    (Check("time", "60 s", "70", False, ("slow_load: 70 s",)),),
    "revision b2",
)


def found_cause(first="costliest-line", gain=None, twins=()):
    given = [Advice(id=one, stage=None, title="t", why="w", how="h", evidence={}, gain=gain) for one in (first, *twins)]
    return Found("deepcopy", 0.020, 0.010, tuple(given[:1]), tuple(given[1:]), 20.0)


@pytest.mark.parametrize(
    ("found", "held"),
    [
        (found_cause(gain=Interval(2.4, 2.2, 2.6)), (True, True, True)),
        (found_cause(gain=Interval(2.6, 2.2, 2.8)), (True, False, True)),
        (found_cause(gain=Interval(9.0, 1.0, 9.0)), (True, True, True)),  # at most
        (found_cause("cut-fetch", Interval(9.0, 8.0, 9.9)), (False, True, True)),
        (found_cause(twins=("costliest-line",)), (True, True, False)),
    ],
)
def test_a_cause_is_the_first_advice_promises_no_more_than_it_brings_and_is_not_its_twins(found, held):
    assert tuple(check.held for check in check_causes([found])) == held


@pytest.mark.parametrize(
    ("batch_s", "seconds", "held"),
    [
        ({0: 0.040, 4: 0.0104, 8: 0.010}, 9.0, True),
        ({0: 0.040, 4: 0.0106, 8: 0.010}, 9.0, False),  # of the best
        ({0: 0.010, 4: 0.0103, 8: 0.010}, 9.0, False),  # over the given number
        ({0: 0.040, 4: 0.010, 8: 0.010}, 16.5, False),
    ],
)
def test_a_number_of_workers_is_nearly_the_best_never_worse_than_the_given_one_and_in_time(batch_s, seconds, held):
    found = Workers(4, 2, "fork", {0: 400.0, 4: 1600.0}, 0, seconds=seconds)
    assert check_counts([Counted(JOBS[0], found, batch_s, 8)]).held == held


def test_a_loader_that_fails_has_missed():
    check = check_counts([Counted(JOBS[0], None, {}, 0, "The dataset raised.")])
    assert (check.held, check.off) == (False, (f"{JOBS[0].name}: The dataset raised.",))


def test_parts_are_read_as_they_were_written(tmp_path):
    path = tmp_path / "results.json"
    assert read(path) == []
    write(path, [VERDICTS, SPEED])
    assert read(path) == [VERDICTS, SPEED]
    assert (tmp_path / "RESULTS.md").read_text() == to_markdown([VERDICTS, SPEED])


def test_a_missed_bar_is_the_exit_status(tmp_path, monkeypatch):
    monkeypatch.setattr(bench, "RESULTS", tmp_path / "results.json")
    monkeypatch.setattr(bench, "describe_steadiness", lambda: "steady")
    monkeypatch.setattr(bench, "IN_RESULTS", ["speed"])
    monkeypatch.setattr(bench, "PARTS", {"speed": lambda report, quick: report.add("Time", "| c |", SPEED.checks)})
    result = CliRunner().invoke(bench.main, [])
    assert result.exit_code == 1
    assert "Missed: time" in result.output


def test_what_could_not_be_compared_is_shown_and_is_no_missed_bar(tmp_path, monkeypatch):
    alone = Check("speed", "as fast", "70", held=None)
    monkeypatch.setattr(bench, "RESULTS", tmp_path / "results.json")
    monkeypatch.setattr(bench, "describe_steadiness", lambda: "steady")
    monkeypatch.setattr(bench, "IN_RESULTS", ["speed"])
    monkeypatch.setattr(bench, "PARTS", {"speed": lambda report, quick: report.add("Time", "| c |", [alone])})
    assert CliRunner().invoke(bench.main, []).exit_code == 0
    assert "not compared" in (tmp_path / "RESULTS.md").read_text()
    assert read(tmp_path / "results.json")[0].checks == (alone,)


@pytest.mark.parametrize(
    ("told", "held"),
    [
        ({}, True),
        ({"worker": 0}, False),
        ({"line": 31}, False),
        ({"stage": "collate"}, False),
        ({"indices": [1, 2]}, False),
        ({"indices": None}, False),
        ({"at": 90.0}, False),
    ],
)
def test_a_stall_counts_as_named_where_all_that_is_known_of_it_was_told(told, held):
    planted = [
        {"what": "sample", "at": 5.0, "worker": 1, "index": 7, "stage": "decode", "line": 30},
        {"what": "worker", "at": 7.0, "worker": 1, "index": 2, "stage": "other", "line": 40},
        {"what": "checkpoint", "at": 9.0, "line": 50},
    ]
    slow = {"event": "slow_batch", "at": 6.0, "worker": 1, "indices": [6, 7], "stage": "decode", "line": 30}
    stalled = {"event": "slow_batch", "at": 8.0, "worker": 1, "indices": [2, 9], "stage": "other", "line": 40}
    named = monitored.named_stalls(planted, [slow | told, stalled, {"event": "checkpoint", "at": 9.5, "line": 50}])
    assert monitored.check_stalls(named).held == held
    assert not monitored.check_stalls(monitored.named_stalls(planted[1:], [stalled])).held


def test_the_results_in_the_tree_are_those_that_are_kept():
    parts = kept.read(bench.RESULTS)
    assert {part.name for part in parts} <= set(bench.IN_RESULTS)
    page = bench.RESULTS.with_name("RESULTS.md").read_text(encoding="utf-8")
    assert page == to_markdown(parts, bench.IN_RESULTS)

"""How `bottleneck run` on a script is judged by the script's own speed; every number is invented."""

import pytest

from benchmarks.script_jobs import STYLES, Answer, Plain, Run, check_runs, runs_table
from bottleneck.results.records import Interval

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


@pytest.mark.parametrize(
    ("described", "agrees"),
    [
        (None, True),
        (answer(), True),
        (answer(Interval(0.75, 0.69, 0.81)), True),  # within the wider one
        (answer(Interval(0.75, 0.71, 0.79)), False),
        (answer(bottleneck="augment"), False),
        (answer(None), False),
    ],
)
def test_the_answer_on_a_script_is_that_on_its_description(described, agrees):
    found = run(described=described)
    assert found.agrees_with_diagnose == agrees
    check = check_runs([found])[2]
    assert check.held == agrees
    assert (described is not None) == (f"{described and described.bottleneck}, " in runs_table([found]))


def test_each_bar_names_what_is_off():
    assert all(check.held for check in check_runs([run(), run()]))
    failed = Run(LOAD, Plain(0.030, 0.021), Answer("failed", None, None, None, 9.0, "status 3: no loop"))
    verdicts, efficiencies, _, slowdowns = check_runs([run(), failed, run(bottleneck="augment", raw_s=0.031)])
    assert verdicts.off == ("reference.py: status 3: no loop", "reference.py: augment")
    assert efficiencies.off == ("reference.py: 70.0% by itself",)
    assert slowdowns.off == ("reference.py: –", "reference.py: +3.3 %")
    assert "status 3: no loop" in runs_table([failed])
    assert "30 ms → 31 ms" in runs_table([run(raw_s=0.031)])

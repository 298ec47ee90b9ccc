"""How the bench judges: verdicts, costs, ratios, agreement, scripts, ranks; every number is invented."""

import math
import re
import subprocess
from types import SimpleNamespace

import pytest

from benchmarks import ranks
from benchmarks.checks import Check, checks_table, markdown_table, milliseconds, percent
from benchmarks.machine import describe_revision
from benchmarks.observer import ObserverEffect, check_observer, enough_pairs, mean_ratio, observer_table
from benchmarks.planted import find_planted
from benchmarks.resources import Footprint, agree, check_length, check_slow_steps, check_time
from benchmarks.script_jobs import STYLES, Answer, Plain, Run, check_runs, runs_table
from benchmarks.verdicts import CostFound, Trial, check_trials, read_trial, verdicts_table
from bottleneck.results.records import Interval
from tests.support.results_factory import evidence_of

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


def test_checks_name_what_is_wrong():
    off = CostFound("load", 0.004, Interval(0.008, 0.007, 0.009))
    failed = trial(state="failed", bottleneck=None, efficiency=None, costs=(), failure="ValueError: no | pipe")
    verdicts, costs, _ = check_trials([trial(), trial(bottleneck="load", costs=(off,)), failed])
    assert not verdicts.held
    assert "1 of 3" in verdicts.measured
    assert verdicts.off[0] == "last_straw: load"
    assert costs.off == ("last_straw/load: +100.0 %",)
    assert not costs.held
    assert all(check.held for check in check_trials([trial()])[:2])
    assert "ValueError: no \\| pipe" in verdicts_table([failed])


def test_a_trial_is_read_from_a_result():
    planted = find_planted("composed")
    stages = [
        SimpleNamespace(name="augment", cost_s_per_batch=Interval(0.0142, 0.014, 0.0144)),
        SimpleNamespace(name="load", cost_s_per_batch=None),
    ]
    result = SimpleNamespace(
        stages=stages,
        experiments=[SimpleNamespace(name="raw", coupled=SimpleNamespace(seconds_per_batch=0.0221))],
        verdict=SimpleNamespace(state="input_bound", bottleneck="augment", efficiency=None),
        cost=SimpleNamespace(cache_bytes=123),
        evidence=evidence_of(
            {"transforms": [{"name": "Blur", "calls_per_sample": 1.0, "wall_s_per_call": 0.0007}]},
        ),
    )
    read = read_trial(planted, result, 12.0)
    assert (read.right, read.coupled_raw_s, read.cache_bytes) == (True, 0.0221, 123)
    errors = {cost.stage: cost.error for cost in read.costs}
    assert set(errors) == set(planted.costs_s_per_batch)
    assert errors["augment"] == pytest.approx(0.0142 / planted.costs_s_per_batch["augment"] - 1)
    assert errors["Blur"] == pytest.approx(0.0007 * 16 / 0.011 - 1)
    assert errors["load"] is errors["Jitter"] is None


# --- the observer effect ----------------------------------------------------------------------------------


def test_the_interval_of_the_ratio_is_students():
    found = mean_ratio([math.exp(x) for x in (0.00, 0.01, 0.02)])
    half = 4.302653 * 0.01 / math.sqrt(3)  # t for two degrees of freedom
    assert found.estimate == pytest.approx(math.exp(0.01))
    assert (found.low, found.high) == pytest.approx((math.exp(0.01 - half), math.exp(0.01 + half)))
    assert mean_ratio([1.01]).high == math.inf


def test_pairs_are_taken_until_their_ratio_is_known():
    rule = {"fewest": 3, "most": 5, "precision": 0.01}
    assert not enough_pairs([1.0, 1.0], **rule)
    assert enough_pairs([1.0, 1.001, 0.999], **rule)
    assert not enough_pairs([1.0, 1.05, 0.95], **rule)
    assert enough_pairs([1.0, 1.05, 0.95, 1.05, 0.95], **rule)


def test_the_observer_effect_is_judged_by_its_interval_and_pairs_left_out_are_counted():
    def effect(name, low, high, left_out=()):
        return ObserverEffect(name, (1.0,), Interval((low + high) / 2, low, high), left_out)

    check = check_observer([effect("load_wait", 0.995, 1.015), effect("augment_spin", 1.002, 1.022)])
    assert not check.held
    assert check.off == ("augment_spin: +0.2% to +2.2%",)
    assert check_observer([effect("load_wait", 0.981, 1.019)]).held
    assert not check_observer([effect("load_wait", 0.979, 1.001)]).held
    table = observer_table([effect("load_wait", 0.99, 1.01, left_out=(0.08, 0.25)), effect("other", 0.99, 1.01)])
    assert "2: others took 8% – 25% of the cores" in table
    assert "| none " in table


# --- time, memory, agreement ------------------------------------------------------------------------------


def test_agreement_wants_the_same_verdict_and_overlapping_intervals():
    assert agree(trial(), trial(efficiency=Interval(0.735, 0.735, 0.75)))
    assert not agree(trial(), trial(efficiency=Interval(0.78, 0.77, 0.79)))
    assert not agree(trial(), trial(bottleneck="load"))
    assert not agree(trial(), trial(efficiency=None))


def test_time_is_judged_of_the_steps_that_the_bar_speaks_of():
    slow = trial(planted=find_planted("device_bound"), seconds=500.0)
    assert check_time([trial(seconds=60.0), slow], 60.0, "default").held
    assert not check_time([trial(seconds=60.1), slow], 60.0, "default").held
    assert check_slow_steps([trial(seconds=179.0)]).held
    assert not check_slow_steps([trial(seconds=181.0)]).held
    assert not check_slow_steps([trial(bottleneck="load", seconds=10.0)]).held


def test_the_length_may_change_neither_time_nor_memory():
    short = Footprint(10**3, 20.0, 400 * 2**20)
    assert check_length(short, Footprint(10**8, 22.0, 420 * 2**20)).held
    assert not check_length(short, Footprint(10**8, 22.0, 800 * 2**20)).held
    assert not check_length(short, Footprint(10**8, 40.0, 400 * 2**20)).held


# --- what is written --------------------------------------------------------------------------------------


def test_tables_and_numbers_are_exact():
    assert markdown_table(("a", "long title"), [("x|y", "1\n2")]) == (
        "| a    | long title |\n|------|------------|\n| x\\|y | 1 2        |"
    )
    assert "**missed**" in checks_table([Check("w", "b", "m", held=False)])
    assert (milliseconds(0.01234), milliseconds(None), percent(0.1)) == ("12.3 ms", "–", "+10.0 %")


def test_the_revision_says_which_code_and_whether_it_was_changed(tmp_path):
    # Guards: the second part of a series that says its code was changed, because the first has written its results.
    def git(*arguments):
        author = ("-c", "user.name=a", "-c", "user.email=a@b.example")
        subprocess.run(["git", *author, *arguments], cwd=tmp_path, check=True, capture_output=True)

    code, results = tmp_path / "bench.py", tmp_path / "RESULTS.md"
    code.write_text("1")
    results.write_text("1")
    git("init")
    assert describe_revision(tmp_path) == "a revision unknown to git"
    git("add", ".")
    git("commit", "-m", "one")
    results.write_text("2")
    assert re.fullmatch(r"revision [0-9a-f]{10}", describe_revision(tmp_path))
    code.write_text("2")
    assert describe_revision(tmp_path).endswith(", with changes that are in no commit")


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


# --- jobs of several ranks ----------------------------------------------------------------------------------


PLANTED = {job.name: job for job in ranks.JOBS}


def found(
    state="device_bound",
    bottleneck="compute",
    straggler=None,
    ranks=(),
    stage=None,
    sync_s=None,
    ratio=None,
    what=None,
    advice=(),
    raw_s=0.05,
):
    """What is looked at of a result."""
    held = None if straggler is None else SimpleNamespace(rank=straggler, stage=stage, ranks=ranks)
    together = SimpleNamespace(
        straggler=held,
        contention=SimpleNamespace(ratio=ratio, what=what),
        sync=SimpleNamespace(cost_s_per_batch=sync_s),
    )
    return SimpleNamespace(
        verdict=SimpleNamespace(state=state, bottleneck=bottleneck, straggler=straggler),
        evidence=SimpleNamespace(ranks=together),
        advice=[SimpleNamespace(id=name) for name in advice],
        experiments=[SimpleNamespace(name="raw", coupled=SimpleNamespace(seconds_per_batch=raw_s))],
    )


def run_of_ranks(name, **said):
    loop = {"real_s": 0.05, "cached_s": 0.05, "unshared_s": 0.01}
    return ranks.Run(PLANTED[name], found(**said), ((loop, loop), ({**loop, "unshared_s": 0.02}, loop)))


RIGHT = {
    "even": {},
    "slow_loader": {"straggler": 2, "stage": "load"},
    "slow_loaders": {"straggler": 1, "ranks": (1, 3), "stage": "load"},
    "slow_step": {"straggler": 1, "stage": "compute"},
    "slow_sync": {"bottleneck": "sync"},
    "one_core": {"ratio": Interval(2.0, 1.9, 2.1), "what": "cores", "advice": ("rank-contention",)},
    "one_memory": {
        "state": "input_bound",
        "ratio": Interval(1.3, 1.2, 1.4),
        "what": "memory",
        "advice": ("rank-contention",),
    },
    "one_disk": {"ratio": Interval(3.0, 2.9, 3.1), "advice": ("rank-contention",)},
    "uneven": {"advice": ("uneven-shards",)},
}


@pytest.mark.parametrize("name", PLANTED)
def test_a_job_is_right_only_by_what_was_planted_in_it(name):
    assert run_of_ranks(name, **RIGHT[name]).right
    others = [RIGHT[one] for one in ("slow_loader", "slow_loaders", "slow_step", "slow_sync", "one_memory")]
    assert not any(run_of_ranks(name, **said).right for said in others if said is not RIGHT[name])


def test_the_slowest_rank_says_what_sharing_costs():
    assert run_of_ranks("slow_sync").sync_s == pytest.approx(0.05 - 0.015)


@pytest.mark.parametrize(("cost_s", "held"), [(0.034, True), (0.040, False), (None, False)])
def test_the_cost_of_sharing_is_held_against_plain_loops(cost_s, held):
    checks = ranks.check_runs([run_of_ranks("slow_sync", bottleneck="sync", sync_s=cost_s)])
    assert checks[1].held == held


@pytest.mark.parametrize(("raw_s", "held"), [(0.0505, True), (0.052, False)])
def test_a_diagnosis_that_slows_the_job_down_is_off(raw_s, held):
    checks = ranks.check_runs([run_of_ranks("even", raw_s=raw_s)])
    assert (checks[0].held, checks[2].held) == (True, held)

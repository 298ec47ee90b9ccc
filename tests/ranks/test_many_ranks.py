"""One diagnosis of all ranks: which of them holds the others, what sharing gradients costs, and how it fails."""

import json
import signal
import time

import pytest

import bottleneck
from tests.ranks.launched import JOB, SCRIPT, diagnose, finish, launch

pytestmark = pytest.mark.integration


BUDGETS = ("20s", "45s")
"""The longer one, should others have kept the machine busy in the shorter one."""


def test_ranks_of_a_script_that_nobody_changed_are_diagnosed_and_the_slow_ones_named(tmp_path):
    # One launch for the script, whose wrapper has to be found, and for two slow ranks of four.
    path = tmp_path / "report.json"
    for budget in BUDGETS:
        command = ["-m", "bottleneck", "run", "--budget", budget, "--json", str(path), str(SCRIPT)]
        status, out, err = finish(launch(command, ranks=4))
        assert status == 0, err
        result = bottleneck.load(path)
        straggler = result.evidence.ranks.straggler
        if straggler is not None and straggler.gain.low > 1.5 and straggler.stage is not None:
            break
    assert (result.pipeline["source"], result.evidence.ranks.world) == ("script", 4)
    assert straggler.ranks == (1, 3)
    assert result.verdict.straggler in (1, 3)
    assert result.verdict.state == "input_bound"
    assert [rank.rank for rank in result.ranks] == [0, 1, 2, 3]
    assert straggler.stage == "load"
    assert straggler.gain.low > 1.5  # a step of 30 ms waits for a batch of 136
    assert result.evidence.ranks.sync.gain_if_free.estimate > 0  # its wrapper was found, and sharing left out
    assert out.count("Ranks 1 and 3 slow down all 4 ranks with their load") == 1  # the other ranks say nothing
    assert "trained" not in out


@pytest.mark.sleeps
def test_a_script_is_tuned_on_all_ranks_by_what_the_slow_one_lacks(tmp_path):
    # One worker of rank 1 takes 136 ms for a batch, that of rank 0 four, and a step 30.
    path = tmp_path / "tuning.json"
    for budget in ("90s", "3m"):
        command = ["-m", "bottleneck", "tune", "--try", "num_workers", "--budget", budget, "--json", str(path)]
        status, out, err = finish(launch([*command, str(SCRIPT)]))
        assert status == 0, err
        result = json.loads(path.read_text())
        if result["gain"] is not None:
            break
    assert result["gain"]["low"] > 1.5
    assert result["lines"][0].startswith("DataLoader(..., num_workers=")
    assert result["ladder"][0]["rate"]["samples_per_s"] < 40  # as the slow rank has it
    assert out.count("TUNED") == 1  # the other rank says nothing
    assert "samples/s a rank" in " ".join(out.split())
    assert "trained" not in out


@pytest.mark.sleeps
def test_what_sharing_gradients_takes_is_a_stage_of_the_job(tmp_path):
    # From Python, where ranks that follow get a diagnosis of their own part, and say nothing.
    path, share_s = tmp_path / "report.json", 0.05
    for budget in BUDGETS:
        command = [str(JOB), str(path), budget.removesuffix("s")]
        status, out, err = finish(launch(command, step_s=share_s, share_s=share_s))
        assert status == 0, err
        result = bottleneck.load(path)
        if result.evidence.ranks.sync.cost_s_per_batch is not None:  # beside other tests it may be known too loosely
            break
    assert result.verdict.bottleneck == "sync"
    assert result.verdict.straggler is None
    cost_s = result.evidence.ranks.sync.cost_s_per_batch
    assert 0.9 * share_s < cost_s < 1.5 * share_s
    assert result.evidence.ranks.sync.gain_if_free.low > 1.3
    assert "Sharing gradients takes" in result.verdict.sentence
    assert not out


@pytest.mark.untimed
@pytest.mark.parametrize(
    ("failure", "said"),
    [
        ("raise", "The train step raised"),
        ("kill", "Its process ended without a message"),
        ("sample", "The dataset raised at index"),
    ],
)
def test_a_rank_that_fails_ends_all_and_is_named(tmp_path, failure, said):
    path = tmp_path / "report.json"
    began_s = time.monotonic()
    status, _, err = finish(diagnose(path, budget="600s", failure=failure))
    assert status == 1  # torchrun's, whatever that of its ranks is
    assert time.monotonic() - began_s < 200  # of a budget of 600
    assert any(line.startswith("Error: Rank 1 on ") and said in line for line in err.splitlines()), err
    assert "exitcode  : 3" in err
    if failure != "sample":  # before which nothing is measured
        warnings = {warning["id"]: warning["message"] for warning in json.loads(path.read_text())["warnings"]}
        assert said in warnings["ended-early"]
        assert "is 3." in warnings["status-of-launcher"]


@pytest.mark.untimed
def test_an_interrupt_at_the_launcher_leaves_what_was_measured(tmp_path):
    path = tmp_path / "report.json"
    measuring = tmp_path / "measuring"
    process = diagnose(path, budget="120s", told_at=150, told_in=str(measuring))
    until_s = time.monotonic() + 100
    while not measuring.exists() and time.monotonic() < until_s:
        time.sleep(0.2)
    process.send_signal(signal.SIGINT)
    status, _, err = finish(process)
    assert status != 0
    assert "Interrupted" in err
    result = bottleneck.load(path)
    assert result.ranks == ()
    assert "ended-early" in [warning.id for warning in result.warnings]

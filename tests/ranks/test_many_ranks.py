"""One diagnosis of all ranks: which of them holds the others, what sharing gradients costs, and how it fails."""

import json
import signal
import time

import pytest

import bottleneck
from tests.ranks.launched import JOB, SCRIPT, diagnose, finish, launch

pytestmark = pytest.mark.integration


def test_ranks_that_load_slowly_are_named(tmp_path):
    path = tmp_path / "report.json"
    status, out, err = finish(diagnose(path, budget="20s", ranks=4, slow_ranks=(1, 3), slow_load_s=0.12))
    assert status == 0, err
    result = bottleneck.load(path)
    straggler = result.evidence.ranks.straggler
    assert straggler.ranks == (1, 3)
    assert result.verdict.straggler in (1, 3)
    assert result.verdict.state == "input_bound"
    assert [rank.rank for rank in result.ranks] == [0, 1, 2, 3]
    assert straggler.stage == "load"
    assert straggler.gain.low > 1.5
    assert out.count("Ranks 1 and 3 hold all 4 ranks by their load") == 1  # the other rank says nothing
    assert result.evidence.ranks.messages_per_round > 0


def test_what_sharing_gradients_takes_is_a_stage_of_the_job(tmp_path):
    # From Python, where ranks that follow get a diagnosis of their own part, and say nothing.
    path = tmp_path / "report.json"
    status, out, err = finish(launch([str(JOB), str(path), "20"], step_s=0.1, share_s=0.1))
    assert status == 0, err
    result = bottleneck.load(path)
    assert result.verdict.bottleneck == "sync"
    assert result.verdict.straggler is None
    cost_s = result.evidence.ranks.sync.cost_s_per_batch
    assert 0.09 < cost_s < 0.15
    assert result.evidence.ranks.sync.gain_if_free.low > 1.3
    assert "Sharing gradients takes" in result.verdict.sentence
    assert not out


def test_a_script_that_nobody_changed_is_diagnosed_on_all_ranks(tmp_path):
    path = tmp_path / "report.json"
    status, out, err = finish(launch(["-m", "bottleneck", "run", "--budget", "20s", "--json", str(path), str(SCRIPT)]))
    assert status == 0, err
    result = bottleneck.load(path)
    assert (result.pipeline["source"], result.evidence.ranks.world) == ("script", 2)
    assert (result.verdict.state, result.verdict.straggler) == ("input_bound", 1)
    assert result.evidence.ranks.sync.gain_if_free.estimate > 0  # its wrapper was found, and sharing left out
    assert out.count("holds all 2 ranks") == 1
    assert "trained" not in out


def test_a_script_that_raises_on_one_rank_ends_on_all(tmp_path):
    path = tmp_path / "report.json"
    command = ["-m", "bottleneck", "run", "--budget", "600s", "--json", str(path), str(SCRIPT), "100"]
    status, _, err = finish(launch(command))
    assert status == 1
    assert any(line.startswith("Error: Rank 1 on ") and "a broken step" in line for line in err.splitlines()), err
    assert "exitcode  : 3" in err
    assert "ended-early" in [warning.id for warning in bottleneck.load(path).warnings]


@pytest.mark.parametrize(
    ("failure", "said"),
    [
        ("raise", "The train step raised"),
        ("kill", "Its process ended without a word"),
        ("hang", "keeps the others waiting. It is at"),
        ("sample", "The dataset raised at index"),
    ],
)
def test_a_rank_that_fails_ends_all_and_is_named(tmp_path, failure, said):
    path = tmp_path / "report.json"
    began_s = time.monotonic()
    status, _, err = finish(diagnose(path, budget="600s", failure=failure, hang_s=4))
    assert status == 1  # torchrun's, whatever that of its ranks is
    assert time.monotonic() - began_s < 200  # of a budget of 600
    assert any(line.startswith("Error: Rank 1 on ") and said in line for line in err.splitlines()), err
    assert "exitcode  : 3" in err
    if failure != "sample":  # before which nothing is measured
        warnings = {warning["id"]: warning["message"] for warning in json.loads(path.read_text())["warnings"]}
        assert said in warnings["ended-early"]
        assert "is 3." in warnings["status-of-launcher"]


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

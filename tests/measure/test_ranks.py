"""A process that is one of many is told apart from one that is alone; all of its devices are waited for."""

from types import SimpleNamespace

import msgspec
import pytest
import torch

from bottleneck.measure.ledger import Ledger
from bottleneck.measure.options import MeasureOptions
from bottleneck.measure.ranks.team import RankReport, gather_ranks, rank_warnings
from bottleneck.results.records import Rank
from tests.support.sessions import PRECISE, run_simulated

CPU, FIRST, SECOND = torch.device("cpu"), torch.device("cuda:0"), torch.device("cuda:1")


def test_a_process_that_is_alone_is_not_warned_of():
    assert list(rank_warnings({CPU}, {})) == []
    assert list(rank_warnings({FIRST}, {"WORLD_SIZE": "1", "SLURM_NTASKS": "8"}, visible=1)) == []
    assert list(rank_warnings({CPU}, {"WORLD_SIZE": "many"}, visible=8)) == []
    assert list(rank_warnings({FIRST, SECOND}, {}, visible=2)) == []


@pytest.mark.parametrize("name", ["WORLD_SIZE", "OMPI_COMM_WORLD_SIZE"])
def test_what_a_launcher_says_is_told_with_its_number(name):
    (warning,) = rank_warnings({CPU}, {name: "8"})
    assert warning.id == "one-rank-of-many"
    assert f"{name} says 8 " in warning.message
    assert "No number includes" in warning.message


def test_devices_that_stay_unused_are_told():
    (warning,) = rank_warnings({CPU, FIRST}, {}, visible=4)
    assert "it uses 1 of 4 visible devices" in warning.message


def test_a_diagnosis_warns_of_it(monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "2")
    outcome = run_simulated(0.01, MeasureOptions(budget_s=5.0), judge=lambda _: PRECISE)
    assert "one-rank-of-many" in [warning.id for warning in outcome.measurement.warnings]


def gather(*reports):
    """Return rank 0's summary of the reports of all ranks, and the load that it counts as its own job's."""
    texts, ledger, told = [msgspec.json.encode(report).decode() for report in reports], Ledger({}, {}), []
    group = SimpleNamespace(host=reports[0].rank.host, gather=lambda _: texts)
    ranks = gather_ranks(group, reports[0], ledger, SimpleNamespace(note_other_load=told.append))
    assert told == [ledger.evidence.ranks.other_ranks_cores]
    return ranks, told[0]


def test_what_the_other_ranks_of_a_host_keep_busy_is_no_load_of_others():
    # Guards: a job of several ranks was told to stop other processes, which were its own.
    busy = [("a", 1.5), ("a", 2.0), ("b", 7.0)]
    _, load = gather(*(RankReport(Rank(number, host, "cpu"), (), cores) for number, (host, cores) in enumerate(busy)))
    assert load == 2.0


def test_cores_that_ranks_of_a_host_may_use_together_are_counted_once():
    bound = [("a", [0]), ("a", [1]), ("b", [0, 1, 2, 3]), ("b", [2, 3]), ("c", [])]
    ranks, _ = gather(*(RankReport(Rank(number, host, "cpu"), cpus, 0.0) for number, (host, cpus) in enumerate(bound)))
    assert [rank.cores_of_host for rank in ranks] == [2, 2, 4, 4, None]

"""Ranks on two hosts: a slow link between them is the cost of sharing gradients, and a rank that dies is missed."""

import json
import re

import pytest

import bottleneck
from tests.ranks.launched import JOB, finish
from tests.ranks.two_hosts import RATE_BYTES_PER_S, launch_on, missing, two_hosts

pytestmark = pytest.mark.integration


@pytest.fixture(scope="module")
def hosts():
    reason = missing()
    if reason:
        pytest.skip(reason)
    with two_hosts() as spaces:
        yield spaces


def run(hosts, path, budget, **options):
    """Status, standard output and standard error of each host's launcher."""
    command = ["-m", "bottleneck", "diagnose", f"{JOB}:build", "--budget", budget, "--json", str(path)]
    return [finish(process) for process in launch_on(hosts, command, **options)]


def test_a_slow_link_is_what_sharing_gradients_costs(hosts, tmp_path):
    path, numbers = tmp_path / "report.json", 150_000
    ends = run(hosts, path, "20s", step_s=0.05, numbers=numbers)
    assert [status for status, _, _ in ends] == [0, 0], ends
    result = bottleneck.load(path)
    together = result.evidence.ranks
    assert (together.world, together.hosts) == (2, 2)
    assert [rank.host for rank in result.ranks] == ["node-a", "node-b"]
    assert together.sync.gain_if_free.low > 1.3
    link_s = 4 * numbers / RATE_BYTES_PER_S
    assert 0.7 * link_s < together.sync.cost_s_per_batch < 1.6 * link_s


@pytest.mark.untimed
def test_a_rank_that_is_killed_on_another_host_is_named(hosts, tmp_path):
    # Hosts that agree on who is which rank: the second may be on either.
    path = tmp_path / "report.json"
    ends = run(hosts, path, "600s", elastic=True, failure="kill")
    assert [status for status, _, _ in ends] == [1, 1]
    errors = "".join(err for _, _, err in ends)
    named = re.search(r"^Error: (Rank 1 on node-[ab]) failed\.", errors, re.MULTILINE)
    assert named is not None, errors
    warnings = {warning["id"]: warning["message"] for warning in json.loads(path.read_text())["warnings"]}
    assert named[1] in warnings["ended-early"]

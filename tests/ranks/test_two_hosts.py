"""A rank that dies on another host: two hosts on one machine are network namespaces with names of their own."""

import json
import os
import re
import shutil
import subprocess
import sys

import pytest

from tests.ranks.launched import JOB, environment_of, finish

pytestmark = pytest.mark.integration

NAMES = ("node-a", "node-b")
LINK = "link0"


def run(*command, check=False):
    return subprocess.run(command, capture_output=True, text=True, check=check)


def address(number):
    return f"10.201.0.{number + 1}"


@pytest.fixture
def hosts():
    """The namespaces of the two hosts; their link goes with them."""
    for tool in ("ip", "unshare"):
        if shutil.which(tool) is None:
            pytest.skip(f"{tool} is not installed")
    if run("unshare", "--net", "--uts", "true").returncode:
        pytest.skip("namespaces are not allowed")
    spaces = tuple(f"bottleneck-{os.getpid()}-{name}" for name in NAMES)
    try:
        for space in spaces:
            run("ip", "netns", "add", space, check=True)
        ends = ("name", LINK, "netns")
        run("ip", "link", "add", *ends, spaces[0], "type", "veth", "peer", *ends, spaces[1], check=True)
        for number, space in enumerate(spaces):
            run("ip", "-n", space, "address", "add", f"{address(number)}/24", "dev", LINK, check=True)
            for device in ("lo", LINK):
                run("ip", "-n", space, "link", "set", device, "up", check=True)
        yield spaces
    finally:
        for space in spaces:
            run("ip", "netns", "delete", space)


def launch(number, space, arguments, **plan):
    """Start the sleeping job's rank of a host; the launchers agree on who is which rank."""
    named = ["unshare", "--uts", "sh", "-c", f'hostname {NAMES[number]} && exec "$@"', "sh"]
    launcher = [
        *("-m", "torch.distributed.run", "--nnodes", "2", "--nproc-per-node", "1"),
        *("--rdzv-backend", "c10d", "--rdzv-endpoint", f"{address(0)}:29412", "--rdzv-id", "one-job"),
        *("--rdzv-conf", f"is_host={int(number == 0)}"),  # the names of the hosts lead to no address
        *("--local-addr", address(number)),
    ]
    return subprocess.Popen(
        ["ip", "netns", "exec", space, *named, sys.executable, *launcher, *arguments],
        env={**environment_of(plan), "GLOO_SOCKET_IFNAME": LINK},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.mark.untimed
def test_a_rank_that_is_killed_on_another_host_is_named(hosts, tmp_path):
    path = tmp_path / "report.json"
    command = ["-m", "bottleneck", "diagnose", f"{JOB}:build", "--budget", "600s", "--json", str(path)]
    launched = [launch(number, space, command, failure="kill") for number, space in enumerate(hosts)]
    ends = [finish(process) for process in launched]
    assert [status for status, _, _ in ends] == [1, 1]
    errors = "".join(err for _, _, err in ends)
    named = re.search(r"^Error: (Rank 1 on node-[ab]) failed\.", errors, re.MULTILINE)  # it may be on either
    assert named is not None, errors
    warnings = {warning["id"]: warning["message"] for warning in json.loads(path.read_text())["warnings"]}
    assert named[1] in warnings["ended-early"]

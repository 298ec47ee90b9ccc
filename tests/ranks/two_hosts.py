"""Two hosts on one machine: network namespaces with names of their own, and a link between them that is slow."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from contextlib import contextmanager

from tests.ranks.launched import environment_of

RATE_BYTES_PER_S = 50e6 / 8
_NAMES = ("node-a", "node-b")
_LINK = "slow0"


def missing():
    """Why there can be no such hosts here; empty where there can be."""
    tools = [tool for tool in ("ip", "tc", "unshare") if shutil.which(tool) is None]
    if tools:
        return f"{tools[0]} is not installed"
    return "" if _run("unshare", "--net", "--uts", "true").returncode == 0 else "namespaces are not allowed"


@contextmanager
def two_hosts():
    """Yield the namespaces of the two hosts; their link goes with them."""
    spaces = tuple(f"bottleneck-{os.getpid()}-{name}" for name in _NAMES)
    try:
        for space in spaces:
            _run("ip", "netns", "add", space, check=True)
        ends = ("name", _LINK, "netns")
        _run("ip", "link", "add", *ends, spaces[0], "type", "veth", "peer", *ends, spaces[1], check=True)
        for number, space in enumerate(spaces):
            _run("ip", "-n", space, "address", "add", f"{_address(number)}/24", "dev", _LINK, check=True)
            for device in ("lo", _LINK):
                _run("ip", "-n", space, "link", "set", device, "up", check=True)
            limit = ("tbf", "rate", f"{8 * RATE_BYTES_PER_S:.0f}bit", "burst", "32kbit", "latency", "400ms")
            _run("tc", "-n", space, "qdisc", "add", "dev", _LINK, "root", *limit, check=True)
        yield spaces
    finally:
        for space in spaces:
            _run("ip", "netns", "delete", space)


def launch_on(spaces, arguments, elastic=False, **plan):
    """Start one rank of the sleeping job on each host, by the launcher of that host.

    With `elastic` the launchers agree on who is which rank (the rendezvous `c10d`), else they are told.
    """
    processes = []
    for number, space in enumerate(spaces):
        agreed = [
            *("--rdzv-backend", "c10d", "--rdzv-endpoint", f"{_address(0)}:29412", "--rdzv-id", "one-job"),
            *("--rdzv-conf", f"is_host={int(number == 0)}"),  # the names of the hosts lead to no address
        ]
        told = ["--node-rank", str(number), "--master-addr", _address(0), "--master-port", "29411"]
        launcher = [
            *("-m", "torch.distributed.run", "--nnodes", "2", "--nproc-per-node", "1"),
            *([*agreed, "--local-addr", _address(number)] if elastic else told),
        ]
        named = ["unshare", "--uts", "sh", "-c", f'hostname {_NAMES[number]} && exec "$@"', "sh"]
        processes.append(
            subprocess.Popen(
                ["ip", "netns", "exec", space, *named, sys.executable, *launcher, *arguments],
                env={**environment_of(plan), "GLOO_SOCKET_IFNAME": _LINK},
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
        )
    return processes


def _address(number):
    return f"10.201.0.{number + 1}"


def _run(*command, check=False):
    return subprocess.run(command, capture_output=True, text=True, check=check)

"""Runs a job of several ranks by torch's own launcher."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import psutil

JOB = Path(__file__).with_name("sleeping_ranks.py")
SCRIPT = Path(__file__).with_name("ddp_script.py")
_PATIENCE_S = 300


def launch(arguments, ranks=2, **plan):
    """Start ranks of the sleeping job: each runs Python with these arguments."""
    launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks)]
    return subprocess.Popen(
        [sys.executable, *launcher, *arguments],
        env=environment_of(plan),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def environment_of(plan):
    """With the plan of the sleeping job."""
    return {**os.environ, "JOB": json.dumps(plan), "OMP_NUM_THREADS": "1"}


def diagnose(report, budget="10s", **changes):
    """Start `bottleneck diagnose` on each rank."""
    target = f"{JOB}:build"
    return launch(["-m", "bottleneck", "diagnose", target, "--budget", budget, "--json", str(report)], **changes)


def finish(process):
    """Wait for the launcher; return its status, and what was said on standard output and standard error.

    Every process that it started has ended then, or the test fails.
    """
    try:
        family = psutil.Process(process.pid).children(recursive=True)
        out, err = process.communicate(timeout=_PATIENCE_S)
    except BaseException:
        for child in psutil.Process(process.pid).children(recursive=True):
            child.kill()
        process.kill()
        process.communicate()
        raise
    _, left = psutil.wait_procs(family, timeout=20)
    assert not left
    return process.returncode, out, err

"""Ranks that a framework starts are diagnosed together."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import bottleneck

HERE = Path(__file__).parent
# What `accelerate launch` starts for devices; on CPUs it would need MPI.
LAUNCH = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]


@pytest.mark.integration
@pytest.mark.parametrize(
    "command",
    [
        pytest.param([*LAUNCH, str(HERE / "ranks_with_accelerate.py")], id="accelerate"),
        pytest.param([sys.executable, str(HERE / "ranks_with_ray.py")], id="ray"),
    ],
)
def test_the_slow_rank_is_named(tmp_path, command):
    path = tmp_path / "result.json"
    environment = {**os.environ, "PYTHONPATH": str(HERE.parents[1]), "RAY_USAGE_STATS_ENABLED": "0"}
    done = subprocess.run(
        [*command, str(path)], env=environment, capture_output=True, text=True, timeout=280, check=False
    )
    assert done.returncode == 0, done.stderr
    result = bottleneck.load(path)
    assert result.verdict.straggler == 1
    assert result.verdict.state == "input_bound"
    assert [rank.rank for rank in result.ranks] == [0, 1]

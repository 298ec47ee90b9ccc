"""Ranks that a framework starts are diagnosed together."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import bottleneck

HERE = Path(__file__).parent
LAUNCH = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
ACCELERATE = [
    sys.executable,
    "-m",
    "accelerate.commands.launch",
    "--multi_gpu",
    "--num_processes",
    "2",
    "--main_process_port",
    "0",
]
RUN = ["-m", "bottleneck", "run", "--budget", "15s"]


@pytest.mark.integration
@pytest.mark.parametrize(
    "command",
    [
        pytest.param([*ACCELERATE, *RUN, "--json", "{path}", "ranks_with_accelerate.py"], id="accelerate"),
        pytest.param([*LAUNCH, *RUN, "--json", "{path}", "ranks_with_trainer.py"], id="transformers"),
        pytest.param([*LAUNCH, *RUN, "--json", "{path}", "ranks_with_lightning.py"], id="lightning"),
        pytest.param([sys.executable, "ranks_with_ray.py", "{path}"], id="ray"),
    ],
)
def test_the_slow_rank_is_named(tmp_path, command):
    path = tmp_path / "result.json"
    environment = {
        **os.environ,
        "PYTHONPATH": str(HERE.parents[1]),
        "RAY_USAGE_STATS_ENABLED": "0",
        "ACCELERATE_USE_CPU": "true",
    }
    done = subprocess.run(
        [part.format(path=path) for part in command],
        cwd=HERE,
        env=environment,
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    result = bottleneck.load(path)
    assert result.verdict.straggler == 1
    assert result.verdict.state == "input_bound"
    assert [rank.rank for rank in result.ranks] == [0, 1]
    assert "was found" not in (result.evidence.ranks.sync_reason or "")  # what shares the gradients was found

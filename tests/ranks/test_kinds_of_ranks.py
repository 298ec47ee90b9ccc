"""Ways to share gradients and to load that jobs of several ranks have: each ends, with the same steps on all ranks."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.integration

JOBS = Path(__file__).with_name("kinds_of_ranks.py")
REASONS = {
    "broadcast_buffers, distributed_sampler": None,
    "fully_shard, varying_shapes": "under FSDP",
    "accumulation, uneven_workers": None,
    "static_graph, stream": "static_graph=True fixes",
    "find_unused_parameters, workers_on_one": "find_unused_parameters=True needs",
    "all_reduce_by_hand, uneven_lengths, no_workers": "no DistributedDataParallel was found",
}
"""Reason why sharing gradients cannot be left out, by kind of job; None: it can."""


def test_ranks_of_each_kind_are_diagnosed_together(tmp_path):
    command = [sys.executable, str(JOBS), str(tmp_path), "5", *REASONS]
    done = subprocess.run(command, capture_output=True, text=True, timeout=280, check=False)
    assert done.returncode == 0, done.stderr
    found = json.loads((tmp_path / "found.json").read_text())
    for kind, reason in REASONS.items():
        check_kind(found[kind], reason)
    uneven = found["all_reduce_by_hand, uneven_lengths, no_workers"]
    assert "uneven-shards" in [advice["id"] for advice in uneven["advice"]]


def check_kind(result, reason):
    assert "error" not in result, result["error"]
    together = result["evidence"]["ranks"]
    assert (together["world"], len(result["ranks"])) == (2, 2)
    assert "ended-early" not in [warning["id"] for warning in result["warnings"]]
    if reason is None:
        assert together["sync"]["gain_if_free"]["estimate"] > 0  # it was left out
    else:
        assert together["sync_reason"].startswith(reason)

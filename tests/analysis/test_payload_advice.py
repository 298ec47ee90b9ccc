"""What could travel smaller is advised where travelling costs the job, and nowhere else."""

from dataclasses import replace

import pytest

from bottleneck.analysis.analyse import analyse
from tests.analysis.simulated import Job, measure

COPY_BOUND = Job(
    coupled={"device": 0.010, "host": 0.020, "after_collate": 0.0201, "before_collate": 0.0202, "raw": 0.0204},
    drained={"after_collate": 0.001, "before_collate": 0.002, "raw": 0.003},
)
SAVING = {"id": "few-levels", "path": "[0]", "what": "float32 with 256 different values", "how": "send uint8",
          "bytes_saved": 30_000_000}  # fmt: skip


def advice(job, payload, **settings):
    given = analyse(measure(replace(job, evidence={"payload": payload}, **settings), rounds=8, noise=0.01)).advice
    return {item.id: item for item in given}


def test_a_copy_that_costs_is_told_what_could_travel_smaller():
    item = advice(COPY_BOUND, {"bytes": 40_000_000, "savings": [SAVING]})["smaller-payload"]
    assert item.stage == "copy"
    assert "batch[0] is float32 with 256 different values" in item.why
    assert "75 %" in item.why
    assert "38.1 MiB" in item.why
    assert "estimate" in item.why
    assert item.how == "send uint8"
    assert item.evidence["bytes_saved"] == 30_000_000


@pytest.mark.parametrize(
    "payload",
    [
        None,
        {},
        {"bytes": 40_000_000, "savings": []},
        {"bytes": 0, "savings": [SAVING]},
        {"bytes": 9e9, "savings": [SAVING]},
        {"bytes": 4224, "savings": [{**SAVING, "bytes_saved": 3072}]},
    ],
    ids=["none", "empty", "nothing to save", "no bytes", "little", "a copy of 4 KiB that waits for something else"],
)
def test_without_a_saving_worth_telling_nothing_is_told(payload):
    assert "smaller-payload" not in advice(COPY_BOUND, payload)

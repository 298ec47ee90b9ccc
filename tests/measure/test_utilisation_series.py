"""Utilisation over time: a row for each block, bounded, and nothing between the blocks."""

import json

import pytest

from bottleneck.loader import modes
from bottleneck.measure.ladder import Arm, Ladder, Rung
from bottleneck.measure.usage.nvml import GpuSample
from bottleneck.measure.usage.process import MemoryReading
from bottleneck.measure.usage.samples import BlockReadings, TimedReading, UsageSamples
from bottleneck.measure.usage.series import MOST_ROWS, utilisation_series
from tests.support.as_json import in_json

utilisation_series = in_json(utilisation_series)

DEVICE, RAW = Arm(None, "device"), Arm(modes.ALL, "loader")
WITHOUT = Arm(modes.ALL & ~modes.AUGMENT, "loader")
LADDER = Ladder((Rung("device", None, DEVICE), Rung("raw", None, RAW)), (), (("augment", WITHOUT), ("load", RAW)))


def reading(time_s, busy_s=0.0, job_s=0.0, disk=0.0):
    return TimedReading(
        time_s,
        {
            "busy_s": busy_s, "total_s": 4 * time_s, "main_s": job_s / 4, "worker:0": job_s * 3 / 4,
            "disk_read_bytes": disk,
        },
    )  # fmt: skip


def watched(*blocks, workers=1, **more):
    return UsageSamples(4, None, machine_cores=4, blocks=list(blocks), workers=workers, **more)


def test_each_block_has_its_row_with_a_gap_in_between():
    seen = watched(
        BlockReadings(DEVICE, reading(100.0), reading(101.0, busy_s=1.0, job_s=0.5)),
        BlockReadings(RAW, reading(103.0, 9.0, 9.0, 500.0), reading(105.0, 15.0, 13.0, 2500.0)),
    )
    series = utilisation_series(seen, LADDER)
    assert [(row["begin_s"], row["end_s"], row["name"], row["mode"]) for row in series["blocks"]] == [
        (0.0, 1.0, "device", "coupled"), (3.0, 5.0, "raw", "coupled"),
    ]  # fmt: skip
    first, second = series["blocks"]
    assert (first["cores_busy"], first["cores_job"], first["disk_read_bytes_per_s"]) == (1.0, 0.5, 0.0)
    assert (second["cores_busy"], second["cores_job"], second["disk_read_bytes_per_s"]) == (3.0, 2.0, 1000.0)
    assert first["gpu_busy_share"] is None
    assert series["blocks_per_row"] == 1
    assert json.loads(json.dumps(series)) == series


def test_an_arm_of_two_names_has_that_of_the_ladder():
    seen = watched(*(BlockReadings(arm, reading(at), reading(at + 1)) for at, arm in enumerate((RAW, WITHOUT))))
    assert [(row["name"], row["mode"]) for row in utilisation_series(seen, LADDER)["blocks"]] == [
        ("raw", "coupled"), ("augment", "without"),
    ]  # fmt: skip


def test_of_the_device_only_what_lies_in_the_block():
    seen = watched(
        BlockReadings(RAW, reading(0.0), reading(1.0)),
        has_gpu=True,
        gpu=[GpuSample(0.5, 0.25, {"busy_share": 0.5}), GpuSample(0.1, 0.25, {"busy_share": 1.0})],
    )
    assert utilisation_series(seen, LADDER)["blocks"][0]["gpu_busy_share"] == 0.5


def test_many_blocks_share_rows_and_a_row_of_several_experiments_has_no_name():
    blocks = [
        BlockReadings((DEVICE, RAW)[number % 2 if number < 2 else 1], reading(2.0 * number), reading(2.0 * number + 1))
        for number in range(2 * MOST_ROWS + 1)
    ]
    memory = [MemoryReading(float(second), 1000 + second, 10) for second in range(3 * MOST_ROWS)]
    series = utilisation_series(watched(*blocks, memory=memory), LADDER)
    assert series["blocks_per_row"] == 3
    assert len(series["blocks"]) <= MOST_ROWS
    assert (series["blocks"][0]["name"], series["blocks"][1]["name"]) == (None, "raw")
    assert (series["blocks"][0]["begin_s"], series["blocks"][-1]["end_s"]) == (0.0, 4.0 * MOST_ROWS + 1)
    assert len(series["memory"]) == MOST_ROWS
    times = [row["time_s"] for row in series["memory"]]
    assert times == sorted(times)
    assert times[-1] == 3 * MOST_ROWS - 1  # where it ended


def test_a_worker_that_cannot_be_read_leaves_the_job_unknown():
    seen = watched(BlockReadings(RAW, reading(0.0), reading(1.0, 1.0, 1.0)), workers=2)
    [row] = utilisation_series(seen, LADDER)["blocks"]
    assert (row["cores_busy"], row["cores_job"]) == (1.0, None)


@pytest.mark.parametrize("memory", [[], [MemoryReading(3.0, 7, None)]])
def test_nothing_measured_is_an_empty_series(memory):
    series = utilisation_series(watched(memory=memory), LADDER)
    assert series == {"blocks_per_row": 1, "blocks": [], "memory": []}

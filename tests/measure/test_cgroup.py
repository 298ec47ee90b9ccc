"""Quotas and how often they stopped the job, by made-up control groups."""

from pathlib import Path

import pytest

from bottleneck.measure.system.cgroup import Quota, memory_limit_bytes, parse_periods, quota_cores, strictest_quota


def write(root: Path, files: dict[str, str]) -> tuple[Path, Path]:
    for name, content in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(content)
    return root / "cgroup", root / "proc"


def test_the_strictest_quota_comes_with_its_group(tmp_path):
    groups = write(
        tmp_path,
        {
            "proc/self/cgroup": "0::/job/task\n",
            "cgroup/job/cpu.max": "150000 100000",
            "cgroup/job/task/cpu.max": "400000 100000",
        },
    )
    assert strictest_quota(*groups) == Quota(1.5, groups[0] / "job")


@pytest.mark.parametrize(
    ("files", "own", "cores"),
    [
        ({}, "0::/", None),
        ({"cpu.max": "max 100000"}, "0::/", None),
        ({"cpu.max": "150000 100000"}, "0::/", 1.5),
        ({"cpu.max": "400000 100000", "job/cpu.max": "200000 100000"}, "0::/job/task", 2.0),
        ({"cpu/cpu.cfs_quota_us": "-1", "cpu/cpu.cfs_period_us": "100000"}, "4:cpu,cpuacct:/", None),
        ({"cpu/job/cpu.cfs_quota_us": "50000", "cpu/job/cpu.cfs_period_us": "100000"}, "4:cpu,cpuacct:/job", 0.5),
    ],
)
def test_the_quota_of_groups_of_either_version(tmp_path, files, own, cores):
    made = {f"cgroup/{name}": text for name, text in files.items()} | {"proc/self/cgroup": own + "\n"}
    assert quota_cores(*write(tmp_path, made)) == cores


def test_without_a_limit_there_is_no_quota(tmp_path):
    groups = write(tmp_path, {"proc/self/cgroup": "0::/\n", "cgroup/cpu.max": "max 100000"})
    assert strictest_quota(*groups) is None


@pytest.mark.parametrize(
    ("text", "periods"),
    [
        ("usage_usec 5\nnr_periods 40\nnr_throttled 10\nthrottled_usec 9\n", (40, 10)),
        ("nr_periods 7\nnr_throttled 0\nthrottled_time 0", (7, 0)),
        ("usage_usec 5\n", None),
        ("nr_periods x\nnr_throttled 0", None),
        ("", None),
    ],
)
def test_periods_of_both_versions(text, periods):
    assert parse_periods(text) == periods


def test_the_lowest_limit_on_memory(tmp_path):
    groups = write(
        tmp_path,
        {
            "proc/self/cgroup": "9:memory:/box\n",
            "cgroup/memory/box/memory.limit_in_bytes": "4096",
            "cgroup/memory/memory.limit_in_bytes": "9223372036854771712",
        },
    )
    assert memory_limit_bytes(*groups) == 4096

"""Quotas and how often they stopped the job, by made-up control groups."""

from pathlib import Path

import pytest

from bottleneck.measure.cgroup import Quota, memory_limit_bytes, parse_periods, strictest_quota


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

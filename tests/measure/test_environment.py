"""The machine as the job sees it, by made-up control groups."""

import cProfile
import getpass
import json
import multiprocessing
import platform
import sys
from collections import namedtuple
from pathlib import Path

import psutil
import pytest
import torch

from bottleneck.measure.machine import limits
from bottleneck.measure.machine.environment import (
    OtherLoad,
    ProcessTimes,
    describe_environment,
    free_memory_bytes,
    switches_left_on,
)
from bottleneck.measure.machine.limits import usable_cores

GIB = 2**30


@pytest.fixture
def roomy(monkeypatch):
    """A machine with 64 cores and 256 GiB, 200 of them free."""
    monkeypatch.setattr(limits, "allowed_cpus", lambda: list(range(64)))
    Memory = namedtuple("Memory", "total available")
    monkeypatch.setattr(psutil, "virtual_memory", lambda: Memory(256 * GIB, 200 * GIB))


def system(root: Path, groups: str, files: dict[str, str]) -> tuple[Path, Path]:
    """Write a control group tree and what the kernel says about this process's place in it."""
    for name, content in {"proc/self/cgroup": groups, **files}.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(content)
    (root / "cgroup").mkdir(exist_ok=True)
    return root / "cgroup", root / "proc"


@pytest.mark.usefixtures("roomy")
@pytest.mark.parametrize(
    ("groups", "files", "expected"),
    [
        ("0::/\n", {"cgroup/cpu.max": "150000 100000\n"}, 1.5),
        ("0::/\n", {}, 64),
        ("0::/job/task\n", {"cgroup/job/cpu.max": "400000 100000", "cgroup/job/task/cpu.max": "max 100000"}, 4),
        ("0::/../outside\n", {"cgroup/cpu.max": "300000 100000"}, 3),
        (
            "4:cpu,cpuacct:/box\n",
            {"cgroup/cpu/box/cpu.cfs_quota_us": "250000", "cgroup/cpu/box/cpu.cfs_period_us": "100000"},
            2.5,
        ),
        ("garbage", {}, 64),
    ],
)
def test_cores_within_quotas(tmp_path, groups, files, expected):
    assert usable_cores(*system(tmp_path, groups, files)) == expected


@pytest.mark.usefixtures("roomy")
@pytest.mark.parametrize(
    ("groups", "files", "free_gib"),
    [
        ("0::/\n", {}, 200),
        ("0::/\n", {"cgroup/memory.max": str(8 * GIB), "cgroup/memory.current": str(3 * GIB)}, 5),
        (
            "0::/job\n",
            {
                "cgroup/job/memory.max": str(8 * GIB),
                "cgroup/job/memory.current": str(7 * GIB),
                "cgroup/job/memory.stat": f"anon 1\ninactive_file {4 * GIB}\nactive_file 7\n",
            },
            5,
        ),
        ("0::/\n", {"cgroup/memory.max": str(2 * GIB), "cgroup/memory.current": str(3 * GIB)}, 0),
        (
            "9:memory:/box\n",
            {
                "cgroup/memory/box/memory.limit_in_bytes": str(4 * GIB),
                "cgroup/memory/box/memory.usage_in_bytes": str(3 * GIB),
                "cgroup/memory/box/memory.stat": f"total_inactive_file {GIB}\n",
                "cgroup/memory/memory.limit_in_bytes": "9223372036854771712",
                "cgroup/memory/memory.usage_in_bytes": str(30 * GIB),
            },
            2,
        ),
    ],
)
def test_free_memory_within_limits(tmp_path, groups, files, free_gib):
    assert free_memory_bytes(*system(tmp_path, groups, files)) == free_gib * GIB


def test_the_description_is_json_with_all_keys():
    described = describe_environment(torch.device("cpu"))
    assert json.loads(json.dumps(described)) == described
    assert set(described) == {
        "device", "device_name", "torch", "torchvision", "numpy", "python", "platform", "cpu_model",
        "cpu_cores", "cpu_cores_available", "memory_bytes", "memory_available_bytes", "shm_bytes",
        "shm_free_bytes", "open_files_limit", "torch_threads", "start_method",
    }  # fmt: skip
    assert described["device"] == "cpu"
    assert described["torch"] == str(torch.__version__)
    assert described["torch_threads"] == torch.get_num_threads()
    assert described["memory_available_bytes"] <= described["memory_bytes"]


def test_the_description_names_no_host_user_or_home(monkeypatch):
    monkeypatch.setattr(platform, "node", lambda: "my-very-own-host")
    text = json.dumps(describe_environment("cpu"))
    assert "my-very-own-host" not in text
    assert str(Path.home()) not in text or str(Path.home()) == "/"
    assert f'"{getpass.getuser()}' not in text


def test_the_description_does_not_fix_the_start_method():
    chosen = multiprocessing.get_start_method(allow_none=True)
    multiprocessing.set_start_method(None, force=True)
    try:
        described = describe_environment("cpu")
        assert multiprocessing.get_start_method(allow_none=True) is None
        assert described["start_method"] == multiprocessing.get_all_start_methods()[0]
    finally:
        multiprocessing.set_start_method(chosen, force=True)


def test_switches_that_slow_a_training_down_are_read():
    plain = set(switches_left_on("cpu"))  # coverage may be one
    profiler, trace = cProfile.Profile(), sys.gettrace()
    with torch.autograd.set_detect_anomaly(True, check_nan=False):
        assert set(switches_left_on("cpu")) - plain == {"torch.autograd.set_detect_anomaly(True)"}
    profiler.enable()
    try:
        assert len(set(switches_left_on("cpu")) - plain) == 1
    finally:
        profiler.disable()
    torch.use_deterministic_algorithms(True)
    try:
        found = [set(switches_left_on(device)) - plain for device in ("cpu", "cuda")]
    finally:
        torch.use_deterministic_algorithms(False)
    assert found == 2 * [{"torch.use_deterministic_algorithms(True)"}]
    assert sys.gettrace() is trace


# --- the load of others -------------------------------------------------------------------------------------


def load(*moments):
    """An OtherLoad that sees the given moments: (clock, busy seconds, process times)."""
    clocks, busy, times = (iter(column) for column in zip(*moments, strict=True))
    return OtherLoad(lambda: next(busy), lambda: next(times), lambda: next(clocks))


def test_load_of_others_is_what_is_not_ours():
    other = load(
        (0.0, 100.0, ProcessTimes(1.0, 0.0, {(7, 0.0): 2.0})), (10.0, 140.0, ProcessTimes(6.0, 0.0, {(7, 0.0): 12.0}))
    )
    other.start()
    assert other.stop() == pytest.approx((40 - 5 - 10) / 10)


def test_a_while_of_much_load_is_known_by_itself():
    """Guards: 0.84 cores for the first 17 s of 100 s are 0.2 on average, which no warning told of."""
    none = ProcessTimes(0.0, 0.0, {})
    busy_s = [0.0, 14.3, 16.0, 19.6]
    other = load(*((clock_s, busy, none) for clock_s, busy in zip([0.0, 17.0, 60.0, 100.0], busy_s, strict=True)))
    other.start()
    other.lap()
    other.lap()
    assert (other.worst_s, other.worst_cores) == (17.0, pytest.approx(14.3 / 17))
    assert other.stop() == pytest.approx(0.196)


def test_children_that_begin_and_end_in_between_are_ours_also_with_a_process_id_that_is_used_again():
    start = ProcessTimes(0.0, 50.0, {(7, 0.0): 20.0, (8, 0.0): 1.0})
    # 7 has ended after 4 further seconds, 8 has used 2 more, 9 is new and has used 3, another used 5
    stop = ProcessTimes(0.0, 50.0 + 24.0 + 5.0, {(8, 0.0): 3.0, (9, 4.0): 3.0})
    assert stop.since(start) == pytest.approx(4 + 5 + 2 + 3)
    start = ProcessTimes(0.0, 0.0, {(7, 0.0): 20.0})
    stop = ProcessTimes(0.0, 21.0, {(7, 5.0): 2.0})
    assert stop.since(start) == pytest.approx(1 + 2)

"""Counters of the machine, from made-up files of the kernel's, and of processes, which may be gone or closed to us."""

import os
import sys
import time

import psutil
import pytest

from bottleneck.measure.limits import Quota, shm_usage, strictest_quota
from bottleneck.measure.machine import MachineUsage, cpu_seconds, private_bytes, thread_count

TICK_S = 1 / os.sysconf("SC_CLK_TCK")
STAT = "cpu  100 0 50 800 40 0 10 0 0 0\ncpu0 60 0 30 200 40 0 0 0 0 0\ncpu1 40 0 20 600 0 0 10 0 0 0\nintr 9\n"
DISKS = (
    "   7  0 loop0 9 9 9 9 9 9 9 9 9 9 9\n"
    " 259  0 nvme0n1 100 0 2000 5700 10 0 400 300 0 1500 6000 0 0 0 0 0 0\n"
    " 259  1 nvme0n1p1 100 0 2000 5700 10 0 400 300 0 1500 6000 0 0 0 0 0 0\n"
)
NET = (
    "Inter-|   Receive  |  Transmit\n face |bytes packets\n"
    "    lo: 500 1 0 0 0 0 0 0 500 1 0 0 0 0 0 0\n"
    "  eth0: 1000 1 0 0 0 0 0 0 300 1 0 0 0 0 0 0\n"
    "  veth9: 70 1 0 0 0 0 0 0 7 1 0 0 0 0 0 0\n"
)
FILES = {"proc/stat": STAT, "proc/diskstats": DISKS, "proc/net/dev": NET}
GROUP = {"proc/self/cgroup": "0::/\n", "cgroup/cpu.max": "150000 100000"}
NOBODY = 2**22 - 1
"""A process id that is not in use."""


@pytest.fixture
def machine(tmp_path, monkeypatch):
    """Opens a made-up machine with two CPUs."""
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    monkeypatch.setattr(psutil, "PROCFS_PATH", str(tmp_path / "proc"))

    def write(files, cpus=(0, 1), real=("block/nvme0n1", "class/net/eth0")):
        for name, text in files.items():
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / name).write_text(text)
        for name in real:
            (tmp_path / "sys" / name / "device").mkdir(parents=True, exist_ok=True)
        roots = {name: tmp_path / name for name in ("proc", "sys")}
        return MachineUsage(cpus, cgroup_root=tmp_path / "cgroup", **roots)

    return write


def test_waiting_for_a_disk_keeps_no_core_busy(machine):
    found = machine(FILES).counters()
    assert found["busy_s"] == pytest.approx(160 * TICK_S)  # without idle 800 and iowait 40
    assert found["total_s"] == pytest.approx(1000 * TICK_S)


def test_only_the_cores_that_the_job_may_use_count(machine):
    one = machine(FILES, cpus=(1,))
    assert one.cores == 1
    assert one.counters()["busy_s"] == pytest.approx(70 * TICK_S)


def test_a_disk_counts_once_and_not_its_partitions(machine):
    found = machine(FILES).counters()
    assert found["disk_read_bytes"] == 2000 * 512
    assert found["disk_write_bytes"] == 400 * 512
    assert (found["busy_s:nvme0n1"], found["queued_s:nvme0n1"]) == (1.5, 6.0)
    assert not any("loop" in key or "p1" in key for key in found)


def test_bytes_of_a_virtual_interface_are_not_counted_again(machine):
    assert machine(FILES).counters()["network_bytes"] == 1300


def test_in_a_container_all_interfaces_are_virtual_and_count(machine):
    assert machine(FILES, real=("block/nvme0n1",)).counters()["network_bytes"] == 1300 + 77


def test_the_periods_of_the_quota_are_counted(machine):
    limited = machine({**FILES, **GROUP, "cgroup/cpu.stat": "nr_periods 40\nnr_throttled 10\n"})
    assert limited.quota_cores == 1.5
    found = limited.counters()
    assert (found["periods"], found["throttled_periods"]) == (40, 10)
    assert limited.missing == ()


def test_a_quota_that_does_not_count_is_missing(machine):
    assert ["cpu.stat" in line for line in machine({**FILES, **GROUP}).missing] == [True]


def test_the_strictest_quota_comes_with_its_group(machine, tmp_path):
    quotas = {"cgroup/job/cpu.max": "150000 100000", "cgroup/job/task/cpu.max": "400000 100000"}
    machine({"proc/self/cgroup": "0::/job/task\n", **quotas})
    assert strictest_quota(tmp_path / "cgroup", tmp_path / "proc") == Quota(1.5, tmp_path / "cgroup" / "job")


@pytest.mark.parametrize(
    ("text", "periods"),
    [
        ("usage_usec 5\nnr_periods 40\nnr_throttled 10\nthrottled_usec 9\n", (40, 10)),
        ("nr_periods 7\nnr_throttled 0\nthrottled_time 0", (7, 0)),
        ("usage_usec 5\n", None),
        ("nr_periods x\nnr_throttled 0", None),
    ],
)
def test_periods_of_both_versions_of_control_groups(tmp_path, text, periods):
    (tmp_path / "cpu.stat").write_text(text)
    assert Quota(1.5, tmp_path).periods() == periods


def test_shared_memory_has_a_size_and_what_is_used_of_it(tmp_path):
    found = shm_usage(tmp_path)
    assert 0 <= found.used <= found.total
    assert shm_usage(tmp_path / "nowhere") is None


def test_without_the_kernels_files_each_is_missing_in_one_line(machine, monkeypatch):
    monkeypatch.setattr(psutil._pslinux.os.path, "exists", lambda path: False)
    nothing = machine({}, real=())
    assert nothing.counters() == {}
    assert nothing.is_rotational("sda") is None
    assert len(nothing.missing) == 3
    assert all(line.endswith(".") and "\n" not in line for line in nothing.missing)


def test_cpus_that_the_system_does_not_list_are_not_counted_as_others(machine):
    assert "busy_s" not in machine(FILES, cpus=(7,)).counters()


def test_a_system_that_counts_nothing_is_not_taken_for_an_idle_one(machine):
    silent = machine({**FILES, "proc/stat": "cpu  0 0 0 0 0 0 0 0 0 0\n"})
    assert "busy_s" not in silent.counters()
    assert any("Cores kept busy" in line for line in silent.missing)


def test_whether_a_disk_turns(machine):
    turning = machine({**FILES, "sys/block/sda/queue/rotational": "1\n"})
    assert turning.is_rotational("sda") is True
    assert turning.is_rotational("sdb") is None


# --- processes ---------------------------------------------------------------------------------------------


def test_the_cpu_time_of_another_process_is_the_one_that_it_has_itself():
    began = time.process_time()
    used_s = cpu_seconds(os.getpid())
    assert began <= used_s <= time.process_time()


def test_where_the_clock_of_a_process_is_not_to_be_had_its_times_are_read(monkeypatch):
    def refuse(clock):
        raise OSError

    monkeypatch.setattr(time, "clock_gettime", refuse)
    assert cpu_seconds(os.getpid()) == pytest.approx(time.process_time(), abs=1.0)


def test_a_process_that_is_gone_gives_nothing():
    assert cpu_seconds(NOBODY) is None
    assert thread_count(NOBODY) is None
    assert private_bytes([os.getpid(), NOBODY]) is None


def test_a_process_that_may_not_be_looked_at_gives_nothing(monkeypatch):
    class Closed(psutil.Process):
        def memory_full_info(self):
            raise psutil.AccessDenied(self.pid)

        num_threads = cpu_times = memory_full_info

    monkeypatch.setattr(psutil, "Process", Closed)
    monkeypatch.setattr(sys, "platform", "darwin")
    assert private_bytes([os.getpid()]) is None
    assert thread_count(os.getpid()) is None
    assert cpu_seconds(os.getpid()) is None


def test_memory_of_processes_is_added_up():
    one, two = private_bytes([os.getpid()]), private_bytes([os.getpid(), os.getpid()])
    assert one > 1e6
    assert two == pytest.approx(2 * one, rel=0.05)

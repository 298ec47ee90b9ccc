"""Counters of the machine, from made-up files of the kernel's."""

import os

import psutil
import pytest

from bottleneck.measure.usage.machine import KernelFile, MachineUsage, is_rotational

TICK_S = 1 / os.sysconf("SC_CLK_TCK")
STAT = "cpu  100 0 50 800 40 0 10 0 0 0\ncpu0 60 0 30 200 40 0 0 0 0 0\ncpu1 40 0 20 600 0 0 10 0 0 0\nintr 9\n"
DISKS = (
    "   7  0 loop0 9 9 9 9 9 9 9 9 9 9 9\n"
    " 259  0 nvme0n1 100 0 2000 70 10 0 400 5 0 1500 6000 0 0 0 0 0 0\n"
    " 259  1 nvme0n1p1 100 0 2000 70 10 0 400 5 0 1500 6000 0 0 0 0 0 0\n"
)
NET = (
    "Inter-|   Receive  |  Transmit\n face |bytes packets\n"
    "    lo: 500 1 0 0 0 0 0 0 500 1 0 0 0 0 0 0\n"
    "  eth0: 1000 1 0 0 0 0 0 0 300 1 0 0 0 0 0 0\n"
    "  veth9: 70 1 0 0 0 0 0 0 7 1 0 0 0 0 0 0\n"
)


@pytest.fixture
def machine(tmp_path, monkeypatch):
    """Opens a made-up machine with two CPUs; closes it at the end."""
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    monkeypatch.setattr(psutil, "PROCFS_PATH", str(tmp_path / "proc"))
    opened = []

    def write(files, cpus=(0, 1), real=("block/nvme0n1", "class/net/eth0")):
        for name, text in files.items():
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / name).write_text(text)
        for name in real:
            (tmp_path / "sys" / name / "device").mkdir(parents=True, exist_ok=True)
        roots = {name: tmp_path / name for name in ("proc", "sys", "shm")}
        opened.append(MachineUsage(cpus, cgroup_root=tmp_path / "cgroup", **roots))
        return opened[-1]

    yield write
    for each in opened:
        each.close()


FILES = {"proc/stat": STAT, "proc/diskstats": DISKS, "proc/net/dev": NET, "proc/loadavg": "1.0 2.0 3.0 5/400 999\n"}


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
    group = {
        "proc/self/cgroup": "0::/\n",
        "cgroup/cpu.max": "150000 100000",
        "cgroup/cpu.stat": "nr_periods 40\nnr_throttled 10\n",
    }
    limited = machine({**FILES, **group})
    assert limited.quota_cores == 1.5
    found = limited.counters()
    assert (found["periods"], found["throttled_periods"]) == (40, 10)
    assert limited.missing == ()


def test_a_quota_that_does_not_count_is_told(machine):
    limited = machine({**FILES, "proc/self/cgroup": "0::/\n", "cgroup/cpu.max": "150000 100000"})
    assert ["cpu.stat" in line for line in limited.missing] == [True]


def test_the_run_queue_is_told_without_the_one_that_asks(machine):
    assert machine(FILES).runnable() == 4


def test_shared_memory_has_a_size_and_what_is_used_of_it(machine, tmp_path):
    (tmp_path / "shm").mkdir()
    size, used = machine(FILES).shm_bytes()
    assert 0 <= used <= size


def test_without_the_kernels_files_each_is_told_in_one_line(machine):
    nothing = machine({}, real=())
    assert nothing.counters() == {}
    assert nothing.runnable() is None
    assert nothing.shm_bytes() is None
    assert len(nothing.missing) == 4
    assert all(line.endswith(".") and "\n" not in line for line in nothing.missing)


def test_cpus_that_the_system_does_not_list_are_not_counted_as_others(machine):
    assert "busy_s" not in machine(FILES, cpus=(7,)).counters()


def test_a_system_that_counts_nothing_is_not_taken_for_an_idle_one(machine):
    silent = machine({**FILES, "proc/stat": "cpu  0 0 0 0 0 0 0 0 0 0\n"})
    assert "busy_s" not in silent.counters()
    assert any("/proc/stat" in line for line in silent.missing)


def test_a_file_is_read_anew_each_time(tmp_path):
    (tmp_path / "stat").write_text("1")
    file = KernelFile(tmp_path / "stat")
    (tmp_path / "stat").write_text("2")
    assert file.read() == "2"
    file.close()
    file.close()
    assert file.read() == ""


def test_whether_a_disk_turns(tmp_path):
    queue = tmp_path / "block" / "sda" / "queue"
    queue.mkdir(parents=True)
    (queue / "rotational").write_text("1\n")
    assert is_rotational("sda", tmp_path) is True
    assert is_rotational("sdb", tmp_path) is None

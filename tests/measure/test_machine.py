"""Counters of the machine, of processes and of an NVIDIA device, from made-up files and bindings."""

import os
import sys
import time
from types import SimpleNamespace

import psutil
import pytest
import torch

from bottleneck.measure.machine.counters import MachineUsage, cpu_seconds, private_bytes, thread_count
from bottleneck.measure.machine.nvml import Gpu, NoGpuError

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


def test_the_periods_of_the_quota_are_counted(machine):
    limited = machine({**FILES, **GROUP, "cgroup/cpu.stat": "nr_periods 40\nnr_throttled 10\n"})
    assert limited.quota_cores == 1.5
    found = limited.counters()
    assert (found["periods"], found["throttled_periods"]) == (40, 10)
    assert limited.missing == ()


def test_without_the_kernels_files_each_is_missing_in_one_line(machine, monkeypatch):
    monkeypatch.setattr(psutil._pslinux.os.path, "exists", lambda path: False)
    nothing = machine({}, real=())
    assert nothing.counters() == {}
    assert nothing.is_rotational("sda") is None
    assert len(nothing.missing) == 3
    assert all(line.endswith(".") and "\n" not in line for line in nothing.missing)


# --- processes ---------------------------------------------------------------------------------------------


def test_the_cpu_time_of_another_process_is_the_one_that_it_has_itself():
    began = time.process_time()
    used_s = cpu_seconds(os.getpid())
    assert began <= used_s <= time.process_time()


def test_a_process_that_is_gone_gives_nothing():
    assert cpu_seconds(NOBODY) is None
    assert thread_count(NOBODY) is None
    assert private_bytes([os.getpid(), NOBODY]) is None


# --- an NVIDIA device ------------------------------------------------------------------------------------------


CUDA = torch.device("cuda:0")
ERROR_NOT_SUPPORTED, ERROR_NOT_FOUND = 3, 6


class NVMLError(Exception):
    def __init__(self, value):
        super().__init__(f"error {value}")
        self.value = value


class FakeNvml:
    """Answers as the vendor's bindings do.

    Args:
        uuid: What the device is called.
        refuses: Names of functions that say 'not supported'.
    """

    NVMLError = NVMLError
    NVML_CLOCK_SM = 1
    NVML_GPU_UTILIZATION_SAMPLES = 1

    def __init__(self, uuid="GPU-aa-bb", refuses=()):
        self.uuid, self.refuses = uuid, set(refuses)
        self.samples = []
        self.reasons = 0
        self.pids = [1]
        self.open = 0

    def __getattribute__(self, name):
        if name.startswith("nvml") and name in object.__getattribute__(self, "refuses"):

            def refuse(*arguments):
                raise NVMLError(ERROR_NOT_SUPPORTED)

            return refuse
        return object.__getattribute__(self, name)

    def nvmlInit(self):
        self.open += 1

    def nvmlShutdown(self):
        if not self.open:
            raise NVMLError(1)
        self.open -= 1

    def nvmlDeviceGetHandleByUUID(self, uuid):
        if uuid != self.uuid:
            raise NVMLError(ERROR_NOT_FOUND)
        return "by uuid"

    def nvmlDeviceGetMaxClockInfo(self, handle, kind):
        return 1980

    def nvmlDeviceGetClockInfo(self, handle, kind):
        return 1500

    def nvmlDeviceGetUtilizationRates(self, handle):
        return SimpleNamespace(gpu=40, memory=1)

    def nvmlDeviceGetSamples(self, handle, kind, since_us):
        new = [(time_us, value) for time_us, value in self.samples if time_us > since_us]
        if not new:
            raise NVMLError(ERROR_NOT_FOUND)
        return 1, [SimpleNamespace(timeStamp=t, sampleValue=SimpleNamespace(uiVal=v)) for t, v in new]

    def nvmlDeviceGetCurrentClocksEventReasons(self, handle):
        return self.reasons

    def nvmlDeviceGetComputeRunningProcesses(self, handle):
        return [SimpleNamespace(pid=pid) for pid in self.pids]


@pytest.fixture
def install(monkeypatch):
    """Puts made-up bindings instead of the vendor's, and gives torch a device with a name."""

    def put(nvml, **properties):
        given = {"uuid": "aa-bb", **properties}
        monkeypatch.setitem(sys.modules, "pynvml", nvml)
        monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: SimpleNamespace(**given))
        return nvml

    return put


def usage(wall_s=100.0, own_s=20.0):
    """With two clocks, which differ by 80 s."""
    return Gpu(CUDA, clock=lambda: own_s, wall_clock=lambda: wall_s)


def shares(watched):
    return [(each.time_s, each.window_s, each.share) for each in watched.busy_shares(watched._clock())]


def test_the_device_is_found_by_its_uuid_whatever_its_number_is(install):
    install(FakeNvml(uuid="GPU-aa-bb"))
    assert usage()._handle == "by uuid"


def test_of_a_part_of_a_device_it_is_said_what_the_driver_does_not_tell(install):
    # Guards: MIG, where neither utilisation nor clocks were shown, without a word why.
    install(FakeNvml(uuid="MIG-aa-bb", refuses={"nvmlDeviceGetClockInfo", "nvmlDeviceGetUtilizationRates"}))
    watched = usage()
    assert shares(watched) == []
    assert "(MIG), for which the driver reports neither" in watched.missing()
    install(FakeNvml())
    assert usage().missing() is None


def test_what_is_read_at_a_moment(install):
    nvml = install(FakeNvml())
    nvml.reasons = 0x04 | 0x40
    watched = usage()
    assert watched.sm_clock_hz() == 1.5e9
    assert watched.max_sm_clock_hz == 1.98e9
    assert watched.throttled() == ("power", "heat")


def test_a_share_of_time_comes_with_the_time_it_is_about(install):
    # Guards: the driver's share is about the past, which may have been another experiment.
    nvml = install(FakeNvml(refuses={"nvmlDeviceGetUtilizationRates"}))
    watched = usage(wall_s=100.0, own_s=20.0)
    nvml.samples = [(99_000_000, 10), (99_500_000, 80), (99_900_000, 90)]
    assert shares(watched) == [
        (pytest.approx(19.5), pytest.approx(0.5), 0.8),
        (pytest.approx(19.9), pytest.approx(0.4), 0.9),
    ]
    assert shares(watched) == []  # nothing new
    nvml.samples.append((100_000_000, 100))
    assert shares(watched) == [(pytest.approx(20.0), pytest.approx(0.1), 1.0)]


def test_a_driver_that_has_no_sample_is_asked_for_the_share_of_the_last_second(install):
    nvml = install(FakeNvml())
    watched = usage()
    assert shares(watched) == [(20.0, 1.0, 0.4)]
    nvml.refuses = {"nvmlDeviceGetSamples"}
    assert shares(watched) == [(20.0, 1.0, 0.4)]


def test_what_the_driver_refuses_is_left_out_and_nothing_fails(install):
    names = [name for name in dir(FakeNvml) if name.startswith("nvmlDeviceGet") and "Handle" not in name]
    install(FakeNvml(refuses=names))
    watched = usage()
    assert watched.max_sm_clock_hz is watched.sm_clock_hz() is watched.throttled() is None
    assert watched.other_processes({1}) is None
    assert shares(watched) == []


@pytest.mark.parametrize(
    ("pids", "others"), [([os.getpid()], 0), ([os.getpid(), 7, 99], 1), ([], 0), ([1], 0), ([1, 2], None)]
)
def test_processes_of_others_are_told_only_where_they_can_be_told_from_ours(install, pids, others):
    install(FakeNvml()).pids = pids
    assert usage().other_processes({os.getpid(), 7}) == others


def test_without_the_bindings_the_message_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "pynvml", None)
    with pytest.raises(NoGpuError, match=r"pip install .*nvidia"):
        usage()


def test_a_device_that_the_driver_does_not_know_is_told_and_nothing_stays_open(install):
    nvml = install(FakeNvml(uuid="GPU-other"))
    with pytest.raises(NoGpuError, match="does not know it"):
        usage()
    assert nvml.open == 0


def test_devices_of_other_makers_are_not_watched():
    with pytest.raises(NoGpuError, match="only that of NVIDIA"):
        Gpu(torch.device("mps"))

import os
import stat
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from bottleneck.doctor.machine import examine_environment
from bottleneck.doctor.machine_checks import accelerator, cores, memory, profiler, software
from bottleneck.doctor.machine_checks.cores import examine_clock, examine_load, examine_threads
from bottleneck.doctor.machine_checks.profiler import examine_ptrace, examine_py_spy

GIB = 1 << 30


def write(root, files):
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


# --- software ---------------------------------------------------------------------------------------------


def test_torch_that_cannot_be_imported_is_a_problem(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    monkeypatch.setattr(cores, "SAMPLE_S", 0.0)
    findings = {finding.subject: finding for finding in examine_environment()}
    assert findings["torch"].status == "problem"
    assert findings["torchvision"].status == "warning"
    assert findings["threads"].message.startswith("not examined")


def test_a_torchvision_that_does_not_match_is_told(monkeypatch):
    import torchvision

    def missing(*arguments):
        raise RuntimeError("operator torchvision::nms does not exist\nand more")

    monkeypatch.setattr(torchvision.ops, "nms", missing)
    finding = software.examine_torchvision()
    assert finding.status == "warning"
    assert finding.message.endswith("operator torchvision::nms does not exist")
    assert "torch torchvision" in finding.remedy


@pytest.mark.parametrize(
    ("chosen", "words"),
    [("spawn", "spawn, set in this process: the dataset is pickled"), ("fork", "workers inherit the dataset")],
)
def test_the_start_method_says_whether_datasets_are_pickled(monkeypatch, chosen, words):
    monkeypatch.setattr("multiprocessing.get_start_method", lambda allow_none=False: chosen)
    assert words in software.examine_start_method().message


def test_asking_for_the_start_method_does_not_fix_it(monkeypatch):
    def ask(allow_none=False):
        assert allow_none

    monkeypatch.setattr("multiprocessing.get_start_method", ask)
    assert "Python's default" in software.examine_start_method().message


# --- the device -------------------------------------------------------------------------------------------


@pytest.fixture
def no_accelerator(monkeypatch):
    monkeypatch.setattr("bottleneck.job.transfer.resolve_device", lambda device: torch.device("cpu"))
    monkeypatch.setattr("shutil.which", lambda name: None)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)


DRIVER = {"proc/driver/nvidia/version": "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.183.01  Sun May 12 2024\n"}


@pytest.mark.usefixtures("no_accelerator")
def test_a_machine_without_an_accelerator_is_in_order(tmp_path):
    assert accelerator.examine_device(tmp_path).status == "ok"


@pytest.mark.usefixtures("no_accelerator")
@pytest.mark.parametrize(
    ("toolkit", "visible", "device_file", "words"),
    [
        (None, None, True, "is built without CUDA"),
        ("12.8", "", True, "CUDA_VISIBLE_DEVICES='' hides it"),
        ("12.8", "-1", True, "CUDA_VISIBLE_DEVICES='-1' hides it"),
        ("12.8", None, False, "this process sees no /dev/nvidia0"),
        ("12.8", None, True, "The NVIDIA driver on your system is too old"),
    ],
)
def test_a_driver_without_a_device_is_explained(tmp_path, monkeypatch, toolkit, visible, device_file, words):
    def refuse():
        raise RuntimeError("The NVIDIA driver on your system is too old (found version 11040).\nUpdate it.")

    monkeypatch.setattr(torch.version, "cuda", toolkit)
    monkeypatch.setattr(torch.cuda, "init", refuse)
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    write(tmp_path, DRIVER | ({"dev/nvidia0": ""} if device_file else {}))
    finding = accelerator.examine_device(tmp_path)
    assert finding.status == "warning"
    assert "535.183.01" in finding.message
    assert words in finding.message
    assert finding.remedy


def test_a_device_that_cannot_compute_is_a_problem(monkeypatch):
    monkeypatch.setattr("bottleneck.job.transfer.resolve_device", lambda device: torch.device("cuda:0"))

    def fail(*shape, device):
        raise RuntimeError("CUDA error: no kernel image is available for execution on the device\nmore")

    monkeypatch.setattr(torch, "ones", fail)
    finding = accelerator.examine_device()
    assert finding.status == "problem"
    assert finding.message.endswith("no kernel image is available for execution on the device")


@pytest.mark.parametrize(("free", "status"), [(78 * GIB, "ok"), (40 * GIB, "warning")])
def test_a_device_that_others_use_is_told(monkeypatch, free, status):
    monkeypatch.setattr("bottleneck.job.transfer.resolve_device", lambda device: torch.device("cuda:0"))
    monkeypatch.setattr(torch, "ones", lambda *shape, device: torch.tensor([1.0, 1.0]))
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (free, 80 * GIB))
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "NVIDIA H100")
    finding = accelerator.examine_device()
    assert finding.status == status
    assert "NVIDIA H100" in finding.message


# --- cores ------------------------------------------------------------------------------------------------


def test_fewer_usable_cores_than_present_are_told(monkeypatch):
    monkeypatch.setattr("os.cpu_count", lambda: 64)
    monkeypatch.setattr(cores, "allowed_cores", lambda: 8)
    monkeypatch.setattr(cores, "usable_cores", lambda: 8.0)
    monkeypatch.setattr(cores, "quota_cores", lambda: None)
    assert cores.examine_cores().message == "8 of 64 usable: the affinity limits this process"
    monkeypatch.setattr(cores, "usable_cores", lambda: 1.5)
    monkeypatch.setattr(cores, "quota_cores", lambda: 1.5)
    assert cores.examine_cores().message.startswith("1.5 of 64 usable: the quota")


@pytest.mark.parametrize(("usable", "status"), [(64.0, "ok"), (4.0, "warning")])
def test_more_threads_than_usable_cores_are_told(monkeypatch, usable, status):
    monkeypatch.setattr(torch, "get_num_threads", lambda: 64)
    monkeypatch.setattr(cores, "usable_cores", lambda: usable)
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    assert examine_threads().status == status


def test_variables_that_choose_the_threads_are_shown(monkeypatch):
    monkeypatch.setenv("MKL_NUM_THREADS", "3")
    assert "MKL_NUM_THREADS=3" in examine_threads().message


@pytest.mark.parametrize(
    ("files", "status"),
    [
        ({}, "ok"),
        ({"scaling_governor": "performance", "scaling_driver": "acpi-cpufreq"}, "ok"),
        ({"scaling_governor": "powersave", "scaling_driver": "acpi-cpufreq"}, "warning"),
        ({"scaling_governor": "powersave", "scaling_driver": "intel_pstate"}, "ok"),
        (
            {
                "scaling_governor": "powersave",
                "scaling_driver": "intel_pstate",
                "energy_performance_preference": "power",
            },
            "warning",
        ),
    ],
)
def test_a_clock_that_is_kept_low_is_told(tmp_path, files, status):
    write(tmp_path, {f"cpu0/cpufreq/{name}": text + "\n" for name, text in files.items()})
    assert examine_clock(tmp_path).status == status


class Load:
    def __init__(self, cores):
        self.cores, self.calls = cores, []

    def start(self):
        self.calls.append("start")

    def stop(self):
        self.calls.append("stop")
        return self.cores


@pytest.mark.parametrize(("busy", "usable", "status"), [(0.1, 2, "ok"), (0.9, 2, "warning"), (0.9, 64, "ok")])
def test_load_by_other_processes_is_told(monkeypatch, busy, usable, status):
    monkeypatch.setattr(cores, "usable_cores", lambda: float(usable))
    load = Load(busy)
    finding = examine_load(load, load.calls.append, 3.0)
    assert load.calls == ["start", 3.0, "stop"]
    assert finding.status == status
    assert f"{busy:.1f} cores" in finding.message


# --- memory -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("free", "swapped", "status"), [(20 * GIB, 0, "ok"), (20 * GIB, 4 * GIB, "warning"), (GIB // 2, 0, "warning")]
)
def test_swap_in_use_and_little_memory_are_told(monkeypatch, free, swapped, status):
    monkeypatch.setattr("psutil.virtual_memory", lambda: SimpleNamespace(total=32 * GIB, available=free))
    monkeypatch.setattr("psutil.swap_memory", lambda: SimpleNamespace(used=swapped))
    nowhere = Path("/nowhere")  # no control groups
    assert memory.examine_memory(nowhere, nowhere).status == status


@pytest.mark.parametrize(
    ("group", "folder", "limit", "used"),
    [
        ("0::/", "", "memory.max", "memory.current"),
        ("5:memory:/", "memory", "memory.limit_in_bytes", "memory.usage_in_bytes"),
    ],
)
def test_the_limit_of_a_container_is_the_memory_that_counts(monkeypatch, tmp_path, group, folder, limit, used):
    monkeypatch.setattr("psutil.virtual_memory", lambda: SimpleNamespace(total=32 * GIB, available=20 * GIB))
    monkeypatch.setattr("psutil.swap_memory", lambda: SimpleNamespace(used=0))
    groups, proc = tmp_path / "cgroup" / folder, tmp_path / "proc" / "self"
    groups.mkdir(parents=True)
    proc.mkdir(parents=True)
    (proc / "cgroup").write_text(group + "\n")
    (groups / limit).write_text(str(4 * GIB))
    (groups / used).write_text(str(4 * GIB - (1 << 20)))
    finding = memory.examine_memory(tmp_path / "cgroup", tmp_path / "proc")
    assert finding.status == "warning"
    assert finding.message.startswith(
        "1.00 MiB free of 4.00 GiB (limit of the container; the machine has 32.0 GiB), 0 bytes of swap"
    )


@pytest.mark.parametrize(
    ("soft", "strategy", "status"),
    [(1024, "file_descriptor", "warning"), (1024, "file_system", "ok"), (65536, "file_descriptor", "ok")],
)
def test_few_descriptors_matter_where_tensors_travel_as_such(monkeypatch, soft, strategy, status):
    monkeypatch.setattr("resource.getrlimit", lambda which: (soft, 65536))
    monkeypatch.setattr("torch.multiprocessing.get_sharing_strategy", lambda: strategy)
    finding = memory.examine_open_files()
    assert finding.status == status
    assert finding.remedy == ("ulimit -n 65536" if status == "warning" else "")


def test_little_shared_memory_is_told(monkeypatch):
    sizes = SimpleNamespace(f_blocks=64, f_bavail=60, f_frsize=1 << 20)
    monkeypatch.setattr("os.statvfs", lambda path: sizes)
    finding = memory.examine_shared_memory()
    assert finding.status == "warning"
    assert "--shm-size" in finding.remedy


# --- profiling --------------------------------------------------------------------------------------------


def fake_py_spy(folder, monkeypatch, script):
    program = folder / "py-spy"
    program.write_text("#!/bin/sh\n" + script)
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setattr(profiler, "find_py_spy", lambda: str(program))


@pytest.mark.parametrize(
    ("script", "limit_s", "words"),
    [
        ("echo 'Error: Permission denied (os error 13)' >&2; exit 1", 20.0, "may not look into the process"),
        ("echo 'Error: Failed to find python version' >&2; exit 1", 20.0, "Failed to find python version"),
        ("exec sleep 60", 0.2, "did not look into a process within 0.2 seconds"),
    ],
)
def test_a_py_spy_that_cannot_look_into_a_process_is_told(tmp_path, monkeypatch, script, limit_s, words):
    fake_py_spy(tmp_path, monkeypatch, script)
    finding = examine_py_spy(limit_s)
    assert finding.status == "warning"
    assert words in finding.message


def test_a_py_spy_that_succeeds_is_in_order(tmp_path, monkeypatch):
    fake_py_spy(tmp_path, monkeypatch, "exit 0")
    assert examine_py_spy().status == "ok"


def test_a_missing_py_spy_is_told(monkeypatch):
    monkeypatch.setattr(profiler, "find_py_spy", lambda: None)
    assert examine_py_spy().remedy == "pip install py-spy"


CAPABLE, INCAPABLE = "CapEff:\t000001ffffffffff\n", "CapEff:\t00000000a80425fb\nSeccomp:\t2\n"


@pytest.mark.parametrize(
    ("scope", "status_file", "status"),
    [
        ("0", INCAPABLE, "ok"),
        ("1", INCAPABLE, "ok"),
        ("2", INCAPABLE, "warning"),
        ("2", CAPABLE, "ok"),
        ("3", CAPABLE, "warning"),
        (None, INCAPABLE, "ok"),
    ],
)
def test_the_ptrace_scope(tmp_path, scope, status_file, status):
    write(tmp_path, {"proc/self/status": status_file})
    if scope is not None:
        write(tmp_path, {"proc/sys/kernel/yama/ptrace_scope": scope + "\n"})
    finding = examine_ptrace(tmp_path, "Linux")
    assert finding.status == status
    assert ("seccomp" in finding.message) == (status_file is INCAPABLE)
    assert bool(finding.remedy) == (status == "warning")


def test_on_macos_profiles_need_root(tmp_path):
    assert "sudo" in examine_ptrace(tmp_path, "Darwin").remedy


def test_without_capabilities_told_the_user_decides(tmp_path, monkeypatch):
    write(tmp_path, {"proc/sys/kernel/yama/ptrace_scope": "2\n"})
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert examine_ptrace(tmp_path, "Linux").status == "warning"
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert examine_ptrace(tmp_path, "Linux").status == "ok"

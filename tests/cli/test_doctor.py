import stat
import subprocess
import sys
from types import SimpleNamespace

import pytest
import torch

from bottleneck import doctor
from bottleneck.cli.main import render_findings, run
from bottleneck.doctor import Finding

GIB = 1 << 30
HERE = "bottleneck.measure.machine.environment."


# --- the command ------------------------------------------------------------------------------------------


def test_this_environment_is_examined(capsys):
    assert run(["doctor"]) == 0
    text = capsys.readouterr().out
    for subject in doctor.EXAMINATIONS:
        assert f"  {subject} " in text
    assert "matches torch" in text
    assert "not examined" not in text
    assert max(map(len, text.splitlines())) <= 80


def test_a_target_is_refused_with_the_command_that_checks_it(monkeypatch, capsys):
    monkeypatch.setattr(doctor, "EXAMINATIONS", {})
    assert run(["doctor", "job.py:build"]) == 2
    assert "`bottleneck diagnose job.py:build --quick`" in capsys.readouterr().err


@pytest.mark.parametrize(("worst", "status"), [("ok", 0), ("warning", 0), ("problem", 3)])
def test_a_problem_is_the_exit_status(monkeypatch, worst, status, capsys):
    found = {"a": lambda: Finding("ok", "fine"), "b": lambda: Finding(worst, "too small")}
    monkeypatch.setattr(doctor, "EXAMINATIONS", found)
    assert run(["doctor"]) == status
    assert ("PROBLEM  b  too small" in capsys.readouterr().out) == (status == 3)


def test_findings_have_their_remedies_below():
    findings = {"python": Finding("ok", "3.11"), "cores": Finding("warning", "few", "buy " * 20)}
    lines = render_findings(findings).splitlines()
    assert lines[:2] == ["ok       python  3.11", "warning  cores   few"]
    assert lines[2].startswith(" " * 17 + "-> buy")
    assert lines[3].startswith(" " * 20 + "buy")


def test_text_of_a_package_cannot_act_on_the_terminal():
    text = render_findings({"torch": Finding("problem", "bad\x1b[31m red\r\nline\x07")})
    assert text == "PROBLEM  torch  bad red line\n"


def test_without_the_packages_that_it_looks_for_it_says_so_and_does_not_fail():
    code = """
import sys

class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("psutil", "torch", "torchvision", "numpy", "scipy", "PIL", "py_spy"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Missing())
from bottleneck.cli.main import run
print("status", run(["doctor"]))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert "status 3" in done.stdout, done.stdout + done.stderr
    assert "pip install torch" in done.stdout
    assert "threads        not examined" in done.stdout
    assert "import name" in done.stdout


# --- the machine ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("toolkit", "visible", "device_file", "words"),
    [
        (None, None, True, "is built without CUDA"),
        ("12.8", "-1", True, "CUDA_VISIBLE_DEVICES='-1' hides it"),
        ("12.8", None, False, "this process sees no /dev/nvidia0"),
        ("12.8", None, True, "The NVIDIA driver on your system is too old"),
    ],
)
def test_a_driver_without_a_device_is_explained(tmp_path, monkeypatch, toolkit, visible, device_file, words):
    def refuse():
        raise RuntimeError("The NVIDIA driver on your system is too old (found version 11040).\nUpdate it.")

    monkeypatch.setattr("bottleneck.job.step.resolve_device", lambda device: torch.device("cpu"))
    monkeypatch.setattr("shutil.which", lambda name: None)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert doctor.examine_device(tmp_path).status == "ok"  # no driver
    monkeypatch.setattr(torch.version, "cuda", toolkit)
    monkeypatch.setattr(torch.cuda, "init", refuse)
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    for name in ["proc/driver/nvidia/version", *(["dev/nvidia0"] if device_file else [])]:
        (tmp_path / name).parent.mkdir(parents=True)
        (tmp_path / name).touch()
    finding = doctor.examine_device(tmp_path)
    assert finding.status == "warning"
    assert words in finding.message
    assert finding.remedy


@pytest.mark.parametrize(
    ("threads", "strategy", "limit", "shm", "status"),
    [(2, "file_system", 1024, 8 * GIB, "ok"), (64, "file_descriptor", 1024, 1 << 26, "warning")],
)
def test_threads_shared_memory_and_descriptors(monkeypatch, threads, strategy, limit, shm, status):
    monkeypatch.setattr(doctor, "usable_cores", lambda: 4.0)
    monkeypatch.setattr(torch, "get_num_threads", lambda: threads)
    monkeypatch.setattr(doctor, "shm_usage", lambda: SimpleNamespace(total=shm, free=shm))
    monkeypatch.setattr(HERE + "open_files_limit", lambda: limit)
    monkeypatch.setattr("torch.multiprocessing.get_sharing_strategy", lambda: strategy)
    found = [doctor.examine_threads(), doctor.examine_shared_memory(), doctor.examine_open_files()]
    assert [finding.status for finding in found] == [status] * 3


@pytest.mark.parametrize(
    ("script", "limit_s", "status", "words"),
    [
        ("exit 0", 20.0, "ok", "sees into a child process"),
        ("echo 'Error: Permission denied (os error 13)' >&2; exit 1", 20.0, "warning", "may not look into the process"),
        ("exec sleep 60", 0.2, "warning", "did not look into a process within 0.2 seconds"),
    ],
)
def test_py_spy_is_tried_on_a_process(tmp_path, monkeypatch, script, limit_s, status, words):
    program = tmp_path / "py-spy"
    program.write_text("#!/bin/sh\n" + script)
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setattr(doctor, "find_py_spy", lambda: str(program))
    finding = doctor.examine_py_spy(limit_s)
    assert finding.status == status
    assert words in finding.message

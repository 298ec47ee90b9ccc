import sys

import pytest

from bottleneck.cli import checkup
from bottleneck.cli.checkup import Finding, cgroup_quota_cores, examine_environment, examine_ptrace
from bottleneck.cli.doctor import render_findings
from bottleneck.cli.main import run


def test_this_environment_is_examined(capsys):
    assert run(["doctor"]) == 0
    text = capsys.readouterr().out
    for subject in ("torch", "torchvision", "cores", "shared memory", "open files", "py-spy", "import name"):
        assert subject in text
    assert "matches torch" in text


@pytest.mark.filterwarnings("ignore:This DataLoader will create")
def test_a_target_is_examined_too(folder, capsys):
    (folder / "job_doctor.py").write_text(
        "def good(): return {'dataset': [1, 2], 'train_step': print, 'num_workers': 10_000}\n"
        "def bad(): return {'dataset': [1, 2]}\n"
    )
    assert run(["doctor", "job_doctor:good"]) == 0
    assert "10000 workers share" in capsys.readouterr().out
    assert run(["doctor", "job_doctor:bad"]) == 2
    assert "PROBLEM  target" in capsys.readouterr().out


def test_torch_that_cannot_be_imported_is_a_problem(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    findings = {finding.subject: finding for finding in examine_environment()}
    assert findings["torch"].status == "problem"
    assert findings["torchvision"].status == "warning"


def test_a_torchvision_that_does_not_match_is_told(monkeypatch):
    import torchvision

    def missing(*arguments):
        raise RuntimeError("operator torchvision::nms does not exist\nand more")

    monkeypatch.setattr(torchvision.ops, "nms", missing)
    finding = checkup.examine_torchvision()
    assert finding.status == "warning"
    assert finding.message.endswith("operator torchvision::nms does not exist")
    assert "torch torchvision" in finding.remedy


@pytest.mark.parametrize(
    ("files", "own", "cores"),
    [
        ({}, "0::/", None),
        ({"cpu.max": "max 100000"}, "0::/", None),
        ({"cpu.max": "150000 100000"}, "0::/", 1.5),
        ({"cpu.max": "400000 100000", "job/cpu.max": "200000 100000"}, "0::/job/task", 2.0),
        ({"cpu/cpu.cfs_quota_us": "-1", "cpu/cpu.cfs_period_us": "100000"}, "4:cpu,cpuacct:/", None),
        (
            {"cpu/job/cpu.cfs_quota_us": "50000", "cpu/job/cpu.cfs_period_us": "100000"},
            "4:cpu,cpuacct:/job",
            0.5,
        ),
    ],
)
def test_the_quota_of_the_control_groups(tmp_path, files, own, cores):
    root = tmp_path / "cgroup"
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    (tmp_path / "self").mkdir()
    (tmp_path / "self" / "cgroup").write_text(own + "\n")
    assert cgroup_quota_cores(root, tmp_path) == cores


def test_fewer_usable_cores_than_present_are_told(monkeypatch):
    monkeypatch.setattr("os.cpu_count", lambda: 64)
    monkeypatch.setattr(checkup, "allowed_cores", lambda: 8)
    monkeypatch.setattr(checkup, "cgroup_quota_cores", lambda: None)
    assert checkup.examine_cores().message == "8 of 64 usable: the affinity limits this process"
    monkeypatch.setattr(checkup, "cgroup_quota_cores", lambda: 1.5)
    assert checkup.examine_cores().message.startswith("1.5 of 64 usable: the quota")


@pytest.mark.parametrize(("scope", "user", "status"), [("0", 1000, "ok"), ("1", 1000, "ok"), ("2", 1000, "warning")])
def test_the_ptrace_scope(tmp_path, monkeypatch, scope, user, status):
    monkeypatch.setattr("os.geteuid", lambda: user)
    path = tmp_path / "scope"
    path.write_text(scope + "\n")
    assert examine_ptrace(path).status == status


def test_findings_have_their_remedies_below():
    findings = [Finding("ok", "python", "3.11"), Finding("warning", "cores", "few", "buy some")]
    assert render_findings(findings) == ("ok       python  3.11\nwarning  cores   few\n                 -> buy some\n")

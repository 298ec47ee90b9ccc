"""The shell steps of the worked GitHub workflow, run outside of GitHub on two small checkouts."""

import json
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

FOLDER = Path(__file__).parents[2] / "examples" / "ci"
JOB = """
import time
import torch
from torch.utils.data import Dataset

class Numbers(Dataset):
    def __init__(self):
        self.transform = self.augment

    def __len__(self):
        return 10_000

    def augment(self, value):
        time.sleep({augment_s})
        return value

    def __getitem__(self, index):
        return self.transform(torch.zeros(8))

def build():
    return dict(dataset=Numbers(), train_step=lambda batch: time.sleep(0.004), device="cpu", batch_size=4,
                num_workers=1)
"""
FAKE_GH = """#!{python}
import json, os, pathlib, sys
folder = pathlib.Path({folder!r})
arguments = sys.argv[1:]
with open(folder / "calls.jsonl", "a") as calls:
    calls.write(json.dumps(arguments) + "\\n")
if any("/pulls/" in argument for argument in arguments):
    print((folder / "head-sha").read_text())
elif "--paginate" in arguments:
    print((folder / "comment-id").read_text(), end="")
"""


def steps(workflow):
    """The shell steps of a workflow's only job, by name."""
    document = yaml.safe_load((FOLDER / workflow).read_text())
    (job,) = document["jobs"].values()
    return {step["name"]: step["run"] for step in job["steps"] if "run" in step}


def run(script, folder, **environment):
    """Run a step as GitHub does: by bash, which stops at the first failure."""
    bin_of_this_python = str(Path(sys.executable).parent)
    path = os.pathsep.join([str(folder / "bin"), bin_of_this_python, os.environ["PATH"]])
    return subprocess.run(
        ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", script],
        cwd=folder, env={**os.environ, "PATH": path, **environment}, capture_output=True, text=True, timeout=120,
        check=False,
    )  # fmt: skip


@pytest.fixture
def checkouts(tmp_path):
    """A base, and a head whose augmentation takes four times as long."""
    for name, augment_s in (("base", 0.002), ("head", 0.008)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "myjob.py").write_text(JOB.format(augment_s=augment_s))
    (tmp_path / "bin").mkdir()
    command = tmp_path / "bin" / "bottleneck"  # with a budget that a test can afford
    command.write_text(
        f"#!{sys.executable}\n"
        "import sys\n"
        "from bottleneck.cli.main import main\n"
        "import os\n"
        "sys.argv += ['--budget', os.environ['BUDGET']] if sys.argv[1] == 'diagnose' else []\n"
        "main()\n"
    )
    command.chmod(command.stat().st_mode | stat.S_IXUSR)
    return tmp_path


def fake_gh(folder, *, comment="", head_sha="abc"):
    path = folder / "bin" / "gh"
    path.write_text(FAKE_GH.format(python=sys.executable, folder=str(folder)))
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    (folder / "comment-id").write_text(comment)
    (folder / "head-sha").write_text(head_sha)


def calls(folder):
    return [json.loads(line) for line in (folder / "calls.jsonl").read_text().splitlines()]


SLOWER = "### 🔴 myjob.py:build is "
COMMON = {"TARGET": "myjob.py:build", "ALLOWED_LOSS": "5%", "PR_NUMBER": "17", "BUDGET": "3s"}


@pytest.mark.integration
@pytest.mark.sleeps
def test_a_pull_request_that_loses_throughput_is_measured_reported_commented_and_stopped(checkouts):
    found = steps("bottleneck.yml")
    summary = checkouts / "summary.md"
    for budget in ("3s", "10s", "25s"):  # at length where others keep the machine busy
        measured = run(found["Measure"], checkouts, **{**COMMON, "BUDGET": budget})
        assert measured.returncode == 0, measured.stderr
        summary.unlink(missing_ok=True)
        reported = run(found["Report"], checkouts, GITHUB_STEP_SUMMARY=str(summary), **COMMON)
        assert reported.returncode == 0, reported.stderr
        report = (checkouts / "out" / "comment.md").read_text()
        if report.startswith(SLOWER):
            break
    assert report.startswith(SLOWER)
    assert " slower (" in report.splitlines()[0]
    assert report.strip() in summary.read_text()
    assert (checkouts / "out" / "report.html").exists()
    gate = run(found["Gate"], checkouts, **COMMON)
    assert gate.returncode == 1, gate.stderr
    assert "Gate failed" in gate.stderr

    script = steps("bottleneck-comment.yml")["Comment"]
    whose = {"REPOSITORY": "octo/job", "HEAD_SHA": "abc", "GH_TOKEN": "x"}
    fake_gh(checkouts)
    first = run(script, checkouts, **whose)
    assert first.returncode == 0, first.stderr
    assert calls(checkouts)[-1][:4] == ["api", "--method", "POST", "repos/octo/job/issues/17/comments"]
    assert (checkouts / "body.md").read_text().startswith(f"<!-- bottleneck -->\n{SLOWER}")
    fake_gh(checkouts, comment="99\n")
    assert run(script, checkouts, **whose).returncode == 0
    assert calls(checkouts)[-1][:4] == ["api", "--method", "PATCH", "repos/octo/job/issues/comments/99"]
    fake_gh(checkouts, head_sha="another")  # an artifact that names somebody else's pull request
    before = len(calls(checkouts))
    assert run(script, checkouts, **whose).returncode == 1
    assert len(calls(checkouts)) == before + 1  # it has asked, and posted nothing


def test_the_measuring_workflow_needs_no_right_to_write():
    # Guards: code of a fork runs in it.
    document = yaml.safe_load((FOLDER / "bottleneck.yml").read_text())
    assert document["permissions"] == {"contents": "read"}
    assert document[True] == "pull_request"  # YAML 1.1 reads `on` as true
    assert "secrets." not in (FOLDER / "bottleneck.yml").read_text()

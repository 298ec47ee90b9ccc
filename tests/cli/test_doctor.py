import subprocess
import sys

import pytest

from bottleneck.cli.doctor import render_findings
from bottleneck.cli.main import run
from bottleneck.doctor.finding import Finding, first_line


def test_this_environment_is_examined(capsys):
    assert run(["doctor"]) == 0
    text = capsys.readouterr().out
    for subject in (
        *("torch", "torchvision", "device", "cores", "threads", "clock", "load", "memory", "shared memory"),
        *("open files", "start method", "py-spy", "ptrace", "import name"),
    ):
        assert f"  {subject} " in text
    assert "matches torch" in text
    assert max(map(len, text.splitlines())) <= 80


@pytest.mark.parametrize(("limit", "words"), [("soon", "is not a duration"), ("0", "must be more than 0")])
def test_a_limit_that_is_none_is_refused(limit, words, capsys):
    assert run(["doctor", "job:build", "--limit", limit]) == 2
    assert words in capsys.readouterr().err


@pytest.mark.usefixtures("no_machine")
def test_the_worst_finding_about_a_target_is_the_exit_status(monkeypatch, capsys):
    found = [Finding("warning", "workers", "many"), Finding("problem", "sample", "it raised")]
    seen = []
    monkeypatch.setattr(
        "bottleneck.doctor.job_checks.target.examine_target", lambda *given: seen.append(given) or found
    )
    assert run(["doctor", "job:build", "--limit", "1m30s"]) == 3
    assert seen == [("job:build", 90.0)]
    assert "PROBLEM  sample" in capsys.readouterr().out


def test_findings_have_their_remedies_below():
    findings = [Finding("ok", "python", "3.11"), Finding("warning", "cores", "few", "buy some")]
    assert render_findings(findings) == ("ok       python  3.11\nwarning  cores   few\n                 -> buy some\n")


def test_long_findings_are_wrapped_below_their_own_column():
    text = render_findings([Finding("problem", "target", "word " * 30, "do this " * 20)])
    lines = text.splitlines()
    assert max(map(len, lines)) <= 80
    assert lines[1].startswith(" " * 17 + "word")
    first = next(number for number, line in enumerate(lines) if "->" in line)
    assert lines[first].startswith(" " * 17 + "-> do")
    assert lines[first + 1].startswith(" " * 20 + "this")


def test_text_of_the_users_cannot_act_on_the_terminal():
    text = render_findings([Finding("problem", "target", "bad\x1b[31m red\r\nline\x07")])
    assert text == "PROBLEM  target  bad red line\n"


def test_an_error_without_a_message_is_told_by_its_type():
    assert first_line(KeyError()) == "KeyError"
    assert first_line(ValueError("a\nb")) == "a"


def test_without_the_packages_that_it_looks_for_it_says_so_and_does_not_fail():
    # Guards: an import at the top of a module that only a target needs.
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
    assert "status 2" in done.stdout or "status 3" in done.stdout, done.stdout + done.stderr
    assert "pip install torch" in done.stdout
    assert "import name" in done.stdout

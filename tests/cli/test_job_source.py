"""The target and the commit of what was diagnosed are in the result, and nothing is said outside of git."""

import subprocess
from dataclasses import dataclass

from bottleneck.cli.job_source import current_commit, tuned_from, with_source
from bottleneck.results.records import Result
from bottleneck.results.tuning import TuningResult
from tests.support.results_factory import make_result
from tests.support.tuning_factory import make_tuning


@dataclass(frozen=True)
class Attempted:
    diagnosis: Result


@dataclass(frozen=True)
class Tuned:
    tuning: TuningResult


def git(*arguments):
    own = ("-c", "user.name=a", "-c", "user.email=a@example.org")
    return subprocess.run(["git", *own, *arguments], check=True, capture_output=True, text=True).stdout.strip()


def test_a_commit_says_whether_files_differ_from_it(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    assert current_commit() is None
    (tmp_path / "train.py").write_text("a = 1\n")
    git("init", "-q")
    assert current_commit() is None  # nothing is committed
    git("add", "-A")
    git("commit", "-q", "-m", "one")
    assert current_commit() == git("rev-parse", "--short", "HEAD")
    (tmp_path / "train.py").write_text("a = 2\n")
    assert current_commit() == git("rev-parse", "--short", "HEAD") + "+"


def test_without_git_there_is_no_commit(monkeypatch):
    monkeypatch.setenv("PATH", "")
    assert current_commit() is None


def test_target_and_commit_are_in_the_result():
    attempt = Attempted(make_result())
    assert with_source(attempt, "train.py:build", "1a2b3c4").diagnosis.pipeline["commit"] == "1a2b3c4"
    assert "commit" not in with_source(attempt, "train.py:build", None).diagnosis.pipeline


def test_they_are_in_a_tuning_and_in_its_diagnoses():
    tuning = tuned_from(Tuned(make_tuning()), "job.py:build", "1a2b3c4").tuning
    for found in (tuning, tuning.before, tuning.after):
        assert (found.pipeline["target"], found.pipeline["commit"]) == ("job.py:build", "1a2b3c4")
    assert tuned_from(Tuned(make_tuning(before=None, after=None)), "job.py:build", None).tuning.after is None

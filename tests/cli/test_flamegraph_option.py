"""`--flamegraph DIR` and `diagnose(flamegraph=DIR)`: refused early, handed on, written; one whole run at the end."""

import json
from textwrap import dedent
from xml.etree import ElementTree

import pytest

import bottleneck
from bottleneck.cli.main import run
from bottleneck.errors import UsageError
from bottleneck.measure import session
from bottleneck.measure.options import ProfileOptions
from bottleneck.measure.session import Outcome
from tests.support.results_factory import make_result

FILES = {"worker-0.svg": "<svg/>", "worker-0.speedscope.json": "{}"}
JOB = {"dataset": [1, 2, 3, 4], "train_step": print, "batch_size": 2}


def test_the_files_are_written_and_said_so(asked, tmp_path, capsys):
    asked.answer(make_result(), profile_files=FILES)
    assert run(["diagnose", "job:build", "--flamegraph", "fg", "--native", "--idle", "--rate", "50"]) == 0
    assert asked.options[0].profile == ProfileOptions(rate_hz=50, native=True, idle=True)
    assert {path.name: path.read_text() for path in (tmp_path / "fg").iterdir()} == FILES
    assert "Wrote fg/worker-0.svg\n" in capsys.readouterr().err


def test_nothing_is_profiled_unless_asked_for(asked):
    assert run(["diagnose", "job:build"]) == 0
    assert asked.options[0].profile is None


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--flamegraph", "job.py"], "Cannot write the flamegraphs to 'job.py': it is a file"),
        (["--flamegraph", "job.py/sub"], "'job.py' on the way is a file"),
        (["--flamegraph", ""], "the name is empty"),
        (["--flamegraph", "/proc/no/such"], "Cannot write the flamegraphs to '/proc/no/such'"),
        (["--native"], "--native is for flamegraphs"),
        (["--idle"], "--idle is for flamegraphs"),
        (["--rate", "100"], "--rate is for flamegraphs"),
        (["--flamegraph", "fg", "--rate", "0"], "--rate"),
    ],
)
def test_what_cannot_work_is_refused_before_the_job_is_loaded(asked, tmp_path, arguments, words, capsys):
    assert run(["diagnose", "job:build", *arguments]) == 2
    error = capsys.readouterr().err
    assert words in error
    assert error.count("\n") == 1
    assert asked.calls == []
    assert not (tmp_path / "fg").exists()


def test_from_python_a_bad_folder_is_refused_first(monkeypatch, tmp_path):
    monkeypatch.setattr(session, "measure", lambda *_, **__: pytest.fail("it was measured"))
    (tmp_path / "file").touch()
    with pytest.raises(UsageError, match="it is a file"):
        bottleneck.diagnose(JOB, flamegraph=tmp_path / "file")


def test_from_python_files_are_written(monkeypatch, tmp_path):
    outcome = Outcome(make_result(), None, FILES)
    monkeypatch.setattr(session, "measure", lambda *_, **__: outcome)
    bottleneck.diagnose(JOB, flamegraph=tmp_path / "fg")
    assert {path.name: path.read_text() for path in (tmp_path / "fg").iterdir()} == FILES


WHOLE_JOB = """
    import time
    import torch
    from torch.utils.data import Dataset
    from bottleneck import Pipeline

    def hot_resize(image):
        until = time.perf_counter() + 0.008
        while time.perf_counter() < until:
            sum(range(200))
        return image

    class Photos(Dataset):
        def __init__(self):
            self.transform = hot_resize
        def __len__(self):
            return 10_000
        def __getitem__(self, index):
            return self.transform(torch.full((4,), float(index)))

    def build():
        return Pipeline(dataset=Photos(), train_step=lambda batch: time.sleep(0.01), batch_size=4, num_workers=1,
                        device="cpu")
"""


@pytest.mark.integration
def test_a_whole_diagnosis_with_flamegraphs(folder, capfd):
    (folder / "whole.py").write_text(dedent(WHOLE_JOB))
    arguments = ["diagnose", "whole.py:build", "--budget", "5s", "--flamegraph", "fg", "--json", "r.json"]
    arguments += ["--html", "r.html", "--verbose"]
    assert run(arguments) == 0
    assert {path.name for path in (folder / "fg").iterdir()} == set(FILES)
    ElementTree.parse(folder / "fg" / "worker-0.svg")
    assert "stage:augment" in (folder / "fg" / "worker-0.svg").read_text()
    timeline = json.loads((folder / "fg" / "worker-0.speedscope.json").read_text())
    assert "stage:augment" in {frame["name"] for frame in timeline["shared"]["frames"]}
    profile = json.loads((folder / "r.json").read_text())["evidence"]["profile"]
    top = profile["functions"][0]
    assert top["function"].rpartition(".")[2] == "hot_resize"
    assert top["file"] == "whole.py"
    assert top["stage"] == "augment"
    assert top["own_share"] > 0.6
    assert "hot_resize" in capfd.readouterr().out
    page = (folder / "r.html").read_text()
    assert "hot_resize" in page
    assert run(["report", "r.json", "--format", "html", "-o", "again.html"]) == 0
    assert (folder / "again.html").read_text() == page

"""`--trace DIR` and `diagnose(trace=DIR)`: refused early, handed on, written; one whole run at the end."""

import gzip
import json
from textwrap import dedent

import pytest

import bottleneck
from bottleneck.cli.main import run
from bottleneck.errors import UsageError
from bottleneck.measure import session
from bottleneck.measure.session import Outcome
from bottleneck.results.files import TraceFile
from tests.support.results_factory import make_result

TRACES = tuple(TraceFile(name, gzip.compress(b'{"traceEvents": []}')) for name in ("device", "raw"))
FILES = {"device.json.gz", "raw.json.gz"}
JOB = {"dataset": [1, 2, 3, 4], "train_step": print, "batch_size": 2}


def test_the_files_are_written_and_said_so(asked, tmp_path, capsys):
    asked.answer(make_result(), traces=TRACES)
    assert run(["diagnose", "job:build", "--trace", "made/tr"]) == 0
    assert asked.options[0].trace
    assert {path.name for path in (tmp_path / "made" / "tr").iterdir()} == FILES
    assert json.loads(gzip.decompress((tmp_path / "made" / "tr" / "raw.json.gz").read_bytes())) == {"traceEvents": []}
    assert "Wrote made/tr/device.json.gz\n" in capsys.readouterr().err


def test_nothing_is_traced_unless_asked_for(asked):
    assert run(["diagnose", "job:build"]) == 0
    assert not asked.options[0].trace


@pytest.mark.parametrize(
    ("folder_name", "words"),
    [
        ("job.py", "Cannot write the traces to 'job.py': it is a file"),
        ("", "the name is empty"),
        ("/proc/no/such", "Cannot write the traces to '/proc/no/such'"),
    ],
)
def test_a_folder_that_cannot_be_written_is_refused_before_the_job_is_loaded(asked, folder_name, words, capsys):
    assert run(["diagnose", "job:build", "--trace", folder_name]) == 2
    error = capsys.readouterr().err
    assert words in error
    assert error.count("\n") == 1
    assert asked.calls == []


def test_from_python_a_bad_folder_is_refused_first(monkeypatch, tmp_path):
    monkeypatch.setattr(session, "measure", lambda *_, **__: pytest.fail("it was measured"))
    (tmp_path / "file").touch()
    with pytest.raises(UsageError, match="it is a file"):
        bottleneck.diagnose(JOB, trace=tmp_path / "file")


def test_from_python_files_are_written(monkeypatch, tmp_path):
    outcome = Outcome(make_result(), traces=TRACES)
    monkeypatch.setattr(session, "measure", lambda *_, **__: outcome)
    bottleneck.diagnose(JOB, trace=tmp_path / "tr")
    assert {path.name for path in (tmp_path / "tr").iterdir()} == FILES


WHOLE_JOB = """
    import torch
    from torch import nn
    from torch.utils.data import Dataset
    from bottleneck import Pipeline

    class Numbers(Dataset):
        def __len__(self):
            return 10_000
        def __getitem__(self, index):
            return torch.full((64,), float(index)), index % 4

    def build():
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 4))
        return Pipeline(dataset=Numbers(), model=model, loss_fn=nn.CrossEntropyLoss(),
                        optimizer=torch.optim.SGD(model.parameters(), lr=0.01), batch_size=32, device="cpu")
"""


@pytest.mark.integration
def test_a_whole_diagnosis_with_traces(folder, capfd):
    (folder / "whole.py").write_text(dedent(WHOLE_JOB))
    assert run(["diagnose", "whole.py:build", "--budget", "2s", "--trace", "tr", "--json", "r.json", "--verbose"]) == 0
    evidence = json.loads((folder / "r.json").read_text())["evidence"]
    assert list(evidence["trace"]) == ["device", "raw"]
    assert evidence["trace"]["device"]["products_s_per_step"] > 0
    assert list(evidence["model"]["computed_dtypes"]) == ["float32"]
    for name in FILES:
        events = json.loads(gzip.decompress((folder / "tr" / name).read_bytes()))["traceEvents"]
        assert {"ProfilerStep#0", "aten::addmm", "Optimizer.step#SGD.step"} <= {event.get("name") for event in events}
    out, err = capfd.readouterr()
    assert "operators in device" in out
    assert "profiler_start" not in err, "what Kineto prints is not for the user"

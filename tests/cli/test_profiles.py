"""`--flamegraph`, `--trace` and `--cold`, and the same from Python: refused early, handed on, written."""

import gzip
import json
from textwrap import dedent
from xml.etree import ElementTree

import pytest

from bottleneck.cli.main import run
from bottleneck.measure.options import ProfileOptions
from tests.support.results_factory import make_result

TRACES = {f"{name}.json.gz": gzip.compress(b'{"traceEvents": []}') for name in ("device", "raw")}
PROFILES = {"worker-0.svg": "<svg/>", "worker-0.speedscope.json": "{}"}
NAMES = {"fg": set(PROFILES), "tr": {"device.json.gz", "raw.json.gz"}}


def written(folder):
    return {name: {path.name for path in (folder / name).iterdir()} for name in NAMES}


def test_the_files_are_written_and_said_so(asked, tmp_path, capsys):
    asked.answer(make_result(), profile_files=PROFILES, traces=TRACES)
    assert (
        run(["diagnose", "job:build", "--flamegraph", "fg", "--native", "--rate", "50", "--trace", "tr", "--cold"]) == 0
    )
    assert run(["diagnose", "job:build"]) == 0
    with_files, without = asked.options
    assert with_files.profile == ProfileOptions(rate_hz=50, native=True)
    assert (with_files.trace, with_files.cold) == (True, True)
    assert (without.profile, without.trace, without.cold) == (None, False, False)
    assert written(tmp_path) == NAMES
    shown = capsys.readouterr().err
    assert "Wrote fg/worker-0.svg\n" in shown
    assert "Wrote tr/device.json.gz\n" in shown


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--flamegraph", "job.py"], "Cannot write the flamegraphs to 'job.py': it is a file"),
        (["--trace", "job.py/sub"], "to 'job.py/sub': not a directory"),
        (["--flamegraph", ""], "the name is empty"),
        (["--trace", "/proc/no/such"], "Cannot write the traces to '/proc/no/such'"),
        (["--json", "same", "--flamegraph", "same"], "Cannot write 'same': it is the name of a folder"),
        (["--native"], "--native needs flamegraphs"),
        (["--rate", "100"], "--rate needs flamegraphs"),
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


WHOLE_JOB = """
    import time
    import torch
    from torch import nn
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
            return self.transform(torch.full((64,), float(index))), index % 4

    def build():
        model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 4))
        return Pipeline(dataset=Photos(), model=model, loss_fn=nn.CrossEntropyLoss(),
                        optimizer=torch.optim.SGD(model.parameters(), lr=0.01), batch_size=4, num_workers=1,
                        device="cpu")
"""


@pytest.mark.integration
def test_a_whole_diagnosis_with_flamegraphs_and_traces(folder, capfd):
    (folder / "whole.py").write_text(dedent(WHOLE_JOB))
    arguments = ["diagnose", "whole.py:build", "--budget", "5s", "--flamegraph", "fg", "--trace", "tr"]
    arguments += ["--json", "r.json", "--html", "r.html", "--verbose"]
    assert run(arguments) == 0
    assert written(folder) == NAMES
    ElementTree.parse(folder / "fg" / "worker-0.svg")
    assert "stage:augment" in (folder / "fg" / "worker-0.svg").read_text()
    timeline = json.loads((folder / "fg" / "worker-0.speedscope.json").read_text())
    assert "stage:augment" in {frame["name"] for frame in timeline["shared"]["frames"]}
    evidence = json.loads((folder / "r.json").read_text())["evidence"]
    top = evidence["profile"]["functions"][0]
    assert (top["function"].rpartition(".")[2], top["file"], top["stage"]) == ("hot_resize", "whole.py", "augment")
    assert top["own_share"] > 0.6
    assert list(evidence["trace"]) == ["device", "raw"]
    assert evidence["trace"]["device"]["products_s_per_step"] > 0
    assert list(evidence["model"]["computed_dtypes"]) == ["float32"]
    for name in NAMES["tr"]:
        events = json.loads(gzip.decompress((folder / "tr" / name).read_bytes()))["traceEvents"]
        assert {"ProfilerStep#0", "aten::addmm", "Optimizer.step#SGD.step"} <= {event.get("name") for event in events}
    out, err = capfd.readouterr()
    assert "hot_resize" in out
    assert "operators in device" in out
    assert "profiler_start" not in err, "what Kineto prints is not for the user"
    page = (folder / "r.html").read_text()
    assert "hot_resize" in page
    assert run(["report", "r.json", "--format", "html", "-o", "again.html"]) == 0
    assert (folder / "again.html").read_text() == page

"""`bottleneck run` on the training loops of other packages, each unchanged: it takes what they do with a loader."""

import os

import pytest

from tests.script.test_run import SCRIPTS, diagnosed, named

pytestmark = [pytest.mark.integration, pytest.mark.frameworks]

QUIET = {**os.environ, "HF_HUB_OFFLINE": "1", "TRANSFORMERS_VERBOSITY": "error"}
UNREAD = {"with_graphs.py": ["._store.ptr"]}  # where each graph of a batch begins


@pytest.mark.parametrize(
    "arguments",
    [
        ("with_lightning.py",),
        ("with_trainer.py", "1"),
        ("with_trainer.py", "4"),
        ("with_accelerate.py",),
        ("with_timm.py",),
        ("with_stateful.py",),
        ("with_graphs.py",),
    ],
    ids="-".join,
)
def test_the_loop_of_a_framework_is_diagnosed(tmp_path, arguments):
    scratch = tmp_path / "t"
    scratch.mkdir()
    done, result = diagnosed(tmp_path, SCRIPTS / arguments[0], *arguments[1:], env={**QUIET, "TMPDIR": str(scratch)})
    assert done.returncode == 0, done.stderr
    assert named(result) == ("input_bound", "augment")
    assert result["evidence"]["payload"]["unread"] == UNREAD.get(arguments[0], [])
    assert "the end" not in done.stderr
    assert not list(scratch.glob("pymp-*"))  # of a worker that was killed, such as those that timm's loader keeps
    assert not {warning["id"] for warning in result["warnings"]} & {
        "several-loaders",
        "loop-breaks-off",
        "input-in-loop",
    }


@pytest.mark.parametrize("name", ["ultralytics", "fastai"])
def test_a_framework_with_a_loader_of_its_own_is_diagnosed(tmp_path, name):
    # Guards: neither comes by DataLoader.__iter__; both validate and save after each epoch.
    environment = {**QUIET, "YOLO_CONFIG_DIR": str(tmp_path)}
    script = SCRIPTS / f"with_{name}.py"
    done, result = diagnosed(tmp_path, script, budgets=("20s", "60s"), env=environment)
    assert done.returncode == 0, done.stderr
    assert result["verdict"]["state"] == "input_bound"
    assert result["pipeline"]["dataset"] == {"ultralytics": "YOLODataset", "fastai": "Datasets"}[name]
    assert result["pipeline"]["persistent_workers"] == (name == "ultralytics")
    assert "the end" not in done.stderr
    assert "several-loaders" not in {warning["id"] for warning in result["warnings"]}

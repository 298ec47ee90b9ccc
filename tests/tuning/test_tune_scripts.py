"""Tuning inside a loop without a description: its outcome, its end, and restored state."""

import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

import bottleneck
from bottleneck.cli.main import run
from bottleneck.errors import MeasurementError, UsageError
from bottleneck.measure.options import Loop
from bottleneck.results.tuning import TuningResult
from bottleneck.tuner import script, tune
from bottleneck.tuner.lane import LoopEnded, open_lane
from tests.script.test_diagnosing import Training
from tests.support.tuning_factory import make_tuning
from tests.tuning.jobs import pictures_job
from tests.tuning.world import QUICKER, World, job, tuning_of

SCRIPTS = Path(__file__).parent.parent / "script" / "scripts"


@pytest.fixture
def tuned(monkeypatch):
    """Tunes in five steps, of what the test says."""
    seen = SimpleNamespace(steps=0, changes=None, loop=None)

    def attempt(pipeline, changes, _budget_s, _progress, loop, _seconds):
        seen.changes, seen.loop = changes, loop
        failure = None
        try:
            for _ in range(5):
                pipeline.train_step([torch.zeros(2)])
                seen.steps += 1
        except (MeasurementError, KeyboardInterrupt) as error:
            failure = error
        return tune.TuningAttempt(tune.Tuning(**vars(make_tuning())), failure)

    monkeypatch.setattr(script, "attempt_tuning", attempt)
    return seen


def test_the_body_is_left_when_the_tuning_is_done_and_then_goes_on_as_before(tuned):
    training = Training()
    with bottleneck.tuning(try_=["num_workers"]) as run:
        training.run()
    assert (training.steps, training.after, tuned.steps) == (8, False, 5)
    assert [change.name for change in tuned.changes] == ["num_workers"]
    assert tuned.loop.copies_itself
    assert tuned.loop.own_s_per_batch is None  # an epoch of 20 batches is too short to watch
    assert run.tuning.ladder
    assert training.scheduler.last_epoch == 3
    training.run()
    assert (training.steps, training.after, tuned.steps) == (28, True, 5)


def test_a_body_that_ends_first_leaves_what_was_found(tuned):
    with pytest.raises(MeasurementError, match="ended before the measurement") as caught, bottleneck.tuning() as run:
        Training(most=5).run()
    assert caught.value.tuning is run.tuning
    with pytest.raises(UsageError, match="There is no change 'num_worker'"), bottleneck.tuning(try_=["num_worker"]):
        pytest.fail("it began")


def test_a_loop_without_a_data_loader_has_nothing_to_vary():
    parameter = torch.nn.Parameter(torch.zeros(1))
    parameter.grad = torch.ones(1)
    optimizer = torch.optim.SGD([parameter], lr=0.1)
    with pytest.raises(UsageError, match="other than PyTorch's DataLoader"), bottleneck.tuning():
        for _ in bottleneck.watch([torch.zeros(2)] * 20):
            optimizer.step()


def test_what_the_loop_itself_does_is_not_changed():
    session = tuning_of(World(), ["num_workers", "tf32", "batch_size", "autocast", QUICKER], in_script=True)
    session.run()
    reasons = {trial.setting: trial.reason for trial in session.found.trials if trial.outcome == "not_applicable"}
    assert {name for name, why in reasons.items() if "script's loop" in why} == {"batch_size", "autocast", QUICKER.name}
    assert "CUDA" in reasons["tf32"]
    assert any(trial.outcome == "kept" and "num_workers" in trial.setting for trial in session.found.trials)


@pytest.mark.parametrize("whole_epochs", [False, True], ids=["running", "whole epochs"])
def test_a_loop_that_has_ended_is_no_failed_change(whole_epochs):
    def ended(_batch):
        raise MeasurementError("The script ended.")

    with pytest.raises(LoopEnded) as caught:
        open_lane(pictures_job(num_workers=0).replace(train_step=ended), 60.0, whole_epochs=whole_epochs)
    assert "The script ended" in str(caught.value.__cause__)


def test_an_attempt_whose_loop_ends_gives_what_was_found(monkeypatch):
    def ends(*_, **__):
        raise LoopEnded from MeasurementError("The script ended.")

    monkeypatch.setattr(tune.TuningSession, "run", ends)
    attempt = tune.attempt_tuning(job(), (QUICKER,), 60.0)
    assert "The script ended" in str(attempt.failure)
    assert isinstance(attempt.tuning, TuningResult)


def test_a_loader_that_only_keeps_its_workers_is_tried_as_one_of_pytorchs(monkeypatch):
    keeping = type("InfiniteDataLoader", (torch.utils.data.DataLoader,), {"__iter__": lambda self: iter(())})
    loader, seen = keeping(job().dataset, batch_size=4, num_workers=1, shuffle=True), []
    given = bottleneck.Pipeline.from_loader(loader, train_step=print, model=job().model)
    monkeypatch.setattr(tune.TuningSession, "run", lambda session: seen.append(session._given))
    tune.attempt_tuning(given, (QUICKER,), 60.0, loop=Loop())
    plain = seen[0].make_loader()
    assert (type(plain), plain.persistent_workers) == (torch.utils.data.DataLoader, True)
    assert (plain.sampler, plain.batch_size, seen[0].model) == (loader.sampler, 4, given.model)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "No script or target is given"),
        (["train.py:build", "more"], "A target takes no arguments, but got 'more'"),
        (["missing.py", "--epochs", "3"], "There is no script 'missing.py'"),
        (["missing.py:build", "--budget", "1m"], "missing.py"),
        (["train"], "train"),
    ],
)
def test_a_path_is_a_script_and_one_with_a_colon_a_target(arguments, said, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert run(["tune", *arguments]) == 2
    assert said in capsys.readouterr().err


# --- real scripts -------------------------------------------------------------------------------------------


def tuned_script(folder, *arguments, budget):
    command = [sys.executable, "-m", "bottleneck", "tune", "--budget", budget, "--json", "tuning.json", *arguments]
    environment = {**os.environ, "HF_HUB_OFFLINE": "1", "TRANSFORMERS_VERBOSITY": "error"}
    done = subprocess.run(
        list(map(str, command)), cwd=folder, capture_output=True, text=True, timeout=300, check=False, env=environment
    )
    result = folder / "tuning.json"
    return done, json.loads(result.read_text()) if result.exists() else None


SHORT_OF_WORKERS = f"""
import os, sys
os.makedirs("outputs/now", exist_ok=True)
os.chdir("outputs/now")
sys.path.insert(0, {str(SCRIPTS)!r})
from jobs import Photos, Slow, make_model, train_on
from torch.utils.data import DataLoader
loader = DataLoader(Photos(640, Slow()), batch_size=16, shuffle=True, num_workers=1)
model, optimizer = make_model()
for _ in range(1000):
    for images, labels in loader:
        train_on(model, optimizer, images, labels)
open("trained", "w").close()
"""


@pytest.mark.integration
@pytest.mark.sleeps
def test_a_script_short_of_workers_gets_them_as_a_patch_and_is_stopped(tmp_path):
    # One worker takes 40 ms for a batch, a step 10. It changes the directory, as Hydra does.
    (tmp_path / "train.py").write_text(SHORT_OF_WORKERS)
    for budget in ("50s", "2m"):
        options = ("--try", "num_workers", "--patch", "tuned.diff")
        done, result = tuned_script(tmp_path, *options, "train.py", budget=budget)
        if result is not None and result["gain"] is not None:
            break
    assert done.returncode == 0, done.stderr
    assert result["gain"]["low"] > 1.5
    assert result["pipeline"]["source"] == "script"
    [line] = result["lines"]
    assert not (tmp_path / "outputs" / "now" / "trained").exists()
    subprocess.run(["git", "apply", "tuned.diff"], cwd=tmp_path, check=True)
    kept = line.partition("..., ")[2].rstrip(")")
    assert (tmp_path / "train.py").read_text() == SHORT_OF_WORKERS.replace("num_workers=1", kept)


@pytest.mark.integration
def test_a_script_that_ends_first_leaves_what_was_found(tmp_path):
    done, result = tuned_script(tmp_path, SCRIPTS / "short.py", "150", "raise", budget="1m")
    assert done.returncode == 3
    assert "the loss is not finite" in done.stderr
    assert "cleaned up" in done.stderr
    assert result is None or result["sentence"].startswith("The tuning ended early")


@pytest.mark.integration
@pytest.mark.frameworks
@pytest.mark.parametrize(
    "arguments", [("with_lightning.py",), ("with_trainer.py", "4"), ("with_accelerate.py",), ("with_stateful.py",)]
)
def test_the_loop_of_a_framework_is_tuned(tmp_path, arguments):
    name, *rest = arguments
    done, result = tuned_script(tmp_path, "--try", "num_workers", SCRIPTS / name, *rest, budget="2m")
    assert done.returncode == 0, done.stderr
    assert result["gain"]["low"] > 1.2
    assert "the end" not in done.stderr

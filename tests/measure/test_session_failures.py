"""The end of a diagnosis whose job fails; the leak check sees that nothing is left of it."""

import itertools
import multiprocessing.resource_tracker
import os
import re
import signal
import time

import pytest
from torch.utils.data import default_collate

from bottleneck.errors import MeasurementError
from bottleneck.loader.switched import SwitchedLoader
from bottleneck.measure.options import MeasureOptions
from tests.loader.staged_datasets import LargePickles
from tests.support.datasets import Photos
from tests.support.sessions import (
    PRECISE,
    UNDECIDED,
    blocks,
    invented_time,
    known_helpers,
    pipeline_of,
    run,
    run_simulated,
    warnings_of,
    workers_left,
)

known = pytest.fixture(autouse=True)(known_helpers)


# --- failures ----------------------------------------------------------------------------------------------


class Breaks(Photos):
    """Fails at some index, or anywhere, in one way or another; what was loaded before is fine."""

    def __init__(self, how, at=400):
        self.how, self.at = how, at

    def load(self, index):
        if self.at in (index, None):
            self.how()
        return super().load(index)


def refuse():
    raise ValueError("truncated file")


class Leave(BaseException):
    pass


def leave():
    raise Leave("at once")


def die(number=signal.SIGKILL):
    signal.signal(number, signal.SIG_DFL) if number != signal.SIGKILL else None
    os.kill(os.getpid(), number)


def check_failed(outcome, message, *, measured=True):
    assert isinstance(outcome.failure, MeasurementError), outcome.failure
    assert message in outcome.failure.message
    assert "\n" not in outcome.failure.message
    (told,) = [warning for warning in outcome.measurement.warnings if warning.id == "ended-early"]
    assert message in told.message
    if measured:
        assert any(found for found in blocks(outcome).values())
    assert not workers_left()
    return outcome.failure


@pytest.mark.integration
@pytest.mark.parametrize("workers", [0, 2])
def test_a_sample_that_raises(workers):
    # Any diagnosis gets there and ends; a short budget would be over before that where workers are slow to start.
    patient = MeasureOptions(budget_s=60.0)
    outcome = run(pipeline_of(Breaks(refuse), num_workers=workers), patient, judge=lambda _: UNDECIDED)
    failure = check_failed(outcome, "The dataset raised at index 400", measured=False)
    assert ("worker" in failure.message) == (workers > 0)
    assert failure.details.count("ValueError: truncated file") == 1
    assert "in refuse" in failure.details


@pytest.mark.integration
@pytest.mark.parametrize("workers", [0, 2])
def test_a_sample_that_raises_what_is_no_exception(workers, capfd):
    outcome = run(pipeline_of(Breaks(leave, at=0), num_workers=workers), judge=lambda _: UNDECIDED)
    failure = check_failed(outcome, "The dataset raised at index 0", measured=False)
    assert failure.message.endswith("Leave: at once")
    assert "in leave" in failure.details
    assert "Traceback" not in capfd.readouterr().err


@pytest.mark.integration
@pytest.mark.parametrize("kind", [Leave, SystemExit, ValueError])
def test_workers_that_cannot_be_started(kind):
    class Refuses(Photos):
        def __getstate__(self):
            raise kind("at once")

    multiprocessing.resource_tracker.ensure_running()  # stays by design
    known_helpers()
    pipeline = pipeline_of(Refuses(), num_workers=1, multiprocessing_context="spawn")
    failure = check_failed(run(pipeline, judge=lambda _: UNDECIDED), "The loader raised", measured=False)
    assert failure.message.endswith(f"{kind.__name__}: at once")


def test_what_was_measured_is_kept_when_code_of_the_jobs_leaves_the_measuring():
    def on_progress(update):
        if update.round == 3:
            leave()

    outcome = run_simulated(0.01, MeasureOptions(budget_s=20.0), on_progress=on_progress)
    assert "in leave" in check_failed(outcome, "The job's own code raised").details


def test_a_collate_function_that_raises_while_samples_are_recorded_names_them():
    calls = itertools.count()

    def collate(samples):
        if next(calls):
            raise ValueError(f"cannot stack {[index for _, index in samples]}")
        return default_collate(samples)

    outcome = run(pipeline_of(collate_fn=collate, num_workers=0), clock=invented_time())
    failure = check_failed(outcome, "The collate function raised", measured=False)
    found = re.search(r"for the samples (\[.+\]) in the main process, while samples .*stack (\[.+\])", failure.message)
    assert found, failure.message
    assert found[1] == found[2]


@pytest.mark.integration
@pytest.mark.parametrize("at_once", [True, False])
def test_a_step_that_raises(at_once):
    rounds = itertools.count()
    judged = [at_once]

    def step(batch):
        if judged[0]:
            raise ValueError("shapes differ")

    def judge(measurement):
        judged[0] = next(rounds) > 0
        return UNDECIDED

    # It ends when it raises; a short budget would be over before that on a machine that is slow to start workers.
    outcome = run(pipeline_of(train_step=step), MeasureOptions(budget_s=60.0), judge)
    failure = check_failed(outcome, "The train step raised", measured=not at_once)
    assert "shapes differ" in failure.message
    assert failure.details.count("ValueError: shapes differ") == 1


@pytest.mark.integration
@pytest.mark.parametrize("fails", [False, True])
def test_large_pickles_in_flight_make_no_noise_and_no_failure_of_their_own(fails, capfd):
    # Guards: torch 2.15 workers abort at exit ('terminate called without an active exception'), and the loader's
    # destructor prints a traceback.
    measuring = [False]

    def step(batch):
        if fails and measuring[0]:
            raise ValueError("shapes differ")

    def judge(measurement):
        measuring[0] = True
        return PRECISE if not fails else UNDECIDED

    loader = {"collate_fn": list, "num_workers": 2, "prefetch_factor": 4}
    outcome = run(pipeline_of(LargePickles(), train_step=step, **loader), judge=judge)
    if fails:
        check_failed(outcome, "The train step raised")
    else:
        assert outcome.failure is None
    assert capfd.readouterr().err == ""


@pytest.mark.integration
@pytest.mark.parametrize(
    ("number", "remedy"),
    [(signal.SIGKILL, "out-of-memory"), (signal.SIGSEGV, "PYTHONFAULTHANDLER=1"), (signal.SIGBUS, "--shm-size")],
)
def test_a_worker_that_is_killed(number, remedy, tmp_path):
    measured = tmp_path / "measured"

    def on_progress(update):
        if update.phase == "measuring":
            measured.touch()

    dataset = Breaks(lambda: die(number) if measured.exists() else None, at=None)
    outcome = run(pipeline_of(dataset, num_workers=2), judge=lambda _: UNDECIDED, on_progress=on_progress)
    failure = check_failed(outcome, f"A worker died of {number.name}, experiment", measured=False)
    assert remedy in failure.remedy


@pytest.mark.integration
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSEGV])
def test_a_worker_that_is_killed_while_stages_are_timed_costs_what_is_known_of_them(number, tmp_path):
    timed = tmp_path / "timed"

    def on_progress(update):
        timed.touch() if update.phase == "observing" else timed.unlink(missing_ok=True)

    dataset = Breaks(lambda: die(number) if timed.exists() else None, at=None)
    outcome = run(pipeline_of(dataset, num_workers=2), on_progress=on_progress)
    assert outcome.failure is None
    assert all(blocks(outcome)[name] for name in ("device", "raw"))
    told = warnings_of(outcome)["not-observed"]
    assert told.startswith(f"A worker died of {number.name}, while the stages of a sample were timed")
    assert outcome.measurement.evidence.epoch_gap.seconds is not None
    assert not workers_left()


@pytest.mark.integration
@pytest.mark.parametrize("where", ["step", "judge", "progress"])
def test_a_worker_that_is_killed_while_we_are_elsewhere(where):
    # PyTorch's handler of SIGCHLD raises wherever the main process happens to be.
    judged, killed = [], []

    def kill(*_):
        if (where == "judge" or judged) and not killed:
            killed.append(True)
            for child in workers_left():
                child.kill()
            time.sleep(0.5)  # interrupted by the handler
        return UNDECIDED

    def judge(measurement):
        judged.append(measurement)
        return UNDECIDED

    options = {"judge": kill if where == "judge" else judge}
    if where == "progress":
        options["on_progress"] = kill
    outcome = run(pipeline_of(train_step=kill if where == "step" else lambda batch: None), **options)
    check_failed(outcome, "A worker died")


@pytest.mark.integration
@pytest.mark.parametrize("phase", ["starting workers", "recording", "measuring"])
def test_ctrl_c_keeps_what_was_measured(phase):
    seen = itertools.count()

    def interrupt(update):
        if update.phase == phase and (phase != "measuring" or next(seen) == 8):
            raise KeyboardInterrupt

    # Little of the budget is used: it has room for that many blocks on a slow machine too.
    outcome = run(pipeline_of(), MeasureOptions(budget_s=15.0), judge=lambda _: UNDECIDED, on_progress=interrupt)
    assert isinstance(outcome.failure, KeyboardInterrupt)
    assert any(blocks(outcome).values()) == (phase == "measuring")
    assert "It was interrupted" in next(w.message for w in outcome.measurement.warnings if w.id == "ended-early")
    assert not workers_left()
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_ctrl_c_while_workers_are_stopped_is_not_lost(monkeypatch):
    close = SwitchedLoader.close
    closed = []

    def interrupted(loader):
        signal.raise_signal(signal.SIGINT)
        close(loader)
        closed.append(loader)

    monkeypatch.setattr(SwitchedLoader, "close", interrupted)
    outcome = run_simulated(0.01, MeasureOptions(), judge=lambda _: PRECISE)
    assert closed
    assert isinstance(outcome.failure, KeyboardInterrupt)
    assert any(blocks(outcome).values())


@pytest.mark.integration
def test_a_fault_of_ours_passes_through_and_leaves_nothing_behind():
    def judge(_):
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        run(pipeline_of(), judge=judge)
    assert not workers_left()

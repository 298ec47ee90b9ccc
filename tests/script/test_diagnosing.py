"""The end of a diagnosis of a script or a body, and its result; the measuring is invented."""

import contextlib
import copy
import sys
from collections import UserDict
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

import bottleneck
from bottleneck.api import Attempt
from bottleneck.errors import MeasurementError, PipelineError, UsageError
from bottleneck.measure.ladder import Ladder, Rung
from bottleneck.measure.options import MeasureOptions
from bottleneck.measure.training import make_training
from bottleneck.script import diagnosing
from bottleneck.script.diagnosing import Diagnosing
from tests.script.scripts.jobs import make_loader, make_model, train_on
from tests.support.clock import FakeClock
from tests.support.results_factory import make_result


class Stopped(BaseException):
    """Stands for the end of the process."""


def train(diagnosis, most=20, scheduler=None):
    """A script that goes on until it is stopped, or has had `most` batches."""
    model = torch.nn.Linear(1, 1, bias=False)
    parameter = model.weight
    optimizer = torch.optim.SGD([parameter], lr=0.1)
    planned = None if scheduler is None else scheduler(optimizer)
    with diagnosis:
        for _, _ in zip(range(most), DataLoader(TensorDataset(torch.zeros(40)), batch_size=2), strict=False):
            parameter.grad = torch.ones(1, 1)
            optimizer.step()
            if planned is not None:
                planned.step()


@pytest.fixture
def measured(monkeypatch):
    """Measures five steps, of what the test says."""
    seen = SimpleNamespace(steps=0, pipeline=None, loop=None, error=None, batch=None)
    seen.batch = {"x": torch.zeros(2), "y": torch.zeros(1)}

    def attempt(pipeline, options, _progress):
        seen.pipeline, seen.loop = pipeline, options.loop
        if seen.error is not None:
            raise seen.error
        failure = None
        try:
            for _ in range(5):
                pipeline.train_step(seen.batch)
                seen.steps += 1
        except (MeasurementError, KeyboardInterrupt) as error:
            failure = error
        return Attempt(make_result(pipeline={"source": options.source}), failure)

    monkeypatch.setattr(diagnosing, "attempt_diagnosis", attempt)
    return seen


def stopping(outcomes):
    def finish(outcome):
        outcomes.append(outcome)
        raise Stopped

    return Diagnosing(MeasureOptions(), finish)


def one_cycle(optimizer):
    return torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=0.1, total_steps=4)


@pytest.mark.parametrize("scheduler", [None, one_cycle])
def test_the_loop_is_the_train_step_and_ends_with_the_measuring(measured, scheduler):
    outcomes = []
    with pytest.raises(Stopped):
        train(stopping(outcomes), scheduler=scheduler)
    [outcome] = outcomes
    attempt = outcome()
    assert (measured.steps, attempt.failure, attempt.diagnosis.pipeline["source"]) == (5, None, "script")
    # What goes back in each round.
    assert isinstance(measured.pipeline.optimizer, torch.optim.SGD)
    assert isinstance(measured.pipeline.model, torch.nn.Linear)


def train_on_meta(diagnosis, use, batches=None):
    """A script that trains on an accelerator, for which 'meta' stands."""
    model = torch.nn.Linear(1, 1, device="meta")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with diagnosis:
        for batch in batches or DataLoader(Named(), batch_size=2):
            use(batch)
            model.weight.grad = torch.ones_like(model.weight)
            optimizer.step()


class Named(torch.utils.data.Dataset):
    def __len__(self):
        return 40

    def __getitem__(self, index):
        return {"x": torch.zeros(3), "y": index}


def diagnosed_on_meta(use, **more):
    outcomes = []
    with pytest.raises(Stopped):
        train_on_meta(stopping(outcomes), use, **more)
    warnings = outcomes[0]().diagnosis.warnings
    return [warning.message for warning in warnings if warning.id == "copy-not-seen"]


def test_a_loop_copies_its_batches_itself_and_what_it_copies_is_served_on_the_device(measured):
    assert diagnosed_on_meta(lambda batch: batch["x"].to("meta")) == []
    assert (measured.loop.copies_itself, measured.loop.not_copied) == (True, "")
    moved = measured.pipeline.to_device(measured.batch, torch.device("meta"))
    assert [part.device.type for part in moved.values()] == ["meta", "cpu"]


def reads_and_moves(batch):
    batch["x"].numpy()
    batch["x"].to("meta")


@pytest.mark.parametrize(
    ("use", "said"), [(lambda batch: None, "was not seen to move any part"), (reads_and_moves, "also uses on the CPU")]
)
def test_where_no_copy_can_be_left_out_a_warning_says_why(measured, use, said):
    [message] = diagnosed_on_meta(use)
    assert said in message
    assert said in measured.loop.not_copied
    assert measured.pipeline.to_device(measured.batch, torch.device("meta")) is measured.batch


@pytest.mark.parametrize("kind", [dict, UserDict])
def test_what_a_loop_puts_into_its_batch_is_not_put_into_one_that_is_cached(measured, kind):
    # Guards: `host` served from the device, because the loop has moved the cached batch.
    measured.batch = kind(x=torch.zeros(2, 3), y=torch.zeros(2))

    def moves_in_place(batch):
        for name, part in batch.items():
            batch[name] = part.to("meta")

    batches = bottleneck.watch([kind(x=torch.zeros(2, 3), y=torch.zeros(2)) for _ in range(20)])
    diagnosed_on_meta(moves_in_place, batches=batches)
    assert [part.device.type for part in measured.batch.values()] == ["cpu", "cpu"]


@pytest.mark.parametrize(("first", "named"), [(1, False), (4, True)])
def test_what_is_saved_once_the_diagnosis_feeds_the_loop_is_listed(measured, tmp_path, monkeypatch, first, named):
    monkeypatch.chdir(tmp_path)
    original, outcomes, steps = torch.save, [], iter(range(1, 100))

    def save_once(_batch):
        if next(steps) == first:
            torch.save({}, f"checkpoint-{first}.pt")

    with pytest.raises(Stopped):
        train_on_meta(stopping(outcomes), save_once)
    warnings = {warning.id: warning.message for warning in outcomes[0]().diagnosis.warnings}
    assert ("saved-while-measured" in warnings) == named
    assert not named or "checkpoint-4.pt" in warnings["saved-while-measured"]
    assert Path(f"checkpoint-{first}.pt").exists()
    assert torch.save is original


@pytest.mark.usefixtures("measured")
def test_batches_that_are_taken_now_in_one_thread_and_now_in_another_are_refused():
    # Guards: asyncio's default executor, which starts a thread where none is idle yet.
    outcomes, parameter = [], torch.nn.Parameter(torch.zeros(1))
    optimizer = torch.optim.SGD([parameter], lr=0.1)
    with stopping(outcomes), ThreadPoolExecutor(1) as one, ThreadPoolExecutor(1) as other:
        batches = iter(DataLoader(TensorDataset(torch.zeros(40)), batch_size=2))
        for _ in range(5):
            one.submit(next, batches).result()
            parameter.grad = torch.ones(1)
            optimizer.step()
        with pytest.raises(Stopped):
            other.submit(next, batches).result()
    with pytest.raises(MeasurementError, match="in several threads"):
        outcomes[0]()


def test_a_job_that_cannot_be_measured_ends_the_script_too(measured):
    measured.error = PipelineError("No.")
    outcomes = []
    with pytest.raises(Stopped):
        train(stopping(outcomes))
    with pytest.raises(PipelineError, match="No"):
        outcomes[0]()


def test_a_loop_that_cannot_be_fed_goes_on_with_its_own_batches_where_it_can_be_watched(measured):
    measured.error = PipelineError("No.")
    diagnosis, seen = stopping([]), []
    diagnosis._notice = SimpleNamespace(can_look_inside=True, begin_again=lambda: seen.append("again"))
    model = torch.nn.Linear(1, 1, bias=False)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with diagnosis:
        for (rows,) in DataLoader(TensorDataset(torch.arange(40.0)), batch_size=2):
            seen.append(rows.tolist())
            model.weight.grad = torch.ones(1, 1)
            optimizer.step()
    # The pass in which it was refused begins again: what had been taken from it is gone.
    own = [[float(n), n + 1.0] for n in range(0, 40, 2)]
    assert [one for one in seen if one == "again"] == ["again"]
    assert seen[seen.index("again") + 1 :] == own
    with pytest.raises(PipelineError, match="No"):
        diagnosis.end(None)


def test_a_loop_whose_batches_several_threads_take_goes_on_where_it_can_be_watched(measured):
    diagnosis, seen = stopping([]), []
    diagnosis._notice = SimpleNamespace(can_look_inside=True, begin_again=lambda: seen.append("again"))
    parameter = torch.nn.Parameter(torch.zeros(1))
    optimizer = torch.optim.SGD([parameter], lr=0.1)
    with diagnosis, ThreadPoolExecutor(1) as one, ThreadPoolExecutor(1) as other:
        batches = iter(DataLoader(TensorDataset(torch.zeros(40)), batch_size=2))
        for taker in (*[one] * 5, *[other, one] * 4):
            taker.submit(next, batches).result()
            parameter.grad = torch.ones(1)
            optimizer.step()
    assert seen == ["again"]


@pytest.mark.parametrize(
    ("error", "said"), [(None, "ended before the measurement"), (OSError("disk full"), "raised while .* disk full")]
)
def test_a_script_that_ends_first_ends_the_measuring(measured, error, said):
    diagnosis = Diagnosing(MeasureOptions(), pytest.fail)
    train(diagnosis, most=4)
    attempt = diagnosis.end(error)
    assert measured.steps == 0  # the loop was still in the first one
    with pytest.raises(MeasurementError, match=said):
        raise attempt.failure


class Scaled:
    """A script with a gradient scaler, whose gradients are too large for float16 from some batch on."""

    def __init__(self, overflows_from=4, most=1000, checks=False):
        self.overflows_from, self.most, self.checks = overflows_from, most, checks
        self.loader = DataLoader(TensorDataset(torch.ones(80)), batch_size=2)
        self.scales = []

    def run(self):
        model = torch.nn.Linear(1, 1, bias=False)
        optimizer, scaler = torch.optim.SGD(model.parameters(), lr=0.0), torch.amp.GradScaler("cpu", init_scale=64.0)
        for number, (batch,) in zip(range(self.most), self.loader, strict=False):
            loss = (model(batch[:, None]) * (float("inf") if number >= self.overflows_from else 1.0)).mean()
            if self.checks and not torch.isfinite(loss):  # as the loops of MAE and of torchvision's references do
                sys.exit(1)
            optimizer.zero_grad()
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
            self.scales.append(scaler.get_scale())


@pytest.fixture
def trained(monkeypatch):
    """Measures three rounds of four steps each, and looks at the training only."""
    seen = SimpleNamespace(warnings=[])

    def attempt(pipeline, options, _progress):
        training = make_training(pipeline, pipeline.train_step, torch.device("cpu"), lambda: None, FakeClock(1.0))
        step, failure = training.watch(pipeline.train_step), None
        try:
            for round_ in range(1, 4):
                training.begin_round()
                training.begin_block()
                for _ in range(4):
                    step([torch.ones(2)])
                training.end_block(Ladder.raw, round_)
        except MeasurementError as error:
            failure = error
        raw = Rung("raw", coupled=Ladder.raw, drained=Ladder.raw)
        seen.warnings = {one.id: one.message for one in training.warnings(Ladder((raw,), (), ()))}
        return Attempt(make_result(pipeline={"source": options.source}), failure)

    monkeypatch.setattr(diagnosing, "attempt_diagnosis", attempt)
    return seen


def test_the_scaler_of_a_loop_is_put_back_and_what_it_skips_is_told(trained):
    # Guards: a scaler is a variable of the loop, so that its scale fell from round to round, without a warning.
    script = Scaled()
    with bottleneck.diagnosing():
        script.run()
    assert [64.0 / scale for scale in script.scales] == [1, 1, 1, *(1, 2, 4, 8), *(2, 4, 8, 16), *(2, 4, 8, 16)]
    assert set(trained.warnings) == {"steps-skipped", "loss-not-finite"}


def test_a_loop_whose_losses_are_finite_is_not_warned_of(trained):
    with bottleneck.diagnosing():
        Scaled(overflows_from=1000).run()
    assert trained.warnings == {}


@pytest.mark.parametrize("checks", [True, False])
def test_a_script_that_ends_itself_at_a_loss_that_is_not_finite_is_reported_as_that(trained, checks):
    # Guards: 'The script ended before the measurement did', with the advice to let it train for longer.
    diagnosis = Diagnosing(MeasureOptions(), pytest.fail)
    with diagnosis, pytest.raises(SystemExit) as ended:
        Scaled(most=9, checks=checks).run()
        sys.exit(1)
    attempt = diagnosis.end(ended.value)
    assert "at a loss that is not finite (loss = " in str(attempt.failure)
    assert "smaller learning rate" in str(attempt.failure)


@pytest.mark.parametrize("error", [KeyboardInterrupt(), OSError("disk full")])
def test_a_script_that_ends_before_says_why(error):
    diagnosis = Diagnosing(MeasureOptions(), pytest.fail)
    with diagnosis:
        pass
    with pytest.raises((KeyboardInterrupt, MeasurementError)) as caught:
        diagnosis.end(error)
    said = "iterated over no PyTorch DataLoader" if isinstance(caught.value, KeyboardInterrupt) else "disk full"
    assert said in str(caught.value)


@pytest.mark.parametrize(
    ("error", "kind"), [(SystemExit(7), MeasurementError), (KeyboardInterrupt(), KeyboardInterrupt)]
)
def test_an_end_of_the_process_in_the_loop_finishes_with_what_was_measured(measured, error, kind):
    outcomes = []
    diagnosis = stopping(outcomes)
    with pytest.raises(Stopped), diagnosis:
        train(nullcontext(), most=4)
        assert diagnosis.lent_s() is not None
        diagnosis.leave(error)
    attempt = outcomes[0]()
    assert isinstance(attempt.failure, kind)
    with pytest.raises(SystemExit):  # while it finishes
        diagnosis.leave(SystemExit(1))


class Training:
    """A training that notes how far it came."""

    def __init__(self, most=20):
        self.most, self.loader = most, DataLoader(TensorDataset(torch.zeros(40)), batch_size=2)
        parameter = torch.nn.Parameter(torch.zeros(1))
        parameter.grad = torch.ones(1)
        self.optimizer = torch.optim.SGD([parameter], lr=0.1)
        self.scheduler = torch.optim.lr_scheduler.StepLR(self.optimizer, 100)
        self.steps, self.after = 0, False

    def run(self):
        for _, _ in zip(range(self.most), self.loader, strict=False):
            self.optimizer.step()
            self.scheduler.step()
            self.steps += 1
        self.after = True


def test_the_body_is_left_when_the_measuring_is_done(measured):
    training = Training()
    with bottleneck.diagnosing() as run:
        training.run()
    assert (training.steps, training.after, measured.steps) == (8, False, 5)
    assert run.diagnosis.pipeline["source"] == "script"
    assert training.scheduler.last_epoch == 3
    training.run()  # all is as before
    assert (training.steps, training.after, measured.steps) == (28, True, 5)


def test_a_body_that_catches_everything_cannot_go_on_training(measured):
    training = Training()
    with bottleneck.diagnosing(skip_steps=3) as run:
        for _ in range(3):
            with contextlib.suppress(BaseException):  # as some trainers do
                training.run()
        batches = iter(training.loader)
    assert (training.steps, run.diagnosis.pipeline["source"]) == (8, "script")
    assert list(batches) == []


def test_a_body_that_ends_first_leaves_what_was_measured(measured):
    with (
        pytest.raises(MeasurementError, match="ended before the measurement") as caught,
        bottleneck.diagnosing() as run,
    ):
        Training(most=5).run()
    assert caught.value.diagnosis is run.diagnosis


def test_what_the_body_raises_is_raised_as_it_is(measured):
    with pytest.raises(ZeroDivisionError), bottleneck.diagnosing() as run:
        Training(most=5).run()
        raise ZeroDivisionError
    assert run.diagnosis.pipeline["source"] == "script"


def test_a_body_without_a_loop_says_so():
    with pytest.raises(MeasurementError, match="iterated over no PyTorch DataLoader"), bottleneck.diagnosing() as run:
        pass
    with pytest.raises(MeasurementError, match="Nothing has been measured"):
        _ = run.diagnosis


def test_one_at_a_time():
    with pytest.raises(UsageError, match="runs already"), bottleneck.diagnosing(), bottleneck.diagnosing():
        pytest.fail("two began")


@pytest.mark.integration
def test_the_training_is_left_as_it_was():
    def train(model, optimizer, steps):
        done = 0
        while done < steps:
            for images, labels in make_loader(num_workers=0, shuffle=False):
                train_on(model, optimizer, images, labels)
                done += 1
                if done == steps:
                    break

    model, _ = make_model()
    model.append(torch.nn.BatchNorm1d(10))  # its buffers are the model's, and no optimizer's
    same = copy.deepcopy(model)
    optimizer, other = (torch.optim.SGD(one.parameters(), lr=1e-3, momentum=0.9) for one in (model, same))
    train(same, other, steps=3)
    with bottleneck.diagnosing(budget="5s") as run:
        train(model, optimizer, steps=100_000)
    assert run.diagnosis.verdict.state == "input_bound"
    found = model.state_dict()
    assert all(torch.equal(value, found[name]) for name, value in same.state_dict().items())

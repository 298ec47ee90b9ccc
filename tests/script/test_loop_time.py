"""Observations of a loop: its time, split at the optimizer, the files that it saves, and waits for other loaders."""

import io
import pickle
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from bottleneck.measure.options import ProgressUpdate
from bottleneck.reports.render import FORMATS, render
from bottleneck.results.evidence import LoopSeen
from bottleneck.script.seen import LoopTime, Saved, of_new_workers, of_one_loader
from tests.support.clock import FakeClock
from tests.support.results_factory import make_device_bound_result, make_result

DEVICE = ProgressUpdate("measuring", experiment="device")


class TimedSGD(torch.optim.SGD):
    """Takes two seconds a step."""

    def __init__(self, clock):
        super().__init__([torch.nn.Parameter(torch.zeros(1))], lr=0.1)
        self.clock = clock

    def step(self, closure=None):
        found = closure() if closure else None
        self.clock.now_s += 2.0
        return found


@pytest.fixture
def clock():
    return FakeClock()


def split(clock, steps, updates=(DEVICE,)):
    """The evidence of batches that take three seconds, then the optimizers of `steps`, then one second."""
    optimizers = [TimedSGD(clock) for _ in range(max(steps))]
    times = LoopTime(clock, elsewhere=lambda: clock() / 2)

    def loop(batch):
        clock.now_s += 3.0
        for optimizer in optimizers[:batch]:
            optimizer.step()
        clock.now_s += 1.0

    with times:
        step = times.watch(loop)
        for update in updates:
            times.note_progress(update)
            for batch in steps:
                step(batch)
    optimizers[0].step()  # not counted
    return times.evidence()


@pytest.mark.parametrize(
    ("steps", "until_s", "optimizer_s", "after_s"),
    [([1, 1], 3.0, 2.0, 1.0), ([2], 3.0, 4.0, 1.0), ([0, 1], 3.5, 1.0, 0.5)],
)
def test_a_batch_is_split_at_the_optimizers(clock, steps, until_s, optimizer_s, after_s):
    found = split(clock, steps)
    assert found == LoopSeen(
        batches=len(steps),
        until_optimizer_s=until_s,
        optimizer_s=optimizer_s,
        after_optimizer_s=after_s,
        other_loaders_s=(until_s + optimizer_s + after_s) / 2,
    )


@pytest.mark.parametrize("step", [lambda it, run: it.step(run), lambda it, run: it.step(closure=run)])
def test_a_closure_is_no_part_of_the_step(clock, step):
    """As in Lightning, where forward and backward pass run within it."""
    optimizer, given = TimedSGD(clock), []

    def forward():
        clock.now_s += 3.0
        return "loss"

    with LoopTime(clock) as times:
        times.note_progress(DEVICE)
        times.watch(lambda batch: given.append(step(optimizer, forward)))(0)
    found = times.evidence()
    assert (found.until_optimizer_s, found.optimizer_s, found.after_optimizer_s, given) == (3.0, 2.0, 0.0, ["loss"])


def test_only_batches_that_are_on_the_device_already_count(clock):
    others = (ProgressUpdate("warming up"), ProgressUpdate("measuring", experiment="raw"), DEVICE)
    assert split(clock, [1], others).batches == 1


def test_a_batch_in_which_the_loop_evaluates_does_not_count(clock):
    optimizer, breaks = TimedSGD(clock), []
    with LoopTime(clock, breaks=lambda: len(breaks)) as times:
        times.note_progress(DEVICE)
        for batch in (0, 1):
            times.watch(lambda batch: (optimizer.step(), breaks.extend(batch * [1])))(batch)
    assert (times.evidence().batches, times.steps) == (1, 2)


def test_without_an_optimizer_nothing_is_said():
    times = LoopTime()
    times.note_progress(DEVICE)
    times.watch(lambda batch: None)(0)
    assert times.evidence() == LoopSeen()


SEEN = LoopSeen(
    batches=10, until_optimizer_s=0.02, optimizer_s=0.001, after_optimizer_s=0.001, other_loaders_s=0.012
)  # fmt: skip


@pytest.mark.parametrize(
    ("result", "state"), [(make_result(), "input_bound"), (make_device_bound_result(), "undecided")]
)
def test_waits_for_other_loaders_are_no_time_of_the_device(result, state):
    found = of_one_loader(result.verdict, SEEN)
    assert (found.state, found.efficiency, found.headroom) == (state, None, None)
    assert found.bottleneck == (result.verdict.bottleneck if state == "input_bound" else None)
    assert "a step takes 22.0 ms, 12.0 ms of it waits for others" in found.sentence
    assert all("waits for several loaders" in render(replace(result, verdict=found), form) for form in FORMATS)


def test_a_loader_that_keeps_up_takes_nothing_away():
    verdict = make_result().verdict
    assert of_one_loader(verdict, replace(SEEN, other_loaders_s=0.001)) is verdict
    assert of_one_loader(verdict, LoopSeen()) is verdict


def test_workers_that_start_for_each_batch_are_not_in_an_efficiency():
    # Guards: next(iter(loader)) in the loop, whose workers start for each batch, and only once while it is fed.
    held, free = of_new_workers(make_result().verdict), of_new_workers(make_device_bound_result().verdict)
    assert (held.state, held.bottleneck, held.efficiency) == ("input_bound", make_result().verdict.bottleneck, None)
    assert (free.state, free.bottleneck, free.efficiency) == ("undecided", None, None)
    assert "batches = forever(loader)" in free.sentence


@pytest.fixture
def saved(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    found = Saved()
    found.begin()
    yield found
    found.end()


def said(found):
    [warning] = found.warnings()
    assert warning.id == "saved-while-measured"
    return warning.message


@pytest.mark.parametrize("path", [lambda name: name, Path, lambda name: str(Path(name).absolute())])
def test_a_saved_file_is_named_once_from_the_working_directory(saved, path):
    for _ in range(2):
        torch.save({}, path("model.pt"))
    assert "saved model.pt. These weights" in said(saved)
    assert Path("model.pt").exists()


def test_what_others_have_put_in_its_place_stays(monkeypatch):
    monkeypatch.setattr(torch, "save", torch.save)  # restored at the end of the test
    found = Saved()
    found.begin()
    monkeypatch.setattr(torch, "save", print)
    found.end()
    assert torch.save is print


def test_a_working_directory_that_was_removed_does_no_harm(tmp_path, monkeypatch):
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    found = Saved()
    found.begin()
    torch.save({}, tmp_path / "model.pt")
    found.end()
    assert "model.pt. These weights" in said(found)


def test_a_tensor_that_is_pickled_is_no_checkpoint(saved):
    pickle.loads(pickle.dumps(torch.zeros(3)))
    assert saved.count == 0
    torch.save({}, io.BytesIO())
    assert saved.count == 1


def test_of_many_files_three_are_named(saved):
    for number in range(5):
        torch.save({}, f"{number}.pt")
    assert "saved 5 files, such as 0.pt, 1.pt and 2.pt. These weights" in said(saved)

"""A whole diagnosis: what it measures, how it ends, and that nothing is left of it (the leak check sees that)."""

import itertools
import os
import signal
import time

import psutil
import pytest
import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset, default_collate

from bottleneck.errors import MeasurementError
from bottleneck.measure.options import MeasureOptions
from bottleneck.measure.session import measure
from bottleneck.pipeline.description import Pipeline
from bottleneck.results.records import Judgement

QUICK = MeasureOptions(budget_s=4.0)
PRECISE = Judgement("device_bound", None, precise=True)
UNDECIDED = Judgement("undecided", None, precise=False)


_HELPERS = set()
"""Python's own helper processes of earlier tests, which stay by design."""


@pytest.fixture(autouse=True)
def known_helpers():
    _HELPERS.clear()
    _HELPERS.update(psutil.Process().children())


def workers_left():
    return set(psutil.Process().children()) - _HELPERS


class Photos(Dataset):
    def __len__(self):
        return 10_000

    def __getitem__(self, index):
        return self.augment(self.load(index)), index

    def load(self, index):
        return torch.full((8,), float(index))

    def augment(self, image):
        return image + 0.5


class Numbers(IterableDataset):
    def __init__(self, start=0):
        self.start = start

    def __iter__(self):
        return iter(torch.arange(self.start, 50.0))


def pipeline_of(dataset=None, **options):
    given = {"dataset": dataset or Photos(), "train_step": lambda batch: None, "batch_size": 4, "num_workers": 1}
    return Pipeline(**{**given, "device": "cpu", **options})


def run(pipeline, options=QUICK, judge=lambda _: PRECISE, on_progress=lambda _: None, **more):
    return measure(pipeline, options, judge=judge, on_progress=on_progress, **more)


def blocks(outcome):
    return {e.name: e.coupled for e in outcome.measurement.experiments}


class Clock:
    """Invented time: each look at it takes some milliseconds, and the step what it says."""

    def __init__(self):
        self.now_s = 50.0

    def __call__(self):
        self.now_s += 5e-3
        return self.now_s

    def step(self, seconds):
        def work(batch):
            self.now_s += seconds

        return work


def run_simulated(step_s, options, judge=lambda _: UNDECIDED, dataset=None, **more):
    """A diagnosis without workers, in invented time."""
    clock = Clock()
    pipeline = pipeline_of(dataset, train_step=clock.step(step_s), num_workers=0)
    return run(pipeline, options, judge, clock=clock, **more)


# --- what is measured, in invented time --------------------------------------------------------------------


def test_every_experiment_is_visited_in_every_round():
    outcome = run_simulated(0.05, MeasureOptions(), judge=lambda _: PRECISE)
    assert outcome.failure is None
    measured = {name: found for name, found in blocks(outcome).items() if found}
    assert set(measured) == {"device", "before_collate", "before_augment", "raw"}
    for found in measured.values():
        assert [block.round for block in found if block.round > 0] == [1, 2, 3, 4, 5, 6]
        assert all(block.samples == 4 * block.batches and block.seconds > 0 for block in found)
    drained = {e.name for e in outcome.measurement.experiments if e.drained}
    assert drained == {"before_collate", "before_augment", "raw"}
    assert {w.stage for w in outcome.measurement.without if w.coupled} == {"collate", "augment", "load"}
    assert [span.name for span in outcome.measurement.stages] == ["compute", "collate", "augment", "load"]


def test_it_goes_on_until_it_is_precise_and_never_less_than_six_rounds():
    asked = []

    def judge(measurement):
        asked.append(measurement)
        return PRECISE if len(asked) >= 9 else UNDECIDED

    run_simulated(0.02, MeasureOptions(), judge)
    assert len(asked) == 9


def test_costs_that_are_not_precise_get_rounds_of_their_own_but_not_where_time_is_short():
    def judge(measurement):
        return Judgement("device_bound", None, precise=True, costs_precise=False)

    rounds = {}
    for quick in (False, True):
        outcome = run(pipeline_of(), MeasureOptions(budget_s=5.0, quick=quick), judge)
        experiments = {e.name: e for e in outcome.measurement.experiments}
        found = experiments["raw"]
        rounds[quick] = max(b.round for b in found.workers), max(b.round for b in found.coupled)
    assert rounds[False][0] > rounds[False][1]
    assert rounds[True][0] == rounds[True][1]


@pytest.mark.parametrize("step_s", [0.002, 0.05, 0.5])
@pytest.mark.parametrize("budget_s", [5.0, 20.0])
def test_the_budget_is_respected(step_s, budget_s):
    outcome = run_simulated(step_s, MeasureOptions(budget_s=budget_s))
    assert outcome.measurement.cost.seconds <= max(budget_s, 30 * step_s)
    assert len(blocks(outcome)["device"]) >= 2
    assert len(blocks(outcome)["raw"]) >= 2


def test_a_step_of_a_second_is_decided_within_three_minutes():
    outcome = run_simulated(1.0, MeasureOptions())
    found = blocks(outcome)
    assert len(found["device"]) >= 6
    assert len(found["raw"]) >= 6
    assert outcome.measurement.cost.seconds <= 180.0


def test_a_budget_that_is_much_too_short_still_says_something():
    outcome = run_simulated(1.0, MeasureOptions(budget_s=3.0))
    found = blocks(outcome)
    assert len([b for b in found["device"] if b.round in (1, 2)]) == 2
    assert len([b for b in found["raw"] if b.round in (1, 2)]) == 2
    assert outcome.failure is None


def test_progress_tells_phase_round_and_time():
    updates = []
    run_simulated(0.05, MeasureOptions(), judge=lambda _: PRECISE, on_progress=updates.append)
    phases = list(dict.fromkeys(update.phase for update in updates))
    assert phases == ["starting workers", "recording", "observing", "warming up", "trying out", "measuring", "tracing"]
    measuring = [update for update in updates if update.phase == "measuring"]
    assert {update.round for update in measuring} == {1, 2, 3, 4, 5, 6}
    assert "raw" in {update.experiment for update in measuring}
    assert all(a.elapsed_s <= b.elapsed_s for a, b in itertools.pairwise(updates))


def test_a_dataset_that_cannot_be_cut_says_why():
    class Opaque(Photos):
        def __getitem__(self, index):
            return torch.full((8,), float(index)), index

    outcome = run_simulated(0.05, MeasureOptions(budget_s=10.0), dataset=Opaque())
    experiment = next(e for e in outcome.measurement.experiments if e.name == "before_augment")
    assert "no augmentation or loader was found" in experiment.reason
    assert outcome.measurement.stages[-1].name == "fetch"


def test_a_batch_larger_than_the_memory_for_caches_is_refused_with_a_number():
    outcome = run_simulated(0.05, MeasureOptions(cache_budget_bytes=400))
    assert isinstance(outcome.failure, MeasurementError)
    assert "One batch takes" in outcome.failure.message
    assert "cache_bytes=" in outcome.failure.remedy


def test_the_caches_stay_within_their_memory():
    outcome = run_simulated(0.05, MeasureOptions(budget_s=5.0, cache_budget_bytes=30_000))
    assert 0 < outcome.measurement.cost.cache_bytes <= 30_000


@pytest.fixture
def notes(tmp_path):
    """A file to write to from a train step: lists of the test's own would be put back as they were."""
    path = tmp_path / "notes"
    path.touch()
    return path


def note(path, value):
    with path.open("a") as file:
        file.write(f"{value}\n")


def test_a_step_that_works_in_place_gets_clones_and_a_warning(notes):
    def step(batch):
        note(notes, bool((batch[0] % 1 == 0.5).all()))
        batch[0].mul_(0)

    outcome = run(pipeline_of(train_step=step, num_workers=0), MeasureOptions(budget_s=2.0))
    assert set(notes.read_text().split()) == {"True"}
    assert "batch-changed-in-place" in {w.id for w in outcome.measurement.warnings}


def test_a_step_that_works_in_place_later_on_gets_clones_from_then_on(notes):
    def step(batch):
        note(notes, bool((batch[0] % 1 == 0.5).all()))
        if notes.stat().st_size >= 40 * 5:
            batch[0].mul_(0)

    outcome = run(pipeline_of(train_step=step, num_workers=0), MeasureOptions(budget_s=4.0))
    assert "batch-changed-in-place" in {w.id for w in outcome.measurement.warnings}
    assert notes.read_text().split()[-100:] == ["True"] * 100


def test_the_seed_decides_what_the_users_code_draws(notes):
    def first_drawn(seed):
        notes.write_text("")
        run(pipeline_of(train_step=step, num_workers=0), MeasureOptions(budget_s=1.6, seed=seed))
        return notes.read_text().split()[0]

    def step(batch):
        note(notes, torch.rand(1).item())

    assert first_drawn(1) == first_drawn(1) != first_drawn(2)


# --- with real workers -------------------------------------------------------------------------------------


@pytest.mark.integration
@pytest.mark.parametrize("dataset", [Photos(), Numbers()], ids=lambda d: type(d).__name__)
def test_a_whole_diagnosis_with_workers(dataset):
    outcome = run(pipeline_of(dataset, num_workers=2), MeasureOptions(budget_s=6.0))
    assert outcome.failure is None
    found = blocks(outcome)
    assert len(found["device"]) >= 2
    assert len(found["raw"]) >= 2
    assert all(block.batches % 2 == 0 for block in found["raw"])
    evidence = outcome.measurement.evidence
    assert evidence["wait_s"]["p50"] <= evidence["wait_s"]["p99"]
    assert evidence["first_batch_s"] > 0
    assert outcome.measurement.cost.cache_bytes > 0
    assert not workers_left()


@pytest.mark.integration
def test_the_users_loader_is_measured_as_it_is():
    loader = DataLoader(Photos(), batch_size=4, num_workers=1, shuffle=True)
    pipeline = Pipeline.from_loader(loader, train_step=lambda batch: None, device="cpu")
    outcome = run(pipeline)
    assert outcome.failure is None
    assert outcome.measurement.pipeline["num_workers"] == 1
    assert len(next(iter(loader))[0]) == 4  # and it still works


# --- failures ----------------------------------------------------------------------------------------------


class Breaks(Photos):
    """Fails from some index on, in one way or another; what was loaded before is fine."""

    def __init__(self, how, at=400):
        self.how, self.at = how, at

    def load(self, index):
        if index == self.at:
            self.how()
        return super().load(index)


def refuse():
    raise ValueError("truncated file")


def die():
    os.kill(os.getpid(), signal.SIGKILL)


def check_failed(outcome, message, *, measured=True):
    assert isinstance(outcome.failure, MeasurementError), outcome.failure
    assert message in outcome.failure.message
    assert "\n" not in outcome.failure.message
    if measured:
        assert any(found for found in blocks(outcome).values())
    assert not workers_left()
    return outcome.failure


@pytest.mark.integration
@pytest.mark.parametrize("workers", [0, 2])
def test_a_sample_that_raises(workers):
    outcome = run(pipeline_of(Breaks(refuse), num_workers=workers), judge=lambda _: UNDECIDED)
    failure = check_failed(outcome, "The dataset raised at index 400", measured=False)
    assert ("worker" in failure.message) == (workers > 0)
    assert "experiment" in failure.message
    assert failure.details.count("ValueError: truncated file") == 1
    assert "in refuse" in failure.details


@pytest.mark.integration
def test_the_first_sample_that_raises():
    failure = check_failed(run(pipeline_of(Breaks(refuse, at=0))), "at index 0 in worker 0", measured=False)
    assert "experiment raw" in failure.message


@pytest.mark.integration
def test_a_collate_function_that_raises():
    calls = itertools.count()

    def collate(samples):
        if next(calls) > 60:
            raise RuntimeError("sizes differ")
        return default_collate(samples)

    outcome = run(pipeline_of(collate_fn=collate), judge=lambda _: UNDECIDED)
    assert "sizes differ" in check_failed(outcome, "The collate function raised", measured=False).message


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

    outcome = run(pipeline_of(train_step=step), judge=judge)
    failure = check_failed(outcome, "The train step raised", measured=not at_once)
    assert "shapes differ" in failure.message
    assert failure.details.count("ValueError: shapes differ") == 1


@pytest.mark.integration
def test_a_transfer_that_raises():
    def to_device(batch, device):
        raise ValueError("no such device")

    check_failed(run(pipeline_of(to_device=to_device)), "The transfer to the device raised", measured=False)


@pytest.mark.integration
def test_a_worker_that_is_killed():
    outcome = run(pipeline_of(Breaks(die), num_workers=2), judge=lambda _: UNDECIDED)
    assert "out-of-memory" in check_failed(outcome, "A worker died", measured=False).remedy


@pytest.mark.integration
@pytest.mark.parametrize("where", ["step", "judge", "progress"])
def test_a_worker_that_is_killed_while_we_are_elsewhere(where):
    # PyTorch's handler of SIGCHLD raises wherever the main process happens to be.
    calls = itertools.count()
    judged = []
    at = {"step": 0, "judge": 0, "progress": 60}[where]

    def kill(*_):
        if where == "step" and not judged:
            return UNDECIDED
        if next(calls) == at:
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
def test_a_stream_without_anything():
    check_failed(run(pipeline_of(Numbers(start=50))), "gave no batch", measured=False)


@pytest.mark.integration
@pytest.mark.parametrize("phase", ["starting workers", "recording", "measuring"])
def test_ctrl_c_keeps_what_was_measured(phase):
    seen = itertools.count()

    def interrupt(update):
        if update.phase == phase and (phase != "measuring" or next(seen) == 8):
            raise KeyboardInterrupt

    outcome = run(pipeline_of(), judge=lambda _: UNDECIDED, on_progress=interrupt)
    assert isinstance(outcome.failure, KeyboardInterrupt)
    assert any(blocks(outcome).values()) == (phase == "measuring")
    assert not workers_left()
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


@pytest.mark.integration
def test_a_fault_of_ours_passes_through_and_leaves_nothing_behind():
    def judge(_):
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        run(pipeline_of(), judge=judge)
    assert not workers_left()


def test_a_step_of_microseconds_beside_a_slow_loader_ends_in_time():
    # Guards: an arm that was not visited yet was given tens of thousands of batches, at the pace of the step.
    class Slow(Photos):
        def augment(self, image):
            time.sleep(0.02)
            return super().augment(image)

    started = time.perf_counter()
    outcome = run(pipeline_of(Slow(), train_step=lambda batch: None, num_workers=1), MeasureOptions(budget_s=3.0))
    assert outcome.failure is None
    assert time.perf_counter() - started < 30

"""A whole diagnosis: what it measures, and that nothing is left of it (the leak check sees that)."""

import copy
import itertools
import sys
import types
from dataclasses import replace

import pytest
import torch
from torch.utils.data import DataLoader, default_collate

from bottleneck.errors import MeasurementError
from bottleneck.job import marks
from bottleneck.job.marks import stage
from bottleneck.job.pipeline import Pipeline
from bottleneck.measure.options import MeasureOptions
from bottleneck.measure.passes import after_rounds
from bottleneck.results.records import Interval, Judgement, Leaning, blocks_of
from tests.support.datasets import Photos, Stream
from tests.support.sessions import (
    NAMED,
    PRECISE,
    QUICK,
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


def rounds_of(measurement):
    return max(block.round for e in measurement.experiments if e.name == "raw" for block in blocks_of(e.coupled))


# --- measurements, in invented time ------------------------------------------------------------------------


def test_every_experiment_is_visited_in_every_round():
    outcome = run_simulated(0.01, MeasureOptions(), judge=lambda _: PRECISE)
    assert outcome.failure is None
    measured = {name: found for name, found in blocks(outcome).items() if found}
    assert set(measured) == {"device", "before_collate", "before_augment", "raw"}
    for name, found in measured.items():
        first = 2 if name == "before_collate" else 1  # of which only tables are made
        assert [block.round for block in found if block.round > 0] == [*range(first, 7)]
        assert all(block.samples == 4 * block.batches and block.seconds > 0 for block in found)
    drained = {e.name for e in outcome.measurement.experiments if e.drained}
    assert drained == {"before_collate", "before_augment", "raw"}
    assert {w.stage for w in outcome.measurement.without if w.coupled} == {"collate", "augment", "load"}
    assert [span.name for span in outcome.measurement.stages] == ["compute", "collate", "augment", "load"]


def test_it_goes_on_until_it_is_precise_and_never_less_than_six_rounds():
    outcome = run_simulated(0.02, MeasureOptions(budget_s=60.0), lambda one: PRECISE if rounds_of(one) >= 9 else NAMED)
    assert rounds_of(outcome.measurement) == 9


@pytest.mark.parametrize(("step_s", "budget_s"), [(0.02, 40.0), (0.1, 60.0)])
def test_what_is_left_after_six_rounds_goes_to_an_undecided_state_to_the_end(step_s, budget_s):
    # From the eighth round on there is a verdict; to stop there would be to stop when noise has drawn one.
    options = MeasureOptions(budget_s=budget_s)
    outcome = run_simulated(step_s, options, lambda so_far: UNDECIDED if rounds_of(so_far) < 8 else PRECISE)
    found = blocks(outcome)
    late = {name: sum(b.round > 6 for b in of) for name, of in found.items() if of}
    assert {name for name, rounds in late.items() if rounds} == {"device", "raw"}
    assert late["raw"] >= 2
    assert 0.75 * budget_s <= outcome.measurement.cost.seconds <= budget_s


def test_a_loss_that_is_known_exactly_is_not_pursued():
    def judge(measurement):
        half = 0.02 if rounds_of(measurement) < 10 else 0.004
        return Judgement("undecided", Interval(0.93, 0.93 - half, 0.93 + half), precise=True)

    outcome = run_simulated(0.02, MeasureOptions(budget_s=3600.0), judge)
    assert len(blocks(outcome)["raw"]) == 10
    assert outcome.measurement.cost.seconds < 600


def test_what_is_left_after_six_rounds_goes_to_the_name_where_there_is_none():
    unnamed = Judgement("input_bound", None, precise=False, named=False)
    outcome = run_simulated(0.02, MeasureOptions(budget_s=60.0), judge=lambda _: unnamed)
    late = {w.stage: sum(b.round > 6 for b in blocks_of(w.coupled)) for w in outcome.measurement.without}
    assert min(late[stage] for stage in ("collate", "augment", "load")) >= 3
    # What is of no use for a name gets no more than what does not suffice for a round of the others.
    assert sum(b.round > 6 for b in blocks(outcome)["before_collate"]) <= 1 < late["augment"]


@pytest.mark.parametrize("quick", [False, True])
def test_costs_that_are_not_precise_get_rounds_of_their_own_but_not_where_time_is_short(quick):
    def judge(measurement):
        found = {e.name: e for e in measurement.experiments}["raw"]
        refined = bool(found.workers and found.workers.blocks[-1].round > found.coupled.blocks[-1].round)
        return Judgement("device_bound", None, precise=True, costs_precise=refined)

    outcome = run(pipeline_of(), MeasureOptions(budget_s=15.0, quick=quick), judge)
    found = {e.name: e for e in outcome.measurement.experiments}["raw"]
    assert (found.workers.blocks[-1].round, found.coupled.blocks[-1].round) == ((3, 2) if not quick else (2, 2))


@pytest.mark.parametrize("step_s", [0.002, 0.05, 0.5])
@pytest.mark.parametrize("budget_s", [5.0, 20.0])
def test_the_budget_is_respected(step_s, budget_s):
    outcome = run_simulated(step_s, MeasureOptions(budget_s=budget_s))
    assert outcome.measurement.cost.seconds <= max(budget_s, 30 * step_s)
    assert min(len(blocks(outcome)[name]) for name in ("device", "raw")) >= 2


def test_a_step_of_a_second_is_decided_within_three_minutes():
    outcome = run_simulated(1.0, MeasureOptions())
    assert min(len(blocks(outcome)[name]) for name in ("device", "raw")) >= 6
    assert outcome.measurement.cost.seconds <= 180.0


@pytest.mark.parametrize("named", [True, False])
def test_a_slow_job_gets_more_rounds_for_a_name_that_two_do_not_give(named):
    judgement = Judgement("input_bound", None, precise=False, named=named)
    outcome = run_simulated(1.0, MeasureOptions(budget_s=120.0), lambda _: judgement)
    # Once the first rounds are over, the rest is for the name; with a name it goes to everything.
    ladder_only = len(blocks(outcome)["before_collate"] or ())
    for_the_name = sum(len(blocks_of(w.coupled)) for w in outcome.measurement.without if w.stage == "augment")
    assert for_the_name >= 2
    assert (for_the_name - ladder_only > 1) != named


def test_where_two_rounds_of_all_that_a_name_needs_do_not_fit_it_gets_what_is_left_once_the_state_is_known():
    # Guards: a slow job whose state is known after two rounds, and whose time goes to what gives no name.
    outcome = run_simulated(
        1.0, MeasureOptions(budget_s=60.0), lambda _: Judgement("input_bound", None, False, named=False)
    )
    gains = {w.stage: len(blocks_of(w.coupled)) for w in outcome.measurement.without}
    assert set(gains) == {"collate", "augment", "load"}
    assert min(gains.values()) >= 2
    assert not blocks(outcome)["before_collate"]


def test_a_budget_that_is_much_too_short_still_says_something():
    outcome = run_simulated(1.0, MeasureOptions(budget_s=3.0))
    for name in ("device", "raw"):
        assert len([b for b in blocks(outcome)[name] if b.round in (1, 2)]) == 2
    assert outcome.failure is None


def test_progress_tells_phase_round_and_time_and_an_answer_in_the_middle_of_the_second_round():
    leaning, updates = Leaning("device_bound", "compute", None, 0.99), []
    run_simulated(
        0.01, MeasureOptions(), lambda so_far: replace(PRECISE, leaning=leaning if rounds_of(so_far) >= 2 else None),
        on_progress=updates.append,
    )  # fmt: skip
    phases = list(dict.fromkeys(update.phase for update in updates))
    before = ["starting workers", "recording", "observing", "warming up"]
    assert phases == [*before, "trying out", "measuring", "tracing"]
    measuring = [update for update in updates if update.phase == "measuring"]
    assert {update.round for update in measuring} == {1, 2, 3, 4, 5, 6}
    assert {update.bottleneck for update in measuring if update.round == 2} == {None, "compute"}
    assert "raw" in {update.experiment for update in measuring}
    assert all(a.elapsed_s <= b.elapsed_s for a, b in itertools.pairwise(updates))


class Gathering:
    """A train step that updates the weights after some batches, which takes as long as all of them."""

    def __init__(self, clock, every):
        self.clock, self.every, self.batches = clock, every, 0
        weight = torch.zeros(1, requires_grad=True)
        weight.grad = torch.ones(1)
        self.optimizer = torch.optim.SGD([weight], lr=0.0)

    def __call__(self, batch):
        self.clock.advance(0.01)
        self.batches += 1
        if self.batches % self.every == 0:
            self.clock.advance(0.01 * self.every)
            self.optimizer.step()


@pytest.mark.parametrize("every", [1, 3, 4, 12])
@pytest.mark.parametrize("is_given", [True, False])
def test_blocks_of_a_described_job_that_gathers_gradients_hold_whole_updates(every, is_given):
    # Guards: with four batches an update, a block of ten held two or three of them.
    clock = invented_time()
    step = Gathering(clock, every)
    given = {"optimizer": step.optimizer} if is_given else {}
    outcome = run(
        pipeline_of(train_step=step, num_workers=0, **given), MeasureOptions(budget_s=30.0), lambda _: UNDECIDED,
        clock=clock,
    )  # fmt: skip
    for name in ("device", "raw"):
        assert {block.batches % every for block in blocks(outcome)[name]} == {0}


@pytest.mark.parametrize(("one_in", "columns", "stay"), [(20, 1, True), (1, 16, False)])
def test_what_was_measured_stands_where_another_shape_turns_out_to_come_now_and_then(one_in, columns, stay):
    # Guards: one padded batch in a hundred, met in round 15, with which all blocks of 14 rounds were dropped.
    clock = invented_time()
    take_time = clock.step(0.01)

    def pad(samples):
        images, labels = default_collate(samples)
        is_other = clock.now_s > 60.0 and int(labels[0]) // 4 % one_in == 0  # it began at 50
        return torch.nn.functional.pad(images, (0, columns * is_other)), labels

    pipeline = pipeline_of(train_step=take_time, num_workers=0, collate_fn=pad)
    outcome = run(pipeline, MeasureOptions(budget_s=30.0), lambda _: UNDECIDED, clock=clock)
    rounds = [{block.round for block in blocks(outcome)[name]} for name in ("device", "raw")]
    assert [3 in found for found in rounds] == [stay, stay]
    assert all(max(found) > 8 for found in rounds)


class OnDevice(Photos):
    """Decodes on an accelerator, for which 'meta' stands."""

    def load(self, index):
        return torch.zeros(8, device="meta")


@pytest.mark.parametrize(("dataset", "are_known"), [(Photos(), True), (OnDevice(), False)])
def test_stages_that_work_on_a_device_have_no_clocks(dataset, are_known):
    # Guards: launches that take microseconds, by which a stage was named that did not limit the job.
    stages = run_simulated(0.01, QUICK, dataset=dataset).measurement.stages
    inside = {stage.name: stage.wall_s_per_batch is not None for stage in stages if stage.name in ("augment", "load")}
    assert inside == {"augment": are_known, "load": are_known}


class Compiler:
    """Stands for `torch.compile`'s own list of whom to tell."""

    def __init__(self):
        self.starts, self.ends = [], []
        self.register_start_callback, self.remove_start_callback = self.starts.append, self.starts.remove
        self.register_end_callback, self.remove_end_callback = self.ends.append, self.ends.remove


@pytest.mark.parametrize("compiling_s", [0.0, 60.0])
def test_compiling_is_told_and_takes_nothing_of_the_budget(monkeypatch, compiling_s):
    # Guards: a compilation of a minute left two rounds, whatever the budget.
    compiler, clock, updates, steps = Compiler(), invented_time(), [], []
    monkeypatch.setitem(sys.modules, "torch._dynamo.callback", types.SimpleNamespace(callback_handler=compiler))

    def step(batch):
        clock.advance(0.02)
        if len(steps) < 2 and compiling_s:  # the second time for shapes that may change
            for begin in [*compiler.starts]:
                begin(None)
            clock.advance(compiling_s / 2)
            for end in [*compiler.ends]:
                end(None)
        steps.append(batch)

    pipeline = pipeline_of(train_step=step, num_workers=0)
    outcome = run(pipeline, MeasureOptions(budget_s=30.0), lambda _: UNDECIDED, updates.append, clock=clock)
    assert rounds_of(outcome.measurement) > 6
    assert 25 + compiling_s < outcome.measurement.cost.seconds < 31 + compiling_s
    assert ("compiling" in {update.phase for update in updates}) == bool(compiling_s)
    assert updates[-1].budget_s == pytest.approx(30.0 + compiling_s, abs=0.1)
    assert not compiler.starts + compiler.ends


def test_a_dataset_that_cannot_be_cut_says_why():
    class Opaque(Photos):
        def __getitem__(self, index):
            return torch.full((8,), float(index)), index

    outcome = run_simulated(0.05, MeasureOptions(budget_s=10.0), dataset=Opaque())
    experiment = next(e for e in outcome.measurement.experiments if e.name == "before_augment")
    assert "no augmentation or loader was found" in experiment.reason
    assert outcome.measurement.stages[-1].name == "fetch"


def test_a_batch_larger_than_the_memory_for_caches_is_refused_with_a_number():
    outcome = run_simulated(0.05, MeasureOptions(cache_budget_bytes=200))
    assert isinstance(outcome.failure, MeasurementError)
    assert "One batch takes" in outcome.failure.message
    assert "--cache-bytes 1MiB (in Python: cache_bytes=1 << 20)" in outcome.failure.remedy


def test_where_one_batch_fits_and_nothing_else_there_is_still_an_efficiency():
    outcome = run_simulated(0.05, MeasureOptions(budget_s=5.0, cache_budget_bytes=400))
    assert outcome.failure is None
    assert {name for name, found in blocks(outcome).items() if found} == {"device", "raw"}
    assert 0 < outcome.measurement.cost.cache_bytes <= 400


@pytest.fixture
def notes(tmp_path):
    """A file to write to from a train step: lists of the test itself would be restored."""
    path = tmp_path / "notes"
    path.touch()
    return path


def note(path, value):
    with path.open("a") as file:
        file.write(f"{value}\n")


class Halved(Photos):
    """In this module, with a marked method that is never called."""

    @stage("never called here")
    def halve(self, image):
        return image[::2]


def test_a_mark_that_is_not_called_is_told_where_it_is_of_this_dataset(monkeypatch):
    # Guards: marks of another job, in any module that this process has imported, in the warnings of each diagnosis.
    elsewhere = types.ModuleType("elsewhere_marked")
    monkeypatch.setattr(marks, "names", copy.copy(marks.names))
    exec(
        "import bottleneck\n@bottleneck.stage('never called elsewhere')\ndef crop(image): return image",
        vars(elsewhere),
    )
    told = warnings_of(run_simulated(0.01, QUICK, dataset=Halved()))["mark-not-called"]
    assert '"never called here"' in told
    assert '"never called elsewhere"' not in told
    assert "mark-not-called" not in warnings_of(run_simulated(0.01, QUICK, dataset=Photos()))


@pytest.mark.parametrize(("after", "budget_s"), [(0, 2.0), (40, 4.0)])
def test_a_step_that_works_in_place_gets_clones_from_then_on_and_a_warning(notes, after, budget_s):
    def step(batch):
        note(notes, bool((batch[0] % 1 == 0.5).all()))
        if notes.stat().st_size >= after * 5:
            batch[0].mul_(0)

    outcome = run(pipeline_of(train_step=step, num_workers=0), MeasureOptions(budget_s=budget_s))
    were_whole = notes.read_text().split()
    assert set(were_whole[-100:] if after else were_whole) == {"True"}
    assert not after or len(were_whole) > 100
    assert "batch-changed-in-place" in warnings_of(outcome)


@pytest.mark.parametrize(("takes_s", "tried"), [(0.0, True), (3600.0, False)])
def test_more_workers_are_tried_only_where_the_budget_has_room_for_it(monkeypatch, takes_s, tried):
    # Guards: a diagnosis that had used its 55 s went on for another trial.
    asked = []
    monkeypatch.setattr(after_rounds, "MAX_TRIAL_S", takes_s)
    monkeypatch.setattr(after_rounds, "is_worth_trying", lambda *_, **__: True)
    monkeypatch.setattr(after_rounds, "try_workers", lambda *_: asked.append(True))
    run(pipeline_of(num_workers=0), MeasureOptions(), lambda _: replace(NAMED, precise=True))
    assert any(asked) is tried


def test_a_round_without_time_for_any_arm_is_the_last():
    # Guards: rounds without a visit, and a judgement after each, until the clock had passed the end.
    clock, judged, seen, options = invented_time(), [], [], MeasureOptions(budget_s=90.0)
    fields = pipeline_of(train_step=lambda _: clock.advance(2.0), num_workers=0)
    outcome = run(fields, options, lambda one: judged.append(one) or NAMED, seen.append, clock=clock)
    assert len(judged) <= 1 + len(blocks(outcome)["device"]) + sum(update.round in (2, 3) for update in seen)


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
@pytest.mark.parametrize("dataset", [Photos(), Stream(range(50))], ids=lambda d: type(d).__name__)
def test_a_whole_diagnosis_with_workers(dataset):
    outcome = run(pipeline_of(dataset, num_workers=2), MeasureOptions(budget_s=6.0))
    assert outcome.failure is None
    found = blocks(outcome)
    assert len(found["device"]) >= 2
    assert len(found["raw"]) >= 2
    assert all(block.queue_before is not None and block.queue_after is not None for block in found["raw"])
    evidence = outcome.measurement.evidence
    assert evidence.wait_s.p50 <= evidence.wait_s.p99
    assert evidence.first_batch_s > 0
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

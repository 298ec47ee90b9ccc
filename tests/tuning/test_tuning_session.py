"""A whole tuning in invented time: jobs whose truth is known, what fails, and what the record and the report say."""

import json
import re
from contextlib import nullcontext
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

from bottleneck.errors import MeasurementError, PipelineError, ResultFileError, UsageError
from bottleneck.job.pipeline import Pipeline
from bottleneck.reports.render import render
from bottleneck.results.evidence import ExperimentUsage, Utilisation
from bottleneck.results.json import from_json, saved_from_json, to_json
from bottleneck.results.records import Interval
from bottleneck.results.warnings.unseen import generator_not_restored
from bottleneck.tuner.change import Change, labels
from bottleneck.tuner.tune import tune
from tests.support.results_factory import make_device_bound_result, make_result
from tests.tuning.jobs import BY_NAME, NEEDS_IN_ORDER
from tests.tuning.world import QUICKER, Lane, World, job, quicker_model, tuned, tuning_of


@pytest.fixture(autouse=True)
def eight_cores(monkeypatch):
    monkeypatch.setattr("bottleneck.tuner.lanes.usable_cores", lambda: 8.0)


def outcomes(record):
    return {trial.setting: trial.outcome for trial in record.trials}


@NEEDS_IN_ORDER
def test_two_that_pay_only_together_after_one_that_pays_alone():
    names = ["prefetch_factor", "num_workers", "in_order", "pin_memory", QUICKER]
    world = World()
    world.random.seed(2)
    record, session = tuned(world, names, budget_s=900.0)
    # Four workers feed the unchanged model. Then neither more of them nor a quicker model pays alone.
    assert record.ladder[0].settings == ()
    assert record.ladder[1].settings == ("num_workers=4",)
    assert {setting for rung in record.ladder[2:] for setting in rung.settings} >= {"num_workers=8", "quicker_model"}
    assert record.gain.low <= 8.0 <= record.gain.high
    assert {len(rung.rate.blocks) for rung in record.ladder} == {4}  # which are sure, and known to a tenth
    assert record.ladder[1].gain.low <= 4.0 <= record.ladder[1].gain.high
    assert outcomes(record)["pin_memory"] == "not_applicable"
    assert outcomes(record)["in_order"] in ("dropped", "undecided")  # it does nothing, with or without a sure bound
    assert record.lines == ("DataLoader(..., num_workers=8)", "model = quicker(model)")
    assert record.warnings == ()
    assert any(
        update.phase == "trying num_workers=4" and "so far" in (update.experiment or "") for update in session.told
    )
    assert record.seconds < 900.0


class SlowWorkers(World):
    """One worker, with its one thread, is no faster than the main process."""

    def pace_s(self, pipeline):
        workers, step_s = pipeline.make_loader().num_workers, self.bare_pace_s(pipeline)
        return max(1.6 * self.load_s / workers, step_s) if workers else self.load_s + step_s


def test_where_one_worker_gains_nothing_many_are_tried():
    record, _ = tuned(SlowWorkers(), pipeline=job(num_workers=0))
    assert [rung.settings for rung in record.ladder] == [(), ("num_workers=7",)]
    assert record.gain.low <= 5.0 <= record.gain.high


class SharedCores(World):
    """Workers slow a step that has as many threads as there are cores; with one thread it takes longer alone."""

    def pace_s(self, pipeline):
        workers, put = pipeline.make_loader().num_workers, [each.value for each in pipeline._step_options.within]
        step_s = 2 * self.step_s if put else self.step_s * (6 if workers else 1)
        return max(self.load_s / workers, step_s) if workers else self.load_s + step_s


def advised(**evidence):
    given = replace(make_result().advice[0], id="use-workers", evidence={"num_workers": 0, **evidence})
    return replace(make_result(), advice=(given,), pipeline={"num_workers": 0})


@pytest.fixture
def two_cores(monkeypatch):
    monkeypatch.setattr(torch, "get_num_threads", lambda: 2)
    monkeypatch.setattr("bottleneck.tuner.lanes.usable_cores", lambda: 2.0)


@pytest.mark.usefixtures("two_cores")
def test_workers_and_fewer_threads_that_are_advised_as_one_are_tried_as_one():
    # Guards: two workers slow the step, one thread does so too, and both together were never tried.
    world, before = SharedCores(load_s=0.004, step_s=0.0008), advised(workers=2, torch_threads=1)
    record, _ = tuned(world, ["num_workers", "threads"], before=before, pipeline=job(num_workers=0))
    assert record.ladder[1].settings == ("num_workers=2", "threads=1")
    assert record.gain.low <= 4.8 / 2 <= record.gain.high
    assert record.lines == ("DataLoader(..., num_workers=2)", "torch.set_num_threads(1)")
    alone, _ = tuned(world, ["num_workers"], before=before, pipeline=job(num_workers=0))
    assert "num_workers=2" in outcomes(alone)


@pytest.mark.usefixtures("two_cores")
def test_as_many_workers_as_the_diagnosis_advises_are_tried_at_once():
    # Guards: one worker on two cores, where two had been faster in the diagnosis.
    before = advised(proposed={"num_workers": 2})
    record, _ = tuned(World(load_s=0.004), before=before, pipeline=job(num_workers=0))
    assert next(iter(outcomes(record))) == "num_workers=2"


def test_what_could_not_be_put_back_is_told_once_and_no_longer_diagnosis_is_advised():
    longer = replace(make_result().advice[0], id="measure-longer", title="Measure longer before changing anything")
    kept = SimpleNamespace(notes=[generator_not_restored("dataset.lines")])
    record, _ = tuned(World(), before=replace(make_result(), advice=(longer,)), left_as_found=lambda: nullcontext(kept))
    assert [warning.id for warning in record.warnings] == ["not-restored"]
    report = render(record, "text")
    assert "running generator" in report
    assert "Measure longer" not in report


def test_a_job_that_nothing_helps_is_told_so():
    record, _ = tuned(World(load_s=0.001, step_s=0.002))
    assert record.gain is None
    assert record.sentence.startswith("No change makes this job clearly more than 2 % faster: 2 settings tried.")
    assert [rung.settings for rung in record.ladder] == [()]
    assert record.lines == ()


def test_the_input_of_a_job_that_its_step_holds_is_left_alone_until_the_step_is_quicker():
    before = make_device_bound_result()
    before = replace(before, verdict=replace(before.verdict, headroom=Interval(1.01, 1.0, 1.03)))
    record, _ = tuned(World(load_s=0.0001), before=before)
    assert [(trial.outcome, trial.reason) for trial in record.trials] == [
        ("not_applicable", "the whole input costs this job at most 2.9 %")
    ]
    assert "none applies or is worth trying" in record.sentence
    record, _ = tuned(World(load_s=0.0009), ["num_workers", QUICKER], before=before, budget_s=900.0)
    assert outcomes(record)["quicker_model"] == outcomes(record)["num_workers=2"] == "kept"
    unsure = replace(before, verdict=replace(before.verdict, headroom=Interval(1.01, 1.0, 1.06)))
    assert "dropped" in outcomes(tuned(World(load_s=0.0001), before=unsure)[0]).values()


@pytest.mark.parametrize(
    ("in_script", "names", "more"),
    [
        (True, [], False),
        (False, [], False),
        (False, [QUICKER], True),  # a quicker step: the job gains by it once its input is quicker, too
    ],
)
def test_no_input_is_tried_that_the_job_hardly_waits_for(in_script, names, more):
    session = tuning_of(
        World(load_s=0.004, step_s=0.002), ["num_workers", "prefetch_factor", *names], in_script=in_script
    )
    session.run()
    assert [rung.settings for rung in session.found.ladder][:2] == [(), ("num_workers=2",)]
    tried = {trial.setting for trial in session.found.trials if trial.on_top_of == ("num_workers=2",)}
    assert ("num_workers=4" in tried) == more


class SlowStart(Lane):
    first_batch_s = 1.0


@pytest.mark.parametrize(("budget_s", "tried"), [(150.0, False), (900.0, True)])
def test_what_shows_over_whole_epochs_is_tried_where_these_fit_into_the_budget(budget_s, tried):
    world = World()
    world.lane = SlowStart
    dataset = TensorDataset(torch.rand(4000, 3), torch.zeros(4000))  # an epoch takes 16 s
    record, _ = tuned(world, ["persistent_workers"], budget_s, pipeline=job(dataset=dataset))
    assert (outcomes(record)["persistent_workers"] != "not_tried") == tried
    assert world.clock() < budget_s


def test_of_a_noisy_job_what_promises_little_is_not_measured_for_long():
    record, _ = tuned(World(load_s=0.001, step_s=0.002, noise=0.12), budget_s=900.0)
    assert max(len(trial.pairs) for trial in record.trials) <= 10


WAITING = {"load_s": 0.004, "step_s": 0.005}


@pytest.mark.parametrize(
    ("cores", "seen", "times", "names", "most"),
    [
        # More of them where they wait for something else than a core; and once a faster step waits for them.
        (2.0, ("coupled", 0.05), {}, ["num_workers"], 4),
        (2.0, ("coupled", 0.9), {}, ["num_workers"], 2),
        (1.0, ("drained", 0.05), WAITING, [QUICKER, "num_workers"], 2),
        (1.0, ("drained", 0.05), WAITING, ["num_workers"], 0),
    ],
)
def test_more_workers_than_cores_are_tried_where_they_wait(monkeypatch, cores, seen, times, names, most):
    monkeypatch.setattr("bottleneck.tuner.lanes.usable_cores", lambda: cores)
    used = Utilisation(experiments=(ExperimentUsage(name="raw", mode=seen[0], cores_workers=seen[1]),))
    result = replace(make_result(), pipeline={"num_workers": 1})
    record, _ = tuned(
        World(**times), names, before=replace(result, evidence=replace(result.evidence, utilisation=used))
    )
    tried = [int(trial.setting.partition("=")[2]) for trial in record.trials if "num_workers" in trial.setting]
    assert max(tried) == most


def test_pairs_that_others_disturb_are_measured_again_and_a_busy_machine_is_told():
    calls = iter(range(10**6))
    record, session = tuned(World(busy=lambda: 3.0 if next(calls) % 8 == 5 else 0.1))
    assert record.warnings == ()
    assert session._lanes._turns.repeats.repeated > 0
    record, session = tuned(World(busy=lambda: 3.0))
    assert [warning.id for warning in record.warnings] == ["other-load"]
    assert session._lanes._turns.repeats.repeated <= 2  # in a first round both are out of the ordinary


def test_what_does_not_run_is_a_row_and_the_tuning_goes_on():
    world = World()
    world.refused = lambda pipeline: pipeline.loader_args["num_workers"] > 3

    def broken(pipeline):
        raise ZeroDivisionError("by zero")

    def ending(pipeline):
        raise SystemExit(3)

    record, _ = tuned(world, ["num_workers", Change("broken", broken), Change("ending", ending)])
    assert outcomes(record)["broken"] == outcomes(record)["ending"] == "failed"
    assert outcomes(record)["num_workers=4"] == "failed"
    reasons = {trial.setting: trial.reason for trial in record.trials}
    assert "out of memory" in reasons["num_workers=4"]
    assert "ZeroDivisionError: by zero" in reasons["broken"]
    assert record.ladder[-1].settings == ("num_workers=3",)
    assert [trial.setting for trial in record.trials].count("broken") == 1  # on top of the workers it would fail too


def test_what_lacked_memory_is_tried_again_on_top_of_what_saves_some():
    world = World(load_s=0.0001)
    world.refused = lambda pipeline: pipeline.loader_args["batch_size"] > 10 and not hasattr(pipeline.model, "quick")
    larger = replace(BY_NAME["batch_size"], next_value=lambda here, judged: None if judged else 20)
    record, _ = tuned(world, [larger, QUICKER])
    assert [trial.outcome for trial in record.trials if trial.setting == "batch_size=20"] == ["failed", "undecided"]


def test_what_has_to_be_tried_by_hand_is_listed_with_its_line():
    record, _ = tuned(World(), [replace(QUICKER, by_hand="a process keeps its plans. Write quicker = True")])
    (trial,) = record.trials
    assert (trial.outcome, trial.pairs) == ("not_tried", ())
    assert trial.reason == "a process keeps its plans. Write quicker = True"
    report = " ".join(render(record, "text").split())
    assert "quicker_model was not tried: a process keeps its plans. Write quicker = True." in report
    assert "no time left" not in report


def slower_model(pipeline):
    changed = quicker_model(pipeline)
    changed.model.slow = True
    return changed


def test_a_change_whose_step_alone_takes_far_longer_than_the_job_is_dropped_without_a_block():
    record, _ = tuned(World(), [Change("slower", slower_model, on="step")])
    (trial,) = record.trials
    assert (trial.outcome, trial.pairs, trial.gain) == ("dropped", (), None)
    said = " ".join(render(record, "text").split())
    assert re.search(
        r"Tried and not kept: slower \(a step takes 200 ms, and the whole job 40(\.0)? ms per batch without it\)", said
    )


def without_numbers(pipeline):
    changed = quicker_model(pipeline)
    changed.model.not_finite = True
    return changed


def test_a_change_with_which_the_loss_is_no_number_is_not_kept_however_fast_it_is():
    kept = []
    record, _ = tuned(
        World(load_s=0.0001), [Change("without_numbers", without_numbers, on="step")],
        left_as_found=lambda: nullcontext(kept.append("as found")),
    )  # fmt: skip
    assert len(kept) == 3  # before the first diagnosis, before the changes, and after the one that failed
    (trial,) = record.trials
    assert (trial.outcome, len(trial.pairs)) == ("failed", 1)
    assert "loss is not a finite number" in render(record, "text").replace("\n", " ")
    assert [rung.settings for rung in record.ladder] == [()]


def test_what_failed_in_the_turn_of_the_job_itself_is_not_blamed_on_a_change():
    world = World()
    world.failing = {("changed", 1)}
    record, _ = tuned(world, ["num_workers"])
    assert outcomes(record)["num_workers=4"] == "failed"
    world = World()
    world.failing = {("job", 3)}  # after two blocks alone, in the first pair
    with pytest.raises(MeasurementError, match="777"):
        tuned(world, ["num_workers"])


class Unusable(World):
    """No lane opens on a device any more, once a change has failed on it."""

    def opener(self, pipeline, budget_s, *, whole_epochs):
        if getattr(pipeline.model, "quick", False):
            self.refused = lambda _: True
        if self.refused is not None:
            raise RuntimeError("CUDA error: operation not permitted when stream is capturing")
        return super().opener(pipeline, budget_s, whole_epochs=whole_epochs)


def test_a_device_that_a_change_leaves_unusable_ends_it_with_what_was_measured():
    session = tuning_of(Unusable(), ["num_workers", QUICKER])
    with pytest.raises(MeasurementError, match="ended early: .*CUDA error"):
        session.run()
    assert outcomes(session.found)["quicker_model"] == "failed"
    assert any(trial.pairs for trial in session.found.trials)


def test_rungs_that_fail_together_leave_the_first_and_the_last():
    world = World()

    def together():
        return len({lane.pace_s for lane in world.open}) > 2

    class Crowded(Lane):
        def block(self, number):
            if together():
                raise RuntimeError("CUDA out of memory.")
            return super().block(number)

    world.lane = Crowded
    record, _ = tuned(world, ["num_workers", QUICKER], budget_s=900.0, pipeline=job())
    assert [warning.id for warning in record.warnings] == ["rungs-left-out"]
    assert [len(rung.settings) > 1 for rung in record.ladder] == [False, True]
    assert record.gain.low > 1


def test_compiled_code_of_a_change_that_was_not_kept_is_released(monkeypatch):
    released = []
    monkeypatch.setattr("bottleneck.tuner.session.release_pools", lambda kept: released.append(labels(kept)))
    tuned(World(load_s=0.0015, step_s=0.002), ["num_workers", QUICKER])
    assert ("quicker_model",) in released  # which is kept, so that the code that it has compiled stays
    assert released[-1] == ()


def test_a_change_that_cannot_be_asked_is_a_row_too():
    def raising(*_):
        raise KeyError("where")

    asked = Change("asked", quicker_model, why_not=raising), Change("valued", quicker_model, next_value=raising)
    record, _ = tuned(World(), ["num_workers", *asked])
    assert outcomes(record) == {**outcomes(record), "asked": "not_applicable", "valued": "not_applicable"}
    assert "KeyError: 'where'" in record.trials[-1].reason
    assert record.gain is not None


def test_the_budget_holds_and_what_there_was_no_time_for_is_told():
    world = World(load_s=0.01, step_s=0.0025)
    record, _ = tuned(world, ["num_workers", QUICKER, "prefetch_factor", "in_order"], budget_s=235.0)
    assert world.clock() < 240.0
    assert "not_tried" in outcomes(record).values()
    assert all(trial.reason for trial in record.trials if trial.outcome == "not_tried")


def test_a_budget_too_short_for_one_change_is_refused_with_one_that_is_not():
    with pytest.raises(UsageError, match=r"budget of 20 s is too short.*--budget \d+m"):
        tuned(World(), budget_s=20.0)


def test_predicted_gains_stand_beside_realised_ones():
    advice = make_result().advice[0]
    promised = replace(advice, id="more-workers", gain=Interval(3.0, 2.0, 3.5), gain_basis="estimated")
    record, session = tuned(World(), before=replace(make_result(), advice=(promised,)))
    assert session.diagnosed_s == [12.0, 12.0]  # of five minutes
    assert record.ladder[1].predicted == promised.gain
    assert record.trials[0].predicted == promised.gain


def test_what_the_last_rounds_do_not_confirm_is_left_out():
    # Loading decides. The quicker model seems to pay in its four pairs, which take until 24 s.
    record, _ = tuned(World(load_s=0.001, step_s=0.001, lucky_until_s=23.6), [QUICKER])
    (trial,) = record.trials
    assert (trial.outcome, trial.reason) == ("undecided", "its gain was not confirmed when the ladder was measured")
    assert trial.gain.low > 1.02
    assert [warning.id for warning in record.warnings] == ["gain-not-confirmed"]
    assert "quicker_model seemed to pay off, but is left out" in record.warnings[0].message
    assert [(rung.settings, len(rung.rate.blocks)) for rung in record.ladder] == [((), 10)]
    assert record.lines == ()
    assert record.sentence.startswith("No change makes this job")


# --- the record and its reports -----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def record():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("bottleneck.tuner.lanes.usable_cores", lambda: 8.0)
        return tuned(World(), ["num_workers", "pin_memory", QUICKER], budget_s=600.0)[0]


def test_the_json_holds_all_of_it_and_stands_for_the_tuned_job(record):
    text = to_json(record)
    assert json.loads(text)["kind"] == "tuning"
    assert saved_from_json(text) == record
    assert from_json(text) == record.after
    with pytest.raises(ResultFileError, match="without a diagnosis"):
        from_json(to_json(replace(record, after=None)))
    broken = json.loads(text)
    broken["trials"][0]["outcome"] = "perhaps"
    with pytest.raises(ResultFileError, match=r"trials\[0\]\.outcome"):
        saved_from_json(json.dumps(broken))


# --- what cannot be varied ----------------------------------------------------------------------------------


class OwnLoader(DataLoader):
    def __iter__(self):
        return (batch for batch in super().__iter__())


def test_a_loader_with_an_iteration_of_its_own_is_refused():
    loader = OwnLoader(TensorDataset(torch.zeros(10)), batch_size=2)
    with pytest.raises(PipelineError, match="OwnLoader with its own __iter__"):
        tune(Pipeline.from_loader(loader, train_step=print))

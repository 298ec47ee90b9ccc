"""From the reports of the workers to the cuts of the dataset, with the reason if there are none."""

import dataclasses
import random

import numpy as np
import pytest
import torch
from torch.utils.data import Dataset

from bottleneck.job.cuts import CutSite
from bottleneck.loader.calls import Call, RngState, Sites, Tape
from bottleneck.loader.cut import install
from bottleneck.loader.recording.plan import make_plan
from bottleneck.loader.recording.record import ItemTimes, Report, undisturbed
from bottleneck.loader.recording.replay import FETCHES, Verification, verify
from bottleneck.measure.prepare import warnings_of_plan

ONCE, TWICE = ("loader", "transform"), ("loader", "transform", "transform")
GOOD = Verification(recorded=True, alone=True, replay=True)


FINISHING = {"total": 1.0, "head": 0.4, "augment": 0.3, "load": 0.4}
"""0.3 s of code behind the augmentation."""


def report(
    verification=GOOD, sample_alone=True, site_stages=None, unusable=None, guessed=(), chosen=(), orders=(ONCE,),
    changes_arguments=None, changed_outputs=None, items=None, total=1.0, head=0.5, augment=0.5, load=0.5,
    **found,
):  # fmt: skip
    """Return the report of a worker whose hundred items took so long together."""
    stages = {"loader": "load", "transform": "augment"} if site_stages is None else site_stages
    sites = Sites(stages, set(chosen), set(guessed), unusable or {}, changes_arguments or {}, changed_outputs or {})
    parts = (total, head, augment, load, total - head - augment)
    items = items or [ItemTimes(*(part / 100 for part in parts))] * 100
    given = {"batch_sizes": (4, 4), "has_samples": True, "has_collated": True, **found}
    return Report(sites, items, set(orders), verification=verification, sample_alone=sample_alone, **given)


def plan_for(*reports, iterable=False):
    return make_plan(list(reports), iterable=iterable)


def warned(*reports, **given):
    """Return the ids of the warnings."""
    return [warning.id for warning in warnings_of_plan(plan_for(*reports, **given))]


def failed(**held):
    return dataclasses.replace(GOOD, **held)


def test_template_where_nothing_follows_the_augmentation():
    plan = plan_for(report())
    assert plan.strategy == "template"
    assert plan.within_sample == ("augment", "load")
    assert plan.sites == {"loader", "transform"}
    assert plan.reason == ""
    assert list(warnings_of_plan(plan)) == []


@pytest.mark.parametrize(("verification", "iterable"), [(GOOD, False), (None, True)])
def test_what_follows_the_augmentation_counts_as_loading_and_it_says_so(verification, iterable):
    plan = plan_for(report(verification, **FINISHING), iterable=iterable)
    assert plan.strategy == "template"
    assert plan.within_sample == ("augment", "load")
    (warning,) = warnings_of_plan(plan)
    assert warning.id == "rest-counts-as-load"
    assert "takes 30% of the time" in warning.message
    assert '@bottleneck.stage("finish")' in warning.message
    assert not warned(report(None), iterable=True)


def test_nothing_is_said_of_what_follows_a_helper_where_the_augmentation_itself_was_refused():
    # Guards: a mosaic, which loads within its augmentation, of which 36 % was said to come after it.
    stages = {"loader": "load", "helper": "augment", "transform": "augment"}
    refused = {"transform": "it does the work of two stages"}
    found = report(
        site_stages=stages, unusable=refused, guessed=("helper",), orders=(("loader", "helper"),), **FINISHING
    )
    assert warned(found) == ["cut-not-used"]


def test_replay_of_the_loading_alone():
    plan = plan_for(report(site_stages={"loader": "load"}, orders=(("loader",),), augment=0.0))
    assert plan.strategy == "replay"
    assert plan.within_sample == ("augment", "load")
    assert plan.sites == {"loader"}


def test_loading_that_only_the_slower_samples_show_is_cut():
    quick, slow = ItemTimes(1e-4, 1e-4, 0.0, 1e-6), ItemTimes(1e-2, 1e-2, 0.0, 9e-3)
    loads = {"site_stages": {"loader": "load"}, "orders": (("loader",),)}
    assert plan_for(report(items=[quick] * 60 + [slow] * 40, **loads)).strategy == "replay"
    assert plan_for(report(items=[quick] * 100, **loads)).strategy == "fetch"


def test_a_function_that_does_all_the_work_is_not_what_loads_because_it_takes_an_index():
    alone = {"site_stages": {"loader": "load"}, "orders": (("loader",),), "augment": 0.0, "head": 1.0, "load": 0.99}
    plan = plan_for(report(guessed=["loader"], **alone))
    assert plan.strategy == "fetch"
    assert "`loader` does all of its work" in plan.reason
    assert list(warnings_of_plan(plan)) == []  # it was not called a stage
    assert plan_for(report(**alone)).strategy == "replay"  # its name says that it loads
    assert plan_for(report(guessed=["loader"], **alone | {"load": 0.9})).strategy == "replay"


@pytest.mark.parametrize(
    ("reports", "iterable", "reason"),
    [
        ([report(site_stages={}, orders=((),))], False, "no augmentation or loader was found"),
        ([report(site_stages={"loader": None, "transform": None})], False, "no augmentation or loader was found"),
        ([report(orders=((),))], False, "no augmentation or loader was found"),
        ([report(failed(recorded=False))], False, "recording its calls changed"),
        ([report(sample_alone=False)], False, "augmentation did not replay"),
        ([report(), report(sample_alone=False)], False, "augmentation did not replay"),
        ([report(None, site_stages={"loader": "load"}, orders=(ONCE[:1],), augment=0.0)], True, "cannot be asked for"),
        ([report(site_stages={"loader": "load"}, orders=(ONCE[:1], 2 * ONCE[:1]))], False, "another order or number"),
        (
            [report(failed(replay=False), site_stages={"loader": "load"}, orders=(ONCE[:1],))],
            False,
            "did not replay to",
        ),
    ],
)
def test_fetch_says_why(reports, iterable, reason):
    plan = plan_for(*reports, iterable=iterable)
    assert plan.strategy == "fetch"
    assert plan.within_sample == ("fetch",)
    assert plan.sites == frozenset()
    assert reason in plan.reason


def test_a_cut_that_exists_but_is_not_used_gives_a_warning():
    plan = plan_for(report(sample_alone=False))
    (warning,) = warnings_of_plan(plan)
    assert warning.id == "cut-not-used"
    assert plan.reason in warning.message
    assert not warned(report(site_stages={}, orders=((),)))


def test_a_site_that_one_worker_could_not_use_is_used_by_none_and_named():
    plan = plan_for(report(), report(unusable={"transform": "it returns a generator"}))
    assert "transform" not in plan.sites
    assert any("`transform`" in one.message and "generator" in one.message for one in warnings_of_plan(plan))


def test_an_augmentation_that_the_user_named_and_that_was_never_called_is_told():
    (warning,) = warnings_of_plan(plan_for(report(chosen={"views.crop"})))
    assert warning.id == "cut-not-called"
    assert "`views.crop`" in warning.message
    assert "100 recorded items" in warning.message
    assert not warned(report(chosen={"transform"}))


def test_a_few_microseconds_behind_the_augmentation_are_not_worth_a_warning():
    assert not warned(report(total=1.0, head=0.5, augment=0.48))
    assert warned(report(total=1.0, head=0.5, augment=0.44))
    # 20 microseconds an item are nothing, even of a very quick item
    assert not warned(report(total=0.004, head=0.001, augment=0.0015, load=0.001))


def test_an_augmentation_that_changes_its_argument_gets_copies_and_a_warning():
    plan = plan_for(report(changes_arguments={"transform": 0.0012}))
    assert plan.copy_arguments == {"transform"}
    (warning,) = warnings_of_plan(plan)
    assert warning.id == "cut-changes-its-argument"
    assert "`transform`" in warning.message
    assert "takes 1.2 ms a call" in warning.message


def test_an_image_that_is_decoded_where_it_is_first_used_is_told_once():
    # Guards: two warnings for one cause; one said that the user's transform changes its argument.
    opened = report(changes_arguments={"transform": 0.0012}, lazy=frozenset({("an image (PIL)", "augment")}))
    plan = plan_for(opened)
    assert plan.copy_arguments == {"transform"}
    assert warned(opened) == ["lazy-values"]


def test_copies_are_made_only_where_something_changes_what_it_is_given():
    assert not plan_for(report(**FINISHING)).copy_outputs
    assert not plan_for(report()).copy_samples
    assert plan_for(report(changed_outputs={"transform": 0.001})).copy_outputs
    changing = plan_for(report(), report(changes_samples=True))
    assert changing.copy_samples
    assert changing.copy_outputs


def test_sizes_and_room_of_all_workers_together():
    plan = plan_for(report(), report(batch_sizes=(3,), has_samples=False))
    assert plan.batch_sizes == (4, 4, 3)
    assert not plan.has_samples
    assert plan.has_collated
    assert not plan_for(report(), report(has_collated=False)).has_collated


# --- checks of a recording ---------------------------------------------------------------------------------


SITES = (CutSite((), "load_image", "load"), CutSite((), "augment", "augment"))


class Photos(Dataset):
    """Random in all three ways, with a random step behind the augmentation."""

    def __getitem__(self, index):
        image = self.load_image(index)
        image = self.augment(image)
        return self.finish(image), index

    def load_image(self, index):
        return torch.arange(4.0) + index + torch.rand(1)

    def augment(self, image):
        return image * random.random() + np.random.rand()

    def finish(self, image):
        return image + torch.rand(1)


def check(dataset):
    tape = Tape()
    install(dataset, SITES, tape)
    return verify(lambda index: dataset[index], 3, tape, seed=11), tape


def test_a_clean_dataset_passes_every_check():
    found, tape = check(Photos())
    assert found == GOOD
    assert not tape.sites.changes_arguments
    assert not tape.sites.changed_outputs


def test_the_random_number_generators_are_left_alone():
    for dataset in (Photos(), ChangesKind()):  # from the state that the first one leaves, were it left
        before = RngState.capture()
        expected = [random.random(), np.random.rand(), torch.rand(1).item()]
        after_drawing = RngState.capture()
        before.restore()
        check(dataset)
        assert [random.random(), np.random.rand(), torch.rand(1).item()] == expected
        after_drawing.restore()


class Irreproducible(Photos):
    """Draws from its own generator, which our seeds do not reach: types and shapes are compared."""

    def __init__(self):
        self.rng = np.random.default_rng()

    def augment(self, image):
        return image[: self.rng.integers(1, 4)] * float(self.rng.random())


class ChangesKind(Irreproducible):
    """Served from a recording, the item would be of another kind."""

    def __getitem__(self, index):
        self.fresh = False
        image = self.augment(self.load_image(index))
        return image if self.fresh else image.long()

    def augment(self, image):
        self.fresh = True
        return super().augment(image)


class InPlace(Photos):
    def augment(self, image):
        return image.mul_(2)


def test_an_augmentation_that_changes_its_argument_is_detected():
    found, tape = check(InPlace())
    assert set(tape.sites.changes_arguments) == {"augment"}
    assert found.alone
    assert found.replay


class ChangesOutput(Photos):
    def finish(self, image):
        return image.add_(1)


def test_code_that_changes_an_output_is_detected_and_the_recording_is_mended():
    found, tape = check(ChangesOutput())
    assert set(tape.sites.changed_outputs) == {"augment"}
    assert found.replay


class DependsOnTheFirstHalf(Photos):
    """The item depends on something that only loading sets."""

    def __getitem__(self, index):
        self.loads = getattr(self, "loads", 0)
        image = self.load_image(index)
        image = self.augment(image)
        result = image * 0 + self.loads
        self.loads = 0
        return result

    def load_image(self, index):
        self.loads += 1
        return super().load_image(index)


class AugmentNeedsContext(Photos):
    """Its augmentation cannot be called alone."""

    context = None

    def __getitem__(self, index):
        self.context = [1.0]
        return super().__getitem__(index)

    def augment(self, image):
        return image + self.context.pop()


class NoticesRecording(Photos):
    """Compares identities of arguments, which stand-ins cannot keep."""

    def __getitem__(self, index):
        return 0 if type(self.load_image).__name__.startswith("Cut") and self.noticed() else 1

    def noticed(self):
        self.calls = getattr(self, "calls", 0) + 1
        return self.calls > 1 + FETCHES


@pytest.mark.parametrize(
    ("kind", "held"),
    [
        (Irreproducible, vars(GOOD)),
        (ChangesKind, {"recorded": True, "replay": False}),  # seen also where an item never comes twice
        (DependsOnTheFirstHalf, {"recorded": True, "replay": False}),  # skipping the loading gives 0 instead of 1
        (AugmentNeedsContext, {"alone": False, "replay": True}),
        (NoticesRecording, {"recorded": False}),
    ],
)
def test_what_held_of_an_item_that_was_recorded(kind, held):
    found = vars(check(kind())[0])
    assert {name: found[name] for name in held} == held


# --- facts -------------------------------------------------------------------------------------------------


def test_items_that_were_interrupted_are_left_out():
    # Guards: of six batches, two were interrupted where nothing was recorded, and the dataset was not cut.
    steady, interrupted = ItemTimes(total_s=1e-4), ItemTimes(total_s=2e-3)
    assert undisturbed([interrupted, steady, steady, interrupted, steady, steady]) == [steady] * 3
    assert undisturbed([interrupted, steady, steady]) == [interrupted, steady, steady]  # of a few, all count


@pytest.mark.parametrize(("calls", "behind_s"), [(1, 1.0), (4, 4.0)])
def test_what_follows_the_augmentation_of_a_batch_counts_once_for_each_call(calls, behind_s):
    tape = Tape()
    install(Photos(), SITES, tape)
    tape.copies = []
    made = [Call("augment", print, (), {}, None, started_s=4.0 + n, ended_s=5.0 + n) for n in range(calls)]
    report = Report(Sites())
    report.add_item(tape, made, 0.0, 5.0 + calls, samples=4)
    (times,) = report.items
    assert times.total_s - times.head_s - times.augment_s == times.rest_s == behind_s


def test_what_is_between_two_calls_of_the_augmentation_does_not_follow_it():
    # Guards: of two views of a picture, that which is made second was said to come after the augmentation.
    tape = Tape()
    install(Photos(), SITES, tape)
    tape.copies = []
    calls = [Call("augment", print, (), {}, None, started_s=at, ended_s=at + 1.0) for at in (2.0, 6.0)]
    report = Report(Sites())
    report.add_item(tape, calls, 0.0, 7.5)
    (times,) = report.items
    assert (times.total_s, times.head_s, times.augment_s, times.rest_s) == (7.5, 2.0, 2.0, 0.5)

"""A recording is used only where it replays to what the direct path gives."""

import random

import numpy as np
import pytest
import torch
from torch.utils.data import Dataset

from bottleneck.job.cuts import CutSite
from bottleneck.loader.calls import Call, RngState, Sites, Tape
from bottleneck.loader.cut import install
from bottleneck.loader.record import ItemTimes, Report, Span, undisturbed
from bottleneck.loader.verify import FETCHES, verify

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
    assert found.reproducible
    assert found.recorded
    assert found.alone
    assert found.replay
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
    """Draws from a generator of its own, which no seed of ours reaches."""

    def __init__(self):
        self.rng = np.random.default_rng()

    def augment(self, image):
        return image[: self.rng.integers(1, 4)] * float(self.rng.random())


def test_where_an_item_never_comes_twice_types_and_shapes_are_compared():
    found, _ = check(Irreproducible())
    assert not found.reproducible
    assert found.recorded
    assert found.alone
    assert found.replay


class ChangesKind(Irreproducible):
    """Served from a recording, the item would be of another kind."""

    def __getitem__(self, index):
        self.fresh = False
        image = self.augment(self.load_image(index))
        return image if self.fresh else image.long()

    def augment(self, image):
        self.fresh = True
        return super().augment(image)


def test_another_kind_of_item_is_seen_even_then():
    found, _ = check(ChangesKind())
    assert found.recorded
    assert not found.replay


class FewOutcomes(Photos):
    """Draws from a generator of its own, and gives the same item twice before it gives another."""

    def __init__(self):
        self.drawn = iter([0, 0, 1, *(n % 3 == 0 for n in range(1000))])

    def augment(self, image):
        return image.flip(0) if next(self.drawn) else image.clone()

    def finish(self, image):
        return image * 2


def test_an_item_that_came_twice_by_chance_is_compared_by_its_kind():
    found, _ = check(FewOutcomes())
    assert not found.reproducible
    assert found.alone
    assert found.replay


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


def test_an_item_that_depends_on_what_loading_sets_does_not_replay():
    found, _ = check(DependsOnTheFirstHalf())
    assert found.recorded
    assert not found.replay  # skipping the loading gives 0 instead of 1


class HandleFromLoading(Photos):
    """Loading leaves a handle behind, which the rest uses up: without loading it raises."""

    handle = None

    def __getitem__(self, index):
        image = self.augment(self.load_image(index))
        return image + self.handle.pop()

    def load_image(self, index):
        self.handle = [index]
        return super().load_image(index)


def test_an_error_in_a_replay_is_not_the_users():
    found, _ = check(HandleFromLoading())
    assert found.recorded
    assert not found.replay


class AugmentNeedsContext(Photos):
    context = None

    def __getitem__(self, index):
        self.context = [1.0]
        return super().__getitem__(index)

    def augment(self, image):
        return image + self.context.pop()


def test_an_augmentation_that_cannot_be_called_alone_is_not_called_so():
    found, _ = check(AugmentNeedsContext())
    assert not found.alone
    assert found.replay


class NoticesRecording(Photos):
    """Compares identities of arguments, which stand-ins cannot keep."""

    def __getitem__(self, index):
        return 0 if type(self.load_image).__name__.startswith("Cut") and self.noticed() else 1

    def noticed(self):
        self.calls = getattr(self, "calls", 0) + 1
        return self.calls > 1 + FETCHES


def test_an_item_that_recording_changes_is_refused():
    assert not check(NoticesRecording())[0].recorded


def test_errors_of_the_users_own_are_passed_on():
    class Broken(Photos):
        def load_image(self, index):
            raise OSError("no such file")

    with pytest.raises(OSError, match="no such file"):
        check(Broken())


# --- facts -------------------------------------------------------------------------------------------------


def test_times_are_split_into_head_augmentation_and_load_without_the_copying():
    tape = Tape()
    install(Photos(), SITES, tape)
    calls = [
        Call(site, print, (), {}, None, started_s=started, ended_s=ended)
        for site, started, ended in (("load_image", 1.0, 4.0), ("augment", 6.0, 8.0), ("augment", 8.0, 9.0))
    ]
    tape.copies = [(5.0, 0.5), (8.5, 0.25)]
    report = Report(Sites())
    report.add_item(tape, calls, Span(0.0, 10.0))
    assert report.items == [ItemTimes(total_s=9.25, head_s=5.5, augment_s=3.0, load_s=3.0)]
    assert report.orders == {("load_image", "augment", "augment")}
    tape.copies = []
    report.add_item(tape, [], Span(0.0, 1.0))
    assert ItemTimes.sum(report.items).total_s == 10.25


def test_the_slowest_items_are_left_out():
    items = [ItemTimes(total_s=1.0, head_s=0.5)] * 19 + [ItemTimes(total_s=50.0)]
    assert undisturbed(items) == items[:18]  # a tenth
    assert undisturbed(items[-3:]) == items[-3:]  # of a few, all count


def test_items_that_waited_for_a_core_are_left_out():
    # Guards: of six batches, two were interrupted where nothing was recorded, and the dataset was not cut.
    steady, waited = ItemTimes(total_s=1e-4), ItemTimes(total_s=2e-3, core_wait_s=1.9e-3)
    assert undisturbed([waited, steady, steady, waited, steady, steady]) == [steady] * 3
    # The half that waited least stays: where all are interrupted, they are all that there is.
    long = ItemTimes(total_s=2e-3, core_wait_s=1.0e-3)
    assert undisturbed([waited, long, waited, long]) == [long]
    # Slow without having waited is slow.
    slow = ItemTimes(total_s=1e-2)
    assert undisturbed([steady, slow, slow, slow]) == [steady, slow, slow]


@pytest.mark.parametrize(("calls", "behind_s"), [(1, 1.0), (4, 4.0)])
def test_what_follows_the_augmentation_of_a_batch_counts_once_for_each_call(calls, behind_s):
    tape = Tape()
    install(Photos(), SITES, tape)
    tape.copies = []
    made = [Call("augment", print, (), {}, None, started_s=4.0 + n, ended_s=5.0 + n) for n in range(calls)]
    report = Report(Sites())
    report.add_item(tape, made, Span(0.0, 5.0 + calls), samples=4)
    (times,) = report.items
    assert times.total_s - times.head_s - times.augment_s == behind_s

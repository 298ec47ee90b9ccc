"""Stages that the user marked are recorded, served and skipped, alone or inside each other."""

import pytest
import torch
from torch.utils.data import Dataset, default_collate

import bottleneck
from bottleneck.job import marks
from bottleneck.loader import modes, trees
from bottleneck.loader.recording.copies import storages
from bottleneck.loader.recording.plan import plan_marks
from bottleneck.measure.prepare import warnings_of_plan
from tests.loader.engine_bench import engines

RAN = {}
"""Name of a stage -> how often it really ran in this process."""


def note(name):
    RAN[name] = RAN.get(name, 0) + 1


@bottleneck.stage("decode")
def decode(index):
    note("decode")
    return torch.full((4,), float(index))


@bottleneck.stage("pad")
def pad(parts):
    note("pad")
    return torch.stack(parts)


def collate(samples):
    note("collate")
    return pad([image for image, _ in samples]), torch.tensor([label for _, label in samples])


def collate_in_place(samples):
    """Change the output of the stage in place."""
    return pad([image for image, _ in samples]).mul_(3), torch.tensor([label for _, label in samples])


@bottleneck.stage("check")
def check(images):
    note("check")
    return images


def collate_checked(samples):
    """The stage hands on what it is given."""
    return check(torch.stack([image for image, _ in samples])), torch.tensor([label for _, label in samples])


class CollateNested:
    """Puts the output of the inner stage into the batch, and nothing of the outer one."""

    def __call__(self, samples):
        self.measure(torch.stack([image for image, _ in samples]))
        return self.doubled, torch.tensor([label for _, label in samples])

    @bottleneck.stage("measure")
    def measure(self, images):
        return self.double(images).sum()

    @bottleneck.stage("double")
    def double(self, images):
        self.doubled = images * 2
        return self.doubled


class Marked(Dataset):
    """Decode, then two views, with unmarked code in between."""

    def __len__(self):
        return 1000

    def __getitem__(self, index):
        note("other")
        image = decode(index)
        views = [self.normalize(self.crop(image, left)) for left in (0, 2)]
        return torch.stack(views), index

    @bottleneck.stage("crop")
    def crop(self, image, left):
        note("crop")
        return image[left : left + 2].clone()

    @bottleneck.stage("normalize")
    def normalize(self, image):
        note("normalize")
        return image - 0.5


class InPlace(Marked):
    """Later code changes what an earlier stage gave it."""

    def __getitem__(self, index):
        image = decode(index)
        return image.mul_(3), index


class Disordered(Marked):
    def __getitem__(self, index):
        image = decode(index)
        if index % 2:
            return self.normalize(self.crop(image, 0)), index
        return self.crop(self.normalize(image), 0), index


class Sometimes(Marked):
    """A stage that only one item in two needs."""

    def __getitem__(self, index):
        image = decode(index)
        return (self.normalize(image) if index % 2 else image), index


class Rare(Marked):
    """The first items do not call the stage at all; a found cut is recorded until then."""

    def __init__(self):
        self.transform = lambda image: image + 1

    def __getitem__(self, index):
        image = torch.full((4,), float(index))
        return (decode(index) if index >= 6 else self.transform(image)), index


class Handle:
    """Cannot be copied, as an open file."""

    def __reduce_ex__(self, protocol):
        raise TypeError("cannot pickle a handle")

    def read(self, index):
        return torch.full((4,), float(index))


class Opening(Marked):
    @bottleneck.stage("open")
    def open(self, index):
        return Handle()

    def __getitem__(self, index):
        return self.normalize(self.open(index).read(index)), index


engine_that_recorded = pytest.fixture(engines)


@pytest.fixture
def make(engine_that_recorded):
    def make_bench(dataset, collate=default_collate, batches=3):
        return engine_that_recorded(dataset, batches=batches, collate_fn=collate)

    yield make_bench
    assert marks.handler is None


def batch_of(bench, mode, first=40):
    return bench.run(mode, first)[0]


def ran(bench, mode, first=40):
    """Return how often each stage really ran for one batch."""
    RAN.clear()
    bench.run(mode, first)
    return dict(RAN)


def skipping(bench, *names):
    return modes.ALL | bench.plan.marks.bits(f"@{name}" for name in names)


def reasons(bench):
    return {one.message.split('"')[1]: one.message for one in warnings_of_plan(bench.plan)}


# --- in sequence -------------------------------------------------------------------------------------------


def test_stages_have_the_users_names_in_the_order_of_execution(make):
    bench = make(Marked(), collate)
    assert bench.plan.strategy == "marks"
    assert bench.plan.marks.sample == ("@decode", "@crop", "@normalize")
    assert bench.plan.marks.collate == ("@pad",)
    assert bench.plan.within_sample == ("other", "normalize", "crop", "decode")
    assert list(warnings_of_plan(bench.plan)) == []


def test_what_a_stage_in_the_collation_gives_is_handed_over_without_a_copy(make, monkeypatch):
    # Guards: without the code around a padding, its batch was made, thrown away, and a recorded one copied.
    bench, stack, given = make(Marked(), collate), torch.stack, []
    monkeypatch.setattr(torch, "stack", lambda parts: given.append(stack(parts)) or given[-1])
    recorded = batch_of(bench, modes.HANDOFF)
    served = [(batch_of(bench, modes.ALL | modes.SKIP_COLLATE_REST), given[-1]) for _ in range(6)]
    assert all(batch[0] is padded for batch, padded in served)
    assert len(set().union(*(storages(batch) for batch, _ in served))) == 12
    assert [part.shape for part in served[0][0]] == [part.shape for part in recorded]


@pytest.mark.parametrize("collate", [collate_in_place, collate_checked, CollateNested()])
def test_a_stage_in_the_collation_leaves_a_batch_as_it_was_recorded(make, collate):
    # Guards: changes by later code would be missing in the output, or the same tensor handed over twice.
    bench = make(Marked(), collate)
    recorded = [batch_of(bench, modes.HANDOFF) for _ in range(3)]
    served = [batch_of(bench, modes.ALL | modes.SKIP_COLLATE_REST) for _ in range(6)]
    assert all(trees.equal(batch, again) for batch, again in zip([*recorded, *recorded], served, strict=True))
    assert len(set().union(*map(storages, served))) == 12


def test_recorded_outputs_stand_in_for_those_of_another_item(make):
    bench = make(Marked(), batches=1)
    images, labels = batch_of(bench, skipping(bench, "decode"))
    assert labels.tolist() == [40, 41]  # the code around works for real, on what the sampler asked for
    assert images[:, 0, 0].tolist() == [-0.5, 0.5]  # decoded from the recorded items 0 and 1


# --- copies ------------------------------------------------------------------------------------------------


def test_what_later_code_changes_is_served_as_a_copy(make):
    bench = make(InPlace(), batches=1)
    assert bench.plan.copy_outputs == {"@decode"}
    for _ in range(3):
        assert batch_of(bench, skipping(bench, "decode"))[0][:, 0].tolist() == [0.0, 3.0]
    (warning,) = [one.message for one in warnings_of_plan(bench.plan) if one.id == "mark-output-changed"]
    assert "decode" in warning
    assert "ms per call" in warning


# --- marks that cannot be used -----------------------------------------------------------------------------


def test_another_order_each_time(make):
    bench = make(Disordered())
    assert bench.plan.marks.sample == ("@decode",)
    found = reasons(bench)
    assert set(found) == {"crop", "normalize"}
    assert "in another order from item to item" in found["crop"]
    assert "part of the stage around it" in found["crop"]


def test_a_stage_that_only_some_items_need_is_served_to_them_alone(make):
    bench = make(Sometimes())
    assert bench.plan.marks.sample == ("@decode", "@normalize")
    assert ran(bench, modes.ALL) == {"decode": 2, "normalize": 1}
    assert ran(bench, skipping(bench, "normalize")) == {"decode": 2}
    assert ran(bench, skipping(bench, "normalize"), first=41) == {"decode": 2}


def test_a_stage_that_shows_late_makes_the_recording_begin_again(make):
    bench = make(Rare(), batches=8)
    assert bench.plan.marks.sample == ("@decode",)
    assert set(ran(bench, modes.ALL)) == {"decode"}
    assert ran(bench, skipping(bench, "decode")) == {}


def test_what_cannot_be_copied_is_refused(make):
    bench = make(Opening())
    assert bench.plan.marks.sample == ("@normalize",)
    assert "cannot be copied (Handle)" in reasons(bench)["open"]


# --- the plan ----------------------------------------------------------------------------------------------


def test_orders_of_all_workers_become_one():
    plan, refused = plan_marks([("@a", "@c"), ("@a", "@b", "@c"), ("@b",)], [], {})
    assert plan.sample == ("@a", "@b", "@c")
    assert refused == {}


def test_a_stage_belongs_to_the_sample_or_to_the_batch():
    plan, refused = plan_marks([("@a", "@b")], [("@b",)], {})
    assert plan.sample == ("@a",)
    assert plan.collate == ()
    assert "both in __getitem__ and in collate_fn" in refused["@b"]


def test_a_stage_of_the_collation_cannot_have_the_name_of_another():
    plan, refused = plan_marks([], [("@augment",)], {}, ["load", "augment"])
    assert plan.collate == ()
    assert "another stage is called augment" in refused["@augment"]


def test_there_is_room_for_so_many():
    many = tuple(f"@{number}" for number in range(40))
    plan, refused = plan_marks([many], [tuple(f"{site}c" for site in many)], {})
    assert len(plan.sample) + len(plan.collate) == modes.MAX_MARKS
    assert len(refused) == 80 - modes.MAX_MARKS
    assert len({plan.bit(site) for site in (*plan.sample, *plan.collate)}) == modes.MAX_MARKS
    assert plan.bit(plan.collate[-1]) < 1 << 63

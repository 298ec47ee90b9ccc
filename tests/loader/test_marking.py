"""Stages that the user marked are recorded, served and skipped, alone or inside each other."""

import itertools

import pytest
import torch
from torch.utils.data import IterableDataset, default_collate

from bottleneck.job import marks
from bottleneck.job.cuts import find_sites
from bottleneck.loader import modes, trees
from bottleneck.loader.control import Control
from bottleneck.loader.engine import Engine
from bottleneck.loader.plan import make_plan, plan_marks
from bottleneck.loader.store import storages
from tests.loader import marked_datasets as marked

SIZE = 2


class Bench:
    """An engine that has recorded, and tells which stages really run in a mode."""

    def __init__(self, dataset, collate, batches):
        self.control = Control(1)
        self.control.worker_cache_bytes = 10**7
        self.iterable = isinstance(dataset, IterableDataset)
        self.engine = Engine(
            dataset, collate, self.control, find_sites(dataset), seed=0, batched=True, iterable=self.iterable
        )
        self.stream = self.engine.iterate() if self.iterable else None
        for number in range(batches):
            self.make(modes.RECORD, number * SIZE)
        self.plan = make_plan([self.engine.report()], iterable=self.iterable)
        self.control.publish_plan(self.plan)

    def make(self, mode, first=40):
        self.control.mode = mode
        if self.stream is not None:
            return self.engine.collate(list(itertools.islice(self.stream, SIZE)))
        return self.engine.collate(self.engine.fetch(list(range(first, first + SIZE))))

    def ran(self, mode, first=40):
        """How often each stage really ran for one batch."""
        marked.RAN.clear()
        self.batch = self.make(mode, first)
        return dict(marked.RAN)

    def skipping(self, *names):
        return modes.ALL | self.plan.marks.bits(f"@{name}" for name in names)


@pytest.fixture
def make():
    benches = []

    def make_bench(dataset, collate=default_collate, batches=3):
        benches.append(Bench(dataset, collate, batches))
        return benches[-1]

    yield make_bench
    for bench in benches:
        bench.control.close()
    assert marks.handler is None


def reasons(bench):
    return {message.split('"')[1]: message for _, message in bench.plan.warnings}


# --- in sequence -------------------------------------------------------------------------------------------


def test_stages_have_the_users_names_in_the_order_of_execution(make):
    bench = make(marked.Marked(), marked.collate)
    assert bench.plan.strategy == "marks"
    assert bench.plan.marks.sample == ("@decode", "@crop", "@normalize")
    assert bench.plan.marks.collate == ("@pad",)
    assert bench.plan.within_sample == ("other", "normalize", "crop", "decode")
    assert bench.plan.warnings == ()


def test_what_a_stage_in_the_collation_gives_is_handed_over_without_a_copy(make, monkeypatch):
    # Guards: without the code around a padding, its batch was made, thrown away, and a recorded one copied.
    bench, stack, given = make(marked.Marked(), marked.collate), torch.stack, []
    monkeypatch.setattr(torch, "stack", lambda parts: given.append(stack(parts)) or given[-1])
    recorded = bench.make(modes.HANDOFF)
    served = [(bench.make(modes.ALL | modes.SKIP_COLLATE_REST), given[-1]) for _ in range(6)]
    assert all(batch[0] is padded for batch, padded in served)
    assert len(set().union(*(storages(batch) for batch, _ in served))) == 12
    assert [part.shape for part in served[0][0]] == [part.shape for part in recorded]


@pytest.mark.parametrize("collate", [marked.collate_in_place, marked.collate_checked, marked.CollateNested()])
def test_a_stage_in_the_collation_leaves_a_batch_as_it_was_recorded(make, collate):
    # Guards: what later code changes would be handed over as it was before; what is handed on, twice the same tensor.
    bench = make(marked.Marked(), collate)
    recorded = [bench.make(modes.HANDOFF) for _ in range(3)]
    served = [bench.make(modes.ALL | modes.SKIP_COLLATE_REST) for _ in range(6)]
    assert all(trees.equal(batch, again) for batch, again in zip([*recorded, *recorded], served, strict=True))
    assert len(set().union(*map(storages, served))) == 12


def test_recorded_outputs_stand_in_for_those_of_another_item(make):
    bench = make(marked.Marked(), batches=1)
    bench.ran(bench.skipping("decode"), first=40)
    images, labels = bench.batch
    assert labels.tolist() == [40, 41]  # the code around works for real, on what the sampler asked for
    assert images[:, 0, 0].tolist() == [-0.5, 0.5]  # decoded from the recorded items 0 and 1


# --- copies ------------------------------------------------------------------------------------------------


def test_what_later_code_changes_is_served_as_a_copy(make):
    bench = make(marked.InPlace(), batches=1)
    assert bench.plan.copy_outputs == {"@decode"}
    for _ in range(3):
        bench.ran(bench.skipping("decode"))
        assert bench.batch[0][:, 0].tolist() == [0.0, 3.0]
    (warning,) = [message for id_, message in bench.plan.warnings if id_ == "mark-output-changed"]
    assert "decode" in warning
    assert "ms a call" in warning


def test_a_stage_that_works_in_place_leaves_the_recording_of_another_as_it_is(make):
    bench = make(marked.InPlaceStream())
    assert bench.plan.copy_arguments == {"@scale"}
    items = [item for batch in bench.engine._store.batches for item in batch.items]
    for decoded, scaled in [item.calls for item in items]:
        (index,) = decoded.args
        assert decoded.output.tolist() == scaled.args[1].tolist() == [index] * 4
        assert scaled.output.tolist() == [3 * index] * 4
    assert items


# --- streams -----------------------------------------------------------------------------------------------


# --- what is no clean cut ----------------------------------------------------------------------------------


def test_another_order_each_time(make):
    bench = make(marked.Disordered())
    assert bench.plan.marks.sample == ("@decode",)
    found = reasons(bench)
    assert set(found) == {"crop", "normalize"}
    assert "in another order from item to item" in found["crop"]
    assert "part of the stage around it" in found["crop"]


def test_a_stage_that_only_some_items_need_is_served_to_them_alone(make):
    bench = make(marked.Sometimes())
    assert bench.plan.marks.sample == ("@decode", "@normalize")
    assert bench.ran(modes.ALL) == {"decode": 2, "normalize": 1}
    assert bench.ran(bench.skipping("normalize")) == {"decode": 2}
    assert bench.ran(bench.skipping("normalize"), first=41) == {"decode": 2}


def test_a_stage_that_shows_late_makes_the_recording_begin_anew(make):
    bench = make(marked.Rare(), batches=8)
    assert bench.plan.marks.sample == ("@decode",)
    assert set(bench.ran(modes.ALL)) == {"decode"}
    assert bench.ran(bench.skipping("decode")) == {}


def test_what_cannot_be_copied_is_refused(make):
    bench = make(marked.Opening())
    assert bench.plan.marks.sample == ("@normalize",)
    assert "cannot be copied (Handle)" in reasons(bench)["open"]


def test_the_random_generators_are_left_alone_when_stages_are_served(make):
    bench = make(marked.Random(), batches=1)
    bench.make(bench.skipping("jitter"))
    before = torch.get_rng_state()
    bench.make(bench.skipping("jitter"))
    assert torch.get_rng_state().equal(before)


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
    assert len(plan.sample) + len(plan.collate) == modes.MOST_MARKS
    assert len(refused) == 80 - modes.MOST_MARKS
    assert len({plan.bit(site) for site in (*plan.sample, *plan.collate)}) == modes.MOST_MARKS
    assert plan.bit(plan.collate[-1]) < 1 << 63

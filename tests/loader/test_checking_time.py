"""Checking that recordings replay takes a bounded time: with slow samples less is checked, and that is told."""

import math

import pytest

from bottleneck.loader.verify import BRIEF_FETCHES, THOROUGH_FETCHES
from tests.loader.engine_bench import RUN_AUGMENT, RUN_LOAD, Batched, NothingBehind, OnlyLoaderCut, engines, work
from tests.loader.marked_datasets import Marked

make = pytest.fixture(engines)
ITEM_S = 3e-3
"""Two calls of a thousandth of a second each and the augmentation, by the engines' invented clock."""
THOROUGH_S, BRIEF_S = 1.01 * THOROUGH_FETCHES * ITEM_S, 1.01 * BRIEF_FETCHES * ITEM_S


class Deep(OnlyLoaderCut):
    """Three stages, of which one is cut."""

    def load_image(self, index):
        work(self, "open")
        return super().load_image(index)


def fetches(make, checking_s, kind=Deep):
    """How often items were loaded to record a batch of two, beyond once each and one look beforehand."""
    bench = make(kind(), batches=1, checking_s=checking_s)
    return bench.log.count(RUN_LOAD) - 3, bench.plan


def test_the_slower_the_samples_the_less_is_checked(make):
    # Guards: an item is fetched 6 to 17 times, which with items of 30 s eats the budget in every worker at once.
    thorough, plan = fetches(make, math.inf)
    assert 2 * BRIEF_FETCHES < thorough < THOROUGH_FETCHES
    assert plan.strategy == "replay"
    assert fetches(make, THOROUGH_S)[0] == thorough
    brief, plan = fetches(make, BRIEF_S)
    assert 0 < brief <= BRIEF_FETCHES
    assert plan.strategy == "replay"
    none, plan = fetches(make, 0.9 * BRIEF_S)
    assert none == 0
    assert plan.strategy == "fetch"
    assert "too long to check" in plan.reason


def test_a_whole_batch_counts_as_one_item(make):
    bench = make(Batched(), batches=1, checking_s=0.9 * BRIEF_FETCHES * 2 * ITEM_S)
    assert bench.log.count(RUN_LOAD) == 4  # a look beforehand, and the batch


def test_an_augmentation_is_still_tried_by_itself(make):
    found, plan = fetches(make, 0.0, NothingBehind)
    assert found == 0
    assert plan.strategy == "template"
    assert [id_ for id_, _ in plan.warnings] == ["checked-less"]

    class Moody(NothingBehind):
        seen = 0

        def augment(self, image):
            self.seen += 1
            return image + 0.5 if self.seen <= 2 else [image]

    assert make(Moody(), batches=1, checking_s=0.0, collate_fn=list).plan.strategy == "fetch"


def test_what_changes_its_argument_is_found_without_a_further_fetch(make):
    class InPlace(NothingBehind):
        def augment(self, image):
            self.log.append(RUN_AUGMENT)
            return image.add_(1)

    found, plan = fetches(make, 0.0, InPlace)
    assert found == 0
    assert plan.copy_arguments == {"augment"}


class MarkedPhotos(Marked):
    def __init__(self):
        self.log, self.now_s = [], [0.0]

    def __getitem__(self, index):
        self.log.append(RUN_LOAD)
        self.now_s[0] += ITEM_S
        return super().__getitem__(index)


def test_marked_stages_of_slow_samples_are_used_without_a_check(make):
    assert fetches(make, math.inf, MarkedPhotos)[0] > 2
    found, plan = fetches(make, 0.0, MarkedPhotos)
    assert found == 0
    assert plan.marks.sample == ("@decode", "@crop", "@normalize")

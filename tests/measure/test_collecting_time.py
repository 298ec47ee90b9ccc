"""The time that full garbage collections take of a block."""

import gc

from bottleneck.measure.visit import FullCollections


class Clock:
    """A clock that goes on by itself, a second each time it is read."""

    now = 0.0

    def __call__(self):
        self.now += 1.0
        return self.now


def test_full_collections_of_a_block_are_summed_and_others_are_not():
    with FullCollections(Clock()) as collections:
        gc.collect()
        collections.begin_block()
        gc.collect()
        gc.collect()
        gc.collect(1)
        assert collections.end_block() == 2.0
        collections.begin_block()
        assert collections.end_block() == 0.0


def test_afterwards_nothing_is_noted():
    before = list(gc.callbacks)
    collections = FullCollections(Clock())
    with collections:
        pass
    collections.begin_block()
    gc.collect()
    assert collections.end_block() == 0.0
    assert gc.callbacks == before

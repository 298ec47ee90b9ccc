"""The order of a visit: counters at the edges of a block are read outside of it, and belong to it."""

import gc
from types import SimpleNamespace

import pytest

from bottleneck.loader import modes
from bottleneck.measure.ladder import Arm
from bottleneck.measure.rounds.visit import Counters, FullCollections, visit
from bottleneck.results.records import Block
from tests.support.clock import FakeClock

RAW = Arm(modes.ALL, "loader")


class Log(list):
    """Things that note when they are called, and give what they are told to."""

    def thing(self, name, **answers):
        def call(method):
            def called(*arguments, **keywords):
                self.append(f"{name}.{method}")
                return answers.get(method)

            return called

        class Thing:
            def __getattr__(self, method):
                return call(method)

        return Thing()


@pytest.fixture
def made():
    log = Log()
    block = Block(3, 64, 1.0, 4)
    bench = log.thing("bench", measure=block, settle=16, clock=1.0)
    bench.left_out_collecting_s = 0.0
    bench.loader = SimpleNamespace(num_workers=2, begin_epoch_within=lambda _: log.append("loader.begin_epoch_within"))
    counters = Counters(
        reads=log.thing("reads"),
        utilisation=log.thing("utilisation", end_block=1.5e9),
        stolen=log.thing("stolen"),
        training=log.thing("training"),
        collections=log.thing("collections", end_block=0.25),
    )
    return SimpleNamespace(log=log, visited=visit(bench, RAW, 3, 4, counters))


def test_a_block_has_the_clock_of_the_device_right_after_it(made):
    assert made.visited.block == Block(3, 64, 1.0, 4, device_clock_hz=1.5e9, collecting_s=0.25)
    ended = made.log.index("bench.measure")
    assert made.log[ended + 1] == "collections.end_block"
    assert set(made.log[ended + 2 : ended + 4]) == {"stolen.end", "utilisation.end_block"}


def test_what_is_compared_of_training_is_read_before_settling_and_after_the_block(made):
    # Guards: reading a gradient scaler waits for the device, and gives the workers a start.
    order = [made.log.index(name) for name in ("training.begin_block", "bench.settle", "bench.measure")]
    assert order == sorted(order)
    assert made.log.index("training.end_block") > made.log.index("bench.measure")


def test_an_epoch_that_is_near_begins_before_the_block(made):
    # Guards: in the job it begins between two epochs, and is no part of a step.
    assert made.log.index("loader.begin_epoch_within") < made.log.index("bench.prepare")


def test_a_visit_ends_when_all_counters_are_read(made):
    # Guards: what a loader makes until those of other ranks have been timed would count as the work of its block.
    assert made.log[-1] == "bench.end_visit"
    assert {"reads.add", "utilisation.end_block"} < set(made.log)


def test_full_collections_of_a_block_are_summed_and_others_are_not():
    with FullCollections(FakeClock(per_reading_s=1.0)) as collections:
        gc.collect()
        collections.begin_block()
        gc.collect()
        gc.collect()
        gc.collect(0)
        assert collections.end_block() == 2.0
        collections.begin_block()
        assert collections.end_block() == 0.0


def test_afterwards_nothing_is_noted():
    before = list(gc.callbacks)
    collections = FullCollections(FakeClock(per_reading_s=1.0))
    with collections:
        pass
    collections.begin_block()
    gc.collect()
    assert collections.end_block() == 0.0
    assert gc.callbacks == before

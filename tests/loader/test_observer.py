"""What the pass of observation charges to which stage, in invented time."""

import pytest

from bottleneck.loader import modes, observe
from bottleneck.loader.observation import Clocks
from tests.loader.observer_bench import (
    CLOCK,
    OBSERVE,
    SIZE,
    Batched,
    Finishing,
    Inline,
    Marked,
    Opaque,
    Photos,
    Stream,
    benches,
    collate_with_mark,
    patience,
    times,
)

make = pytest.fixture(benches)
patient = pytest.fixture(autouse=True)(patience)


# --- stages ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "strategy", "expected"),
    [
        (Photos, "template", {"load": (8.0, 2.0), "augment": (8.0, 8.0)}),
        (Finishing, "template", {"load": (12.0, 6.0), "augment": (8.0, 8.0)}),
        (Inline, "template", {"load": (10.0, 4.0), "augment": (8.0, 8.0)}),
        (Opaque, "fetch", {"fetch": (10.0, 10.0)}),
        (Batched, "template", {"load": (8.0, 2.0), "augment": (8.0, 8.0)}),
        (Stream, "template", {"load": (6.0, 0.0), "augment": (8.0, 8.0)}),
    ],
)
def test_time_goes_to_the_stages_that_the_ladder_has(make, kind, strategy, expected):
    bench = make(kind())
    assert bench.plan.strategy == strategy
    seen = bench.observe(3)
    assert (seen.workers, seen.batches, seen.samples) == (1, 3, 3 * SIZE)
    assert times(seen) == expected | {"collate": (0.25, 0.25)}
    assert set(expected) == set(bench.plan.within_sample)


def test_marked_stages_are_charged_without_the_stages_inside_them(make):
    bench = make(Marked(), collate_with_mark)
    assert bench.plan.strategy == "marks"
    assert times(bench.observe(2)) == {
        "other": (1.0, 0.0), "decode": (10.0, 10.0), "read": (4.0, 0.0),
        "collate": (0.25, 0.25), "pad": (0.5, 0.5),
    }  # fmt: skip


def test_without_batching_an_item_is_a_batch(make):
    seen = make(Photos(), lambda sample: sample, batched=False).observe(2)
    assert (seen.batches, seen.samples) == (2, 2)
    assert times(seen) == {"load": (4.0, 1.0), "augment": (4.0, 4.0), "collate": (0.0, 0.0)}


def test_a_batch_of_a_stream_that_began_before_is_left_out(make):
    bench = make(Stream())
    bench.control.mode = modes.ALL
    first = next(bench.stream)
    bench.control.mode = OBSERVE
    second = next(bench.stream)
    bench.engine.collate([first, second])
    assert bench.seen() is None
    assert bench.observe().batches == 1


def test_a_batch_that_began_with_cached_items_is_left_out_and_the_next_one_counts(make):
    bench = make(Stream())
    bench.control.mode = modes.HANDOFF
    first = next(bench.stream)
    bench.control.mode = OBSERVE
    assert bench.engine.collate([first, next(bench.stream)]) is None
    assert bench.seen() is None
    assert bench.observe().samples == SIZE


@pytest.mark.parametrize("kind", [Photos, Stream])
def test_a_worker_that_has_seen_enough_works_no_more(make, monkeypatch, kind):
    monkeypatch.setattr(observe, "ENOUGH_S", 20.0)
    assert make(kind()).observe(5).batches == 2  # each takes 14 s or more


def test_time_without_a_core_is_told_apart_from_waiting(make):
    class Starved(Photos):
        def load(self, index):
            CLOCK.starve(0.5)
            return super().load(index)

    bench = make(Starved())
    assert bench.observe(2).core_wait_s == pytest.approx(4 * 0.5)


def test_where_the_system_does_not_tell_of_cores_nothing_is_said(make):
    bench = make(Photos())
    bench.engine._observer._clocks = Clocks(lambda: 0.0, lambda: 0.0, lambda: None)
    assert bench.observe(2).core_wait_s is None

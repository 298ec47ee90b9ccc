"""Ranks agree by a store, and hear of each other's failures wherever they wait."""

import threading

import msgspec
import pytest

from bottleneck.errors import MeasurementError
from bottleneck.measure.ranks.group import COMING_S, Failed
from tests.ranks.stores import DictStore, make_group, on_all_ranks
from tests.support.clock import FakeClock


def test_all_hear_what_the_first_announces_in_order():
    def talk(group):
        heard = []
        for text in ("one", "two"):
            if group.leads:
                group.announce(text)
            else:
                heard.append(group.hear())
        return heard

    assert on_all_ranks(talk) == [[], ["one", "two"], ["one", "two"]]


def test_all_get_the_most_and_the_fewest_of_what_each_says():
    assert on_all_ranks(lambda group: (group.most(group.rank), group.fewest(10 - group.rank))) == [(2, 8)] * 3


def test_whether_all_say_the_same():
    assert on_all_ranks(lambda group: (group.all_say("same"), group.all_say(str(group.rank)))) == [(True, False)] * 3


def test_the_first_gathers_in_the_order_of_ranks():
    assert on_all_ranks(lambda group: group.gather(f"rank {group.rank}")) == [
        ["rank 0", "rank 1", "rank 2"],
        None,
        None,
    ]


def test_nobody_goes_on_before_all_have_met():
    met = []

    def meet(group):
        met.append("before")
        group.meet()
        return met.count("before")

    assert on_all_ranks(meet, size=4) == [4] * 4


def test_who_waits_hears_who_failed():
    def fail_on_rank_one(group):
        if group.rank == 1:
            raise MeasurementError("The train step raised.", "Run it by itself.")
        group.meet()

    first, failed, last = on_all_ranks(fail_on_rank_one)
    assert isinstance(failed, MeasurementError)
    for heard in (first, last):
        assert str(heard).startswith("Rank 1 on ")
        assert "The train step raised. Run it by itself." in str(heard)


def test_an_interrupted_rank_interrupts_all():
    def interrupt_rank_zero(group):
        if group.leads:
            raise KeyboardInterrupt
        group.hear()

    assert all(isinstance(ended, KeyboardInterrupt) for ended in on_all_ranks(interrupt_rank_zero))


def test_the_first_failure_is_the_one_that_is_named():
    store = DictStore()
    make_group(store, 2, 3).fail(MeasurementError("first"))
    make_group(store, 1, 3).fail(MeasurementError("second"))
    assert make_group(store, 0, 3).failed() == Failed(2, make_group(store, 0, 3).host, "first")


def test_ranks_work_until_the_last_one_has_come():
    done, enough = [0, 0, 0], threading.Event()

    def meet(group):
        def work():
            done[group.rank] += 1
            if min(done[:2]) >= 5:
                enough.set()

        if group.rank == 2:
            assert enough.wait(30)
        group.meet(work)
        return done[group.rank]

    first, second, last = on_all_ranks(meet, size=3)
    assert min(first, second) >= 5
    assert last <= 1


def test_ranks_that_do_not_come_are_told_of():
    clock = FakeClock()
    group = make_group(DictStore(), 0, 4, clock=clock, sleep=clock.advance)
    with pytest.raises(MeasurementError, match=r"Of 4 ranks 1 came .* Start every rank under it"):
        group.come()
    assert clock() > COMING_S


def test_pauses_grow_and_are_longer_the_more_ranks_there_are():
    def looks(size):
        clock = FakeClock()
        group = make_group(DictStore(), 0, size, clock=clock, sleep=clock.advance)
        with pytest.raises(MeasurementError):
            group.come()
        return group.store.requests

    assert looks(1024) < looks(2) / 3


def test_a_failure_travels_as_it_is():
    failed = Failed(3, "node-1", "It hangs.", "Look there.", interrupted=False)
    assert msgspec.json.decode(msgspec.json.encode(failed), type=Failed) == failed

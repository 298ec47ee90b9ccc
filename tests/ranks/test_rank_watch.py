"""A rank that is killed, falls silent or hangs is found, and a rank that cannot come out of its step ends."""

import os
import signal
import subprocess
import sys

import msgspec
import pytest

from bottleneck.cli.termination import end_in_order
from bottleneck.errors import MeasurementError
from bottleneck.measure.interrupts import ending
from bottleneck.measure.ranks import watch
from bottleneck.measure.ranks.blame import what_ended_all
from bottleneck.measure.ranks.group import Failed
from bottleneck.measure.ranks.signs import Sign, is_alive
from bottleneck.measure.ranks.watch import HANG_S, SILENT_S, Watch
from tests.ranks.stores import DictStore, make_group
from tests.support.clock import FakeClock


class Ranks:
    """Two ranks: the first is this process, the other says what it is told to."""

    def __init__(self, rank=0):
        self.store, self.clock, self.left = DictStore(), FakeClock(), []
        self.group = make_group(self.store, rank, 2)
        self.watch = Watch(self.group, self.clock, self.left.append)
        self.number = 0

    def other_says(self, steps=0, pid=None, host=None, at=""):
        self.number += 1
        sign = Sign(self.number, host or self.group.host, pid or os.getpid(), steps, at)
        make_group(self.store, 1 - self.group.rank, 2).say_alive(msgspec.json.encode(sign).decode())

    def look(self, after_s=1.0):
        self.clock.advance(after_s)
        self.watch.look()
        return self.group.failed()


@pytest.fixture(autouse=True)
def not_ending():
    """What one test takes for its end is none for the others."""
    yield
    ending.clear()


@pytest.fixture
def gone():
    """The number of a process that has ended."""
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return process.pid


def test_ranks_that_go_on_are_left_alone():
    ranks = Ranks()
    for step in range(100):
        ranks.group.progress = step
        ranks.other_says(steps=step)
        assert ranks.look() is None


def test_a_process_of_this_host_that_ended_is_named_at_once(gone):
    ranks = Ranks()
    ranks.other_says(pid=gone)
    failed = ranks.look()
    assert failed is not None
    assert failed.rank == 1
    assert "ended without a word" in failed.message


def test_a_rank_of_another_host_is_gone_when_it_is_silent(gone):
    ranks = Ranks()
    ranks.other_says(pid=gone, host="elsewhere")
    assert ranks.look() is None
    assert ranks.look(SILENT_S - 1) is None
    failed = ranks.look(2.0)
    assert failed is not None
    assert (failed.rank, failed.host) == (1, "elsewhere")


def test_the_first_rank_is_watched_by_the_others(gone):
    ranks = Ranks(rank=1)
    ranks.other_says(pid=gone)
    failed = ranks.look()
    assert failed is not None
    assert failed.rank == 0


def test_a_rank_that_keeps_all_others_waiting_is_named_with_its_place():
    ranks = Ranks()
    ranks.group.progress = 50
    ranks.other_says(steps=50)
    assert ranks.look() is None
    for _ in range(int(HANG_S)):
        ranks.other_says(steps=50, at="train.py:30 in train_step")
        assert ranks.look() is None
    ranks.other_says(steps=50, at="train.py:30 in train_step")
    failed = ranks.look(2.0)
    assert failed is not None
    assert failed.rank == 1
    assert "train.py:30 in train_step" in failed.message


def test_a_slow_job_has_more_time_for_a_step():
    ranks = Ranks()
    for step in (50, 51):
        ranks.group.progress = step
        for _ in range(100):
            ranks.other_says(steps=step)
            assert ranks.look() is None
    for _ in range(int(HANG_S)):
        ranks.other_says(steps=51)
        assert ranks.look() is None


def test_preparing_may_take_long():
    ranks = Ranks()
    for _ in range(int(3 * HANG_S)):
        ranks.other_says()
        assert ranks.look() is None


def test_a_rank_that_cannot_come_out_of_its_step_ends(capsys, gone):
    ranks = Ranks(rank=1)
    ranks.other_says(pid=gone)
    ranks.look()
    assert ranks.left == []
    ranks.look(watch._GRACE_S + 1)
    assert ranks.left == [3]
    assert "Rank 0 on" in capsys.readouterr().err


def test_nobody_is_watched_when_all_is_over(gone):
    ranks = Ranks()
    ranks.other_says(pid=gone)
    ranks.group.is_over = True
    assert ranks.look() is None
    assert ranks.group.store.requests <= 1


def test_what_another_rank_says_is_what_ended_it():
    ranks = Ranks()
    make_group(ranks.store, 1, 2).fail(MeasurementError("It ran out of memory."))
    ended = what_ended_all(ranks.group, MeasurementError("The train step raised: Connection closed by peer"))
    assert "Rank 1 on" in str(ended)
    assert "out of memory" in str(ended)


def test_what_a_launcher_asks_for_then_changes_nothing():
    # torchrun asks all ranks to end as soon as one has failed: the report of those that know it is being written.
    ranks = Ranks()
    before = {number: signal.signal(number, signal.SIG_DFL) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        end_in_order()
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGTERM)
        what_ended_all(ranks.group, MeasurementError("The train step raised: ValueError"))
        signal.raise_signal(signal.SIGTERM)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def test_a_rank_that_fails_by_itself_tells_the_others():
    ranks = Ranks()
    own = MeasurementError("The train step raised: ValueError")
    assert what_ended_all(ranks.group, own) is own
    failed = ranks.group.failed()
    assert failed is not None
    assert failed.rank == 0


def test_what_a_killed_rank_leaves_to_feel_is_told_by_its_name(gone):
    ranks = Ranks()
    ranks.other_says(pid=gone)
    ended = what_ended_all(ranks.group, MeasurementError("The train step raised: Connection closed by peer"))
    assert "Rank 1 on" in str(ended)


FELT = "The train step raised: Connection closed by peer"


def test_a_rank_of_another_host_that_falls_silent_when_an_end_is_felt_is_named():
    ranks = Ranks()
    ranks.other_says(host="elsewhere")
    ended = what_ended_all(ranks.group, MeasurementError(FELT), ranks.clock, ranks.clock.advance)
    assert "Rank 1 on elsewhere failed" in str(ended)


def test_a_rank_that_goes_on_is_not_blamed():
    ranks = Ranks()
    ranks.other_says(host="elsewhere")

    def sleep(seconds):
        ranks.clock.advance(seconds)
        ranks.other_says(host="elsewhere")

    own = MeasurementError(FELT)
    assert what_ended_all(ranks.group, own, ranks.clock, sleep) is own
    assert ranks.group.failed().rank == 0


def test_who_follows_waits_for_the_name_that_the_first_rank_gives():
    ranks = Ranks(rank=1)
    ranks.other_says(host="elsewhere")
    said = Failed(2, "third", "Its process ended without a word.")

    def sleep(seconds):
        ranks.clock.advance(seconds)
        ranks.other_says(host="elsewhere")
        if ranks.clock() > 4:
            ranks.group.say_failed(said)

    ended = what_ended_all(ranks.group, MeasurementError(FELT), ranks.clock, sleep)
    assert "Rank 2 on third" in str(ended)


def test_processes_that_live():
    assert is_alive(os.getpid())

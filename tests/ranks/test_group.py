"""Ranks agree by a store, and end together: one that fails, is killed, or falls silent is named on all."""

import inspect
import os
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import msgspec
import pytest
from torch.distributed import HashStore

from bottleneck.cli.main import end_in_order
from bottleneck.errors import MeasurementError
from bottleneck.measure.keep.interrupts import ending
from bottleneck.measure.ranks.group import JOIN_S, Group, Solo, find_group
from bottleneck.measure.ranks.watch import GRACE_S, SILENT_S, Watch, watching
from tests.support.clock import FakeClock

ECHO = MeasurementError("The train step raised: Connection closed by peer")


def on_all_ranks(call, size=3):
    """Return the result of a call on each rank, or the exception that it raises there; ranks are threads."""
    store = HashStore()

    def run(rank):
        group = Group(store, rank, size, sleep=lambda _: time.sleep(0))
        try:
            return call(group)
        except BaseException as error:
            group.fail(error)
            return error

    with ThreadPoolExecutor(size) as pool:
        return list(pool.map(run, range(size)))


# --- agreement --------------------------------------------------------------------------------------------


def test_ranks_agree_in_the_order_of_their_calls():
    def agree(group):
        said = [group.agree(f"{word} of {group.rank}") for word in ("one", "two")]
        return said, group.share(group.rank), group.gather(f"rank {group.rank}")

    said, numbers = ["one of 0", "two of 0"], [0, 1, 2]
    first, *others = on_all_ranks(agree)
    assert first == (said, numbers, ["rank 0", "rank 1", "rank 2"])
    assert others == [(said, numbers, None)] * 2


def test_ranks_work_until_the_last_one_is_at_the_barrier():
    done, enough = [0, 0, 0], threading.Event()

    def wait(group):
        def work():
            done[group.rank] += 1
            if min(done[:2]) >= 5:
                enough.set()

        if group.rank == 2:
            assert enough.wait(30)
        group.barrier(work)
        return done[group.rank]

    first, second, last = on_all_ranks(wait)
    assert min(first, second) >= 5
    assert last <= 1


def test_ranks_that_do_not_join_are_counted():
    clock = FakeClock()
    group = Group(HashStore(), 0, 4, clock, clock.advance)
    with pytest.raises(MeasurementError, match=r"Of 4 ranks, 1 reached .* Start every rank under it"):
        group.join()
    assert clock() > JOIN_S


def test_who_waits_gets_to_know_who_failed():
    def fail_on_rank_one(group):
        if group.rank == 1:
            raise MeasurementError("The train step raised.", "Run it alone.")
        group.barrier()

    first, failed, last = on_all_ranks(fail_on_rank_one)
    assert str(failed) == "The train step raised. Run it alone."
    for heard in (first, last):
        assert str(heard).startswith("Rank 1 on ")
        assert "The train step raised. Run it alone." in str(heard)


def test_an_interrupted_rank_interrupts_all():
    def interrupt_rank_zero(group):
        if group.leads:
            raise KeyboardInterrupt
        group.agree()

    assert all(isinstance(ended, KeyboardInterrupt) for ended in on_all_ranks(interrupt_rank_zero))


def test_the_first_failure_is_the_one_that_is_named():
    store = HashStore()
    Group(store, 2, 3).fail(MeasurementError("first"))
    Group(store, 1, 3).fail(MeasurementError("second"))
    failed = Group(store, 0, 3).failed()
    assert (failed.rank, failed.message) == (2, "first")


# --- failures ---------------------------------------------------------------------------------------------


class Ranks:
    """Two ranks: one is this process, the other gives the heartbeats that it is told to."""

    def __init__(self, rank=0, pid=None, host=None):
        self.clock, self.left, self.number = FakeClock(), [], 0
        self.group = Group(HashStore(), rank, 2, self.clock, self.sleep)
        self.watch = Watch(self.group, self.left.append)
        own = self.group.host, os.getpid()
        other = host or self.group.host, pid or os.getpid()
        self.group.members = {1 - rank: other, rank: own}
        self.while_it_waits = lambda: None
        self.beat()

    def beat(self):
        """Let the other rank give a heartbeat."""
        self.number += 1
        self.group.store.set(f"beat/{1 - self.group.rank}", str(self.number))

    def look(self, after_s=1.0):
        self.clock.advance(after_s)
        self.watch.look()
        return self.group.failed()

    def sleep(self, seconds):
        """The thread that looks goes on while the measuring one waits."""
        self.while_it_waits()
        self.look(seconds)


@pytest.fixture(autouse=True)
def not_ending():
    """Clear the sign that a rank ends, which other tests must not see."""
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
    for _ in range(100):
        ranks.beat()
        assert ranks.look() is None


@pytest.mark.parametrize("rank", [0, 1])
def test_a_process_of_this_host_that_ended_is_named_at_once(gone, rank):
    failed = Ranks(rank, pid=gone).look()
    assert (failed.rank, failed.message) == (1 - rank, "Its process ended without a message.")


@pytest.mark.parametrize("rank", [0, 1])
def test_a_process_that_ended_before_all_have_joined_is_named_too(gone, rank):
    # Guards: a rank that is killed for its memory while what it trains is copied, before it joins.
    ranks = Ranks(rank)
    ranks.group.members = {}
    assert ranks.look() is None
    ranks.group.store.set(f"member/{1 - rank}", msgspec.json.encode((ranks.group.host, gone)).decode())
    assert ranks.look().rank == 1 - rank


@pytest.mark.parametrize("rank", [0, 1])
def test_a_rank_of_another_host_is_gone_when_it_is_silent(gone, rank):
    ranks = Ranks(rank, pid=gone, host="elsewhere")
    assert ranks.look() is None
    assert ranks.look(SILENT_S - 1) is None
    failed = ranks.look(2.0)
    assert (failed.rank, failed.host) == (1 - rank, "elsewhere")
    assert "no heartbeat for 20 s" in failed.message


def test_a_rank_that_cannot_come_out_of_its_step_ends(capsys, gone):
    ranks = Ranks(rank=1, pid=gone)
    ranks.look()
    assert ranks.left == []
    ranks.look(GRACE_S + 1)
    assert ranks.left == [3]
    assert "Rank 0 on" in capsys.readouterr().err


def test_nobody_is_watched_when_all_is_over(gone):
    ranks = Ranks(pid=gone)
    ranks.group.is_over = True
    assert ranks.look() is None


# --- the root failure -------------------------------------------------------------------------------------


def test_a_rank_that_fails_by_itself_lets_the_others_know():
    ranks = Ranks()
    own = MeasurementError("The train step raised: ValueError")
    assert ranks.group.root_failure(own) is own
    assert ranks.group.failed().rank == 0
    assert ranks.clock() == 0


@pytest.mark.parametrize("echo", [ECHO, KeyboardInterrupt()])  # a launcher asks the others to end
def test_a_killed_rank_is_named_on_those_that_see_an_echo_of_it(gone, echo):
    assert str(Ranks(pid=gone).group.root_failure(echo)).startswith("Rank 1 on ")


def test_a_rank_of_another_host_that_falls_silent_then_is_named_after_three_seconds():
    ranks = Ranks(host="elsewhere")
    assert "Rank 1 on elsewhere failed" in str(ranks.group.root_failure(ECHO))
    assert ranks.clock() < 5


def test_a_rank_that_goes_on_is_not_blamed():
    ranks = Ranks(host="elsewhere")
    ranks.while_it_waits = ranks.beat
    assert ranks.group.root_failure(ECHO) is ECHO
    assert ranks.group.failed().rank == 0


def test_other_ranks_wait_for_the_name_that_rank_0_finds():
    ranks = Ranks(rank=1, host="elsewhere")

    def rank_0():
        ranks.beat()
        if ranks.clock() > 4.5:
            Group(ranks.group.store, 0, 2).fail(MeasurementError("It is out of memory."))

    ranks.while_it_waits = rank_0
    assert "Rank 0 on" in str(ranks.group.root_failure(ECHO))


def test_what_a_launcher_asks_for_then_changes_nothing():
    # torchrun asks all ranks to end as soon as one has failed: the report of those that know it is being written.
    ranks = Ranks()
    before = {number: signal.signal(number, signal.SIG_DFL) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        end_in_order()
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGTERM)
        ranks.group.root_failure(MeasurementError("The train step raised: ValueError"))
        signal.raise_signal(signal.SIGTERM)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


# --- a world of one ---------------------------------------------------------------------------------------


def test_a_process_without_ranks_is_a_world_of_one():
    assert isinstance(find_group(), Solo)


@pytest.mark.parametrize(
    "call",
    [
        lambda world: world.share({"seconds": 0.5, "ranks": [1, 2]}),
        lambda world: world.gather("text"),
        lambda world: world.agree("text", lambda texts: f"{texts} decided"),
        lambda world: world.agree("text"),
        lambda world: world.barrier(lambda: pytest.fail("waits for others"), limit_s=0.1),
        lambda world: world.join(),
        lambda world: world.part(),
        lambda world: (world.leads, world.rank, world.size, world.host),
    ],
    ids=["share", "gather", "agree by a decision", "agree", "barrier", "join", "part", "attributes"],
)
def test_a_world_of_one_answers_as_a_group_of_one_rank(call):
    group = Group(HashStore(), 0, 1)
    group.announce()
    assert call(Solo()) == call(group)


def test_a_world_of_one_is_called_as_a_group_is():
    methods = {name: each for name, each in vars(Solo).items() if callable(each) and not name.startswith("_")}
    assert {"share", "gather", "agree", "barrier", "join", "part", "fail", "root_failure"} <= methods.keys()
    for name, method in methods.items():
        assert list(inspect.signature(method).parameters) == list(inspect.signature(getattr(Group, name)).parameters)


def test_a_failure_of_a_world_of_one_is_its_own():
    world = Solo()
    world.fail(ECHO)
    assert world.root_failure(ECHO) is ECHO


def test_only_a_job_of_many_ranks_is_watched():
    with watching(Solo()) as watch:
        assert watch is None
    assert isinstance(watching(Group(HashStore(), 0, 2)), Watch)

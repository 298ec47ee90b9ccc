"""The number of workers found, in invented time: loaders whose throughput is known for every number of them."""

import math
import random

import pytest

from bottleneck.tuner.search import Search, Seen, Visit
from tests.support.clock import FakeClock


class Planted:
    """A loader whose batch takes some time of a core, some time in which it waits, and some of the main process.

    Args:
        cpu_s: What making a batch takes of a core.
        wait_s: For how long whoever makes it waits.
        take_s: What the main process takes for a batch that workers hand over.
        cores: Of the machine.
        lock_s: What of a batch only one worker at a time can do.
    """

    def __init__(self, cpu_s=0.0, wait_s=0.0, take_s=0.0005, cores=8, lock_s=0.0, noise=0.01, worker_bytes=0, seed=0):
        self.cpu_s, self.wait_s, self.take_s, self.cores, self.lock_s = cpu_s, wait_s, take_s, cores, lock_s
        self.clock, self.noise, self.worker_bytes = FakeClock(), noise, worker_bytes
        self.draws, self.visited = random.Random(seed), []

    def batch_s(self, workers):
        alone_s = self.cpu_s + self.wait_s + self.lock_s
        if not workers:
            return alone_s
        busy = workers * self.cpu_s / alone_s
        made_s = self.wait_s + self.lock_s + self.cpu_s * max(1.0, busy / self.cores)
        return max(made_s / workers, self.lock_s, self.take_s)

    def period_s(self, workers, step_s):
        if step_s is None:
            return self.batch_s(workers)
        return max(self.batch_s(workers), step_s + self.take_s) if workers else step_s + self.batch_s(0)

    def visit(self, workers, until_s=15.0):
        turn_s, turn = max(1, workers) * self.batch_s(workers), max(1, workers)
        turns = 1 if turn_s > 1.0 else max(2, math.ceil(0.4 / turn_s))
        if self.clock() + 0.2 + turn_s * (1 + min(2, turns)) > until_s:
            return None
        self.visited.append(workers)
        batches = turn * turns
        seconds = batches * self.batch_s(workers) * math.exp(self.draws.gauss(0, self.noise))
        self.clock.advance(0.1 + 0.02 * workers + turn_s + seconds)
        worker_s, main_s = batches * self.cpu_s, batches * (self.take_s if workers else self.cpu_s)
        return Visit(batches, 16 * batches, seconds, worker_s, main_s, worker_bytes=self.worker_bytes)


def found(planted, given, step_s=None, **limits):
    return Search(planted.visit, given, planted.cores, step_s, **limits).run()


KINDS = {
    "sleep": {"wait_s": 0.040},
    "long sleep": {"wait_s": 0.8},
    "compute": {"cpu_s": 0.030},
    "compute and sleep": {"cpu_s": 0.010, "wait_s": 0.030},
    "tiny": {"cpu_s": 0.0001},
    "costly hand-off": {"cpu_s": 0.003, "take_s": 0.004},
    "one at a time": {"lock_s": 0.010, "wait_s": 0.005},
    "four cores' worth": {"cpu_s": 0.120},
}


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("given", [0, 1, 4, 12])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("step_s", [None, 0.012, 0.030])
def test_what_is_found_is_nearly_the_best_and_never_worse_than_what_is_given(kind, given, step_s, seed):
    planted = Planted(**KINDS[kind], seed=seed)
    count = found(planted, given, step_s)
    best_s = min(planted.period_s(other, step_s) for other in range(4 * planted.cores + 1))
    assert planted.period_s(count, step_s) <= 1.05 * best_s
    assert planted.period_s(count, step_s) <= 1.02 * planted.period_s(given, step_s)
    assert planted.clock() <= 15.0


def test_of_a_step_the_fewest_workers_are_found_that_keep_it_busy():
    planted = Planted(wait_s=0.040)
    for given in (1, 4, 8):
        assert found(planted, given, 0.012) == 4
    assert found(Planted(wait_s=0.040), 1, 1.0) == 1
    assert found(Planted(cpu_s=0.0001), 4, 0.1) in (0, 1)


def test_where_no_other_number_is_better_it_stays_as_it_is():
    assert found(Planted(lock_s=0.010), 4) == 4
    assert found(Planted(cpu_s=0.030, cores=2), 2) == 2
    assert found(Planted(cpu_s=0.030, cores=2), 6) == 6  # as fast as two


@pytest.mark.parametrize("wait_s", [3.0, 6.0, 30.0])
def test_batches_that_take_seconds_leave_time_for_few_visits_or_none(wait_s):
    planted = Planted(wait_s=wait_s)
    count = found(planted, 2)
    assert planted.clock() <= 15.0
    assert count == 2 or planted.period_s(count, None) < planted.period_s(2, None)
    assert (count == 2) == (wait_s > 3.0)


def test_without_time_to_compare_only_what_is_far_faster_is_taken():
    class Hurried(Planted):
        def visit(self, workers, until_s=15.0):
            return None if len(self.visited) == 2 else super().visit(workers, until_s)

    assert found(Hurried(cpu_s=0.030, cores=3), 1) == 3
    slightly = Hurried(cpu_s=0.030, take_s=0.029)
    assert found(slightly, 1) == 1


def test_workers_beyond_the_cores_are_reached_by_doubling():
    planted = Planted(wait_s=0.040, cores=4)
    assert found(planted, 1) == 16
    assert planted.visited[:4] == [1, 4, 8, 16]


def test_workers_take_no_more_than_half_of_the_free_memory():
    planted = Planted(wait_s=0.040, worker_bytes=100)
    assert found(planted, 1, free_bytes=2000) == 10
    assert found(Planted(wait_s=0.040, worker_bytes=100), 12, free_bytes=2000) == 12  # as many as there are


def test_what_does_not_run_is_passed_over():
    class Refusing(Planted):
        def visit(self, workers, until_s=15.0):
            return None if workers > 6 else super().visit(workers, until_s)

    assert found(Refusing(wait_s=0.040), 4) == 4
    search = Search(Planted(wait_s=99.0).visit, 2, 8)
    assert (search.run(), search.seen) == (2, {})


def test_the_visits_in_turns_decide_and_not_the_first_one():
    class ColdAtFirst(Planted):
        """Reads files that are in memory from the second visit on."""

        def batch_s(self, workers):
            return super().batch_s(workers) * (1.0 if self.visited[1:] else 3.0)

    assert found(ColdAtFirst(lock_s=0.010), 2) == 2


def test_what_lies_ready_is_not_made_sooner_by_more_workers_also_where_cores_are_short():
    class Contended(Planted):
        """The main process waits for a core, too."""

        def visit(self, workers, until_s=15.0):
            visit = super().visit(workers, until_s)
            visit.main_cpu_s, visit.ready_share = 0.3 * visit.seconds, 0.9
            return visit

    planted = Contended(cpu_s=0.0001, cores=2)
    assert found(planted, 6) == 0
    assert max(planted.visited) == 6


def test_a_step_and_what_the_main_process_takes_follow_on_each_other():
    visit = Visit(batches=10, samples=160, seconds=0.1, worker_cpu_s=0.05, main_cpu_s=0.02)
    assert Seen(2, [visit]).period_s(None) == pytest.approx(0.010)
    assert Seen(2, [visit]).period_s(0.02) == pytest.approx(0.022)
    assert Seen(0, [visit]).period_s(0.02) == pytest.approx(0.030)
    assert Seen(2, [visit]).core_share == pytest.approx(0.25)

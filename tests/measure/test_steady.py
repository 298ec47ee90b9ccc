"""What short visits show, between others, is what a long run of the job shows."""

import itertools
import math
import random

import pytest

from bottleneck.measure.arms import Arm
from bottleneck.measure.batches import BatchCache, CachedBatch
from bottleneck.measure.blocks import Bench
from bottleneck.staging import stages

RAW, DEVICE = Arm(stages.ALL, "loader"), Arm(None, "device")
PREFETCH = 2


class UnevenWorkers:
    """Workers whose batches take log-normal times, delivered in order, and a job that takes them; in invented time."""

    def __init__(self, workers, worker_s, cv, step_s, seed=0):
        self.now_s, self.step_s = 10.0, step_s
        self.num_workers, self.queue_length = workers, PREFETCH * workers
        self.random = random.Random(seed)
        spread = math.sqrt(math.log1p(cv * cv))
        self.draw = lambda: worker_s * self.random.lognormvariate(-spread * spread / 2, spread)
        self.due_s, self.free_s, self.asked = [], [self.now_s] * workers, 0
        nothing = BatchCache([CachedBatch("batch", 1)])
        self.bench = Bench(
            loader=self, host=nothing, device=nothing, transfer=lambda batch: batch, step=self.step,
            synchronize=lambda: None, clock=lambda: self.now_s, pause=self.pass_time,
        )  # fmt: skip

    def pass_time(self, seconds):
        self.now_s += seconds

    def step(self, batch):
        self.now_s += self.step_s

    def ask(self):
        worker = self.asked % self.num_workers
        self.asked += 1
        self.free_s[worker] = max(self.free_s[worker], self.now_s) + self.draw()
        self.due_s.append(self.free_s[worker])

    def switch(self, mode, keep=None):
        self.now_s = max([self.now_s, *(s for s in self.free_s if s < self.now_s + 1e3)])  # what is begun is finished
        self.free_s, self.due_s, self.asked = [self.now_s] * self.num_workers, [], 0
        for _ in range(self.queue_length):
            self.ask()

    def rest(self, keep=None):
        self.due_s = []

    def arrived(self):
        return sum(due_s <= self.now_s for due_s in self.due_s)

    def next_has_arrived(self):
        return self.due_s[0] <= self.now_s

    def is_ahead(self):
        return self.arrived() == self.queue_length

    def next_batch(self):
        self.now_s = max(self.now_s, self.due_s.pop(0))
        self.ask()
        return "batch", 1

    # --- what is compared ---

    def long_run_loss(self, batches=6000):
        self.switch(stages.ALL)
        for _ in range(20 * self.num_workers):
            self.step(self.next_batch())
        began_s = self.now_s
        for _ in range(batches):
            self.step(self.next_batch())
        return 1 - batches * self.step_s / (self.now_s - began_s)

    def visited_loss(self, rounds=8, batches=20):
        self.bench.prepare(DEVICE)
        self.bench.measure(DEVICE, 0, 4)
        made = []
        for number in range(rounds):
            self.bench.prepare(RAW)
            self.bench.settle(RAW)
            made.append(self.bench.measure(RAW, number, batches))
            self.bench.prepare(DEVICE)
        return 1 - sum(b.batches for b in made) * self.step_s / sum(b.seconds for b in made)


def mean_visited_loss(repeats=12, **job):
    return sum(UnevenWorkers(seed=seed, **job).visited_loss() for seed in range(repeats)) / repeats


@pytest.mark.parametrize(
    ("workers", "worker_s", "cv", "step_s"),
    [
        (8, 0.184, 0.10, 0.020),  # a loss of 14 %, of which a full queue hides all but one
        (8, 0.208, 0.15, 0.020),
        (4, 0.086, 0.05, 0.020),
        (2, 0.022, 0.10, 0.010),
        (8, 0.190, 0.00, 0.020),
        (12, 2.31, 0.30, 0.250),  # no loss, of which an empty queue makes 7 %
        (8, 0.615, 0.30, 0.100),
        (8, 0.155, 0.10, 0.020),  # balanced
        (1, 0.030, 0.20, 0.020),
    ],
)
def test_short_visits_show_the_loss_of_a_long_run(workers, worker_s, cv, step_s):
    # Guards: a block shorter than the queue shows the level that it began with, and more rounds make it surer.
    job = {"workers": workers, "worker_s": worker_s, "cv": cv, "step_s": step_s}
    assert mean_visited_loss(**job) == pytest.approx(UnevenWorkers(**job).long_run_loss(), abs=0.02)


def test_a_visit_goes_on_at_the_level_of_the_last_one():
    job = UnevenWorkers(8, 0.160, 0.3, 0.020)
    job.bench.prepare(DEVICE)
    job.bench.measure(DEVICE, 0, 4)
    levels = []
    for number in range(20):
        job.bench.prepare(RAW)
        block = job.bench.measure(RAW, number, 20)
        levels.append((block.queue_before, block.queue_after))
    kept = [abs(after - before) for (_, after), (before, _) in itertools.pairwise(levels)]
    assert sum(kept) / len(kept) <= 3  # of a queue of 16; a turn of the workers lies between


def test_a_block_ends_at_the_level_it_began_with_or_after_four_queues():
    job = UnevenWorkers(4, 0.060, 0.3, 0.020)
    for number in range(10):
        job.bench.prepare(RAW)
        block = job.bench.measure(RAW, number, 5)
        assert block.batches >= 5
        assert block.queue_after == block.queue_before or block.batches == 4 * job.queue_length


def test_a_block_does_not_wait_for_its_level_when_the_time_is_over():
    job = UnevenWorkers(8, 0.4, 0.3, 0.020)
    job.bench.prepare(RAW)
    job.bench.until_s = job.now_s
    assert job.bench.measure(RAW, 0, 3).batches == 3


def test_a_queue_that_fills_as_fast_as_it_is_emptied_is_not_emptied_for_ever():
    job = UnevenWorkers(2, 1e-9, 0.0, 0.020)
    job.bench.prepare(RAW)
    job.bench._steady._levels[RAW] = 0
    job.bench.prepare(RAW)
    assert job.bench.measure(RAW, 0, 5).batches == 5

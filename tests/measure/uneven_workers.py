"""Workers whose batches take uneven times, in invented time."""

import itertools
import math
import random

from bottleneck.loader import modes
from bottleneck.loader.control import BatchTally
from bottleneck.measure.bench import Bench
from bottleneck.measure.caches import BatchCache, CachedBatch
from bottleneck.measure.ladder import Arm

RAW, DEVICE = Arm(modes.ALL, "loader"), Arm(None, "device")
PREFETCH = 2


class UnevenWorkers:
    """Workers whose batches take log-normal times, delivered in order, and a job that takes them; in invented time."""

    def __init__(self, workers, worker_s, cv, step_s, seed=0):
        self.now_s, self.step_s = 10.0, step_s
        self.num_workers, self.queue_length = workers, PREFETCH * workers
        self.random = random.Random(seed)
        spread = math.sqrt(math.log1p(cv * cv))
        self.draw = lambda: worker_s * self.random.lognormvariate(-spread * spread / 2, spread)
        self.due_s, self.free_s, self.asked, self.log = [], [self.now_s] * workers, 0, []
        self.made = [[] for _ in range(workers)]
        nothing = BatchCache([CachedBatch("batch", 1)])
        self.bench = Bench(
            loader=self, host=nothing, device=nothing, transfer=lambda batch: batch, step=self.step,
            synchronize=lambda: None, clock=lambda: self.now_s, pause=self.pass_time,
        )  # fmt: skip

    def pass_time(self, seconds):
        self.now_s += seconds

    def step(self, batch):
        self.log.append("step")
        self.now_s += self.step_s

    def ask(self):
        worker = self.asked % self.num_workers
        self.asked += 1
        took_s = self.draw()
        self.made[worker].append(took_s)
        self.free_s[worker] = max(self.free_s[worker], self.now_s) + took_s
        self.due_s.append(self.free_s[worker])

    def switch(self, mode):
        self.log.append("switch")
        self.now_s = max([self.now_s, *(s for s in self.free_s if s < self.now_s + 1e3)])  # begun batches are finished
        self.free_s, self.due_s, self.asked = [self.now_s] * self.num_workers, [], 0
        for _ in range(self.queue_length):
            self.ask()

    def rest(self):
        self.log.append("rest")
        self.due_s = []

    def arrived(self):
        return sum(due_s <= self.now_s for due_s in self.due_s)

    def next_has_arrived(self):
        return self.due_s[0] <= self.now_s

    def is_ahead(self):
        return self.arrived() == self.queue_length

    def next_batch(self):
        self.now_s = max(self.now_s, self.due_s.pop(0))
        self.log.append("next")
        self.ask()
        return "batch", 1

    def tallies(self):
        """Return the batches of the workers so far, by their clocks."""
        done = [
            [
                took_s
                for took_s, done_s in zip(made, itertools.accumulate(made), strict=True)
                if 10 + done_s <= self.now_s
            ]
            for made in self.made
        ]
        return [
            BatchTally(own[0] if own else 0.0, len(own[1:]), sum(own[1:]), sum(s * s for s in own[1:])) for own in done
        ]

    # --- comparison ---

    def long_run_loss(self, batches=6000):
        self.switch(modes.ALL)
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

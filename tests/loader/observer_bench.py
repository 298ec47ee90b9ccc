"""Datasets that take invented time, and an engine that observes them."""

import math

import pytest
import torch
from torch.utils.data import Dataset, IterableDataset

import bottleneck
from bottleneck.job import marks
from bottleneck.loader import modes
from bottleneck.loader.observing import observe as observe_module
from bottleneck.loader.observing.meter import Clocks
from bottleneck.loader.observing.observe import Observer
from tests.loader.engine_bench import engines

OBSERVE = modes.ALL & ~modes.HANDOFF | modes.OBSERVE
SIZE = 2


class Clock:
    """Invented time, of the wall and of the CPU; `ready_s` of the wall's passed without a core."""

    def __init__(self):
        self.wall_s, self.cpu_s, self.ready_s = 100.0, 7.0, 3.0

    def spin(self, seconds):
        self.wall_s += seconds
        self.cpu_s += seconds

    def sleep(self, seconds):
        self.wall_s += seconds

    def starve(self, seconds):
        self.wall_s += seconds
        self.ready_s += seconds


CLOCK = Clock()


class Work:
    """A transform that computes for a while and waits for a while."""

    def __init__(self, spin_s=0.0, sleep_s=0.0):
        self.spin_s, self.sleep_s = spin_s, sleep_s

    def __call__(self, image):
        CLOCK.spin(self.spin_s)
        CLOCK.sleep(self.sleep_s)
        return image + 1


class Flip(Work):
    pass


class Photos(Dataset):
    """Loading waits 3 s and computes 1 s; augmentation is given."""

    def __init__(self, transform=None):
        self.transform = transform or Work(spin_s=4.0)

    def __len__(self):
        return 1000

    def __getitem__(self, index):
        return self.transform(self.load(index)), index

    def load(self, index):
        CLOCK.sleep(3.0)
        CLOCK.spin(1.0)
        return torch.full((1, 4, 4), float(index))


class Opaque(Photos):
    def __init__(self):
        pass

    def __getitem__(self, index):
        CLOCK.spin(5.0)
        return torch.zeros(4), index


class Marked(Photos):
    def __getitem__(self, index):
        CLOCK.sleep(0.5)
        return self.decode(index), index

    @bottleneck.stage("decode")
    def decode(self, index):
        CLOCK.spin(1.0)
        return self.transform(self.read(index))

    @bottleneck.stage("read")
    def read(self, index):
        CLOCK.sleep(2.0)
        return torch.full((1, 4, 4), float(index))


class Stream(IterableDataset):
    def __init__(self):
        self.transform = Work(spin_s=4.0)

    def __iter__(self):
        for number in range(1000):
            CLOCK.sleep(3.0)
            yield self.transform(torch.full((4,), float(number)))


@bottleneck.stage("pad")
def pad(samples):
    CLOCK.spin(0.5)
    return samples


def collate(samples):
    CLOCK.spin(0.25)
    return torch.utils.data.default_collate(samples)


def collate_with_mark(samples):
    CLOCK.spin(0.25)
    return torch.utils.data.default_collate(pad(samples))


def patience(monkeypatch):
    """Invented seconds are many."""
    monkeypatch.setattr(observe_module, "ENOUGH_S", math.inf)


def benches():
    """Makes engines that have recorded, and observe in invented time."""
    engine_makers = engines()
    make_engine = next(engine_makers)

    def make_bench(dataset, collate_fn=collate):
        bench = make_engine(dataset, batches=3, collate_fn=collate_fn, clock=lambda: CLOCK.wall_s)
        engine = bench.engine
        clocks = Clocks(lambda: CLOCK.wall_s, lambda: CLOCK.cpu_s, lambda: CLOCK.ready_s)
        engine._observer = Observer(engine._user_code, engine._tape, bench.control, engine._observer._roots, clocks)
        return bench

    yield make_bench
    next(engine_makers, None)
    assert marks.handler is None


def observe(bench, batches=1):
    for number in range(batches):
        assert bench.run(OBSERVE, 50 + number * SIZE)[0] is None  # nothing is handed over
    return bench.control.observations.by_worker().get(0)


def times(seen):
    """(wall, CPU) seconds of each stage, for a batch."""
    return {
        stage: (pytest.approx(spent.wall_s / seen.batches), pytest.approx(spent.cpu_s / seen.batches))
        for stage, spent in seen.stages.items()
    }

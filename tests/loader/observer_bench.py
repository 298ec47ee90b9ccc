"""Datasets that take invented time, and an engine that observes them."""

import itertools
import math

import pytest
import torch
from torch.utils.data import Dataset, IterableDataset

import bottleneck
from bottleneck.job import marks
from bottleneck.job.cuts import find_sites
from bottleneck.loader import modes
from bottleneck.loader import observe as observe_module
from bottleneck.loader.control import Control
from bottleneck.loader.engine import Engine
from bottleneck.loader.observation import Clocks
from bottleneck.loader.observe import Observer
from bottleneck.loader.plan import make_plan

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
    """Loading waits 3 s and computes 1 s; augmentation is given; what follows it takes `finish_s`."""

    finish_s = 0.0

    def __init__(self, transform=None):
        self.transform = transform or Work(spin_s=4.0)

    def __len__(self):
        return 1000

    def __getitem__(self, index):
        image = self.transform(self.load(index))
        CLOCK.spin(self.finish_s)
        return (image * 2 if self.finish_s else image), index

    def load(self, index):
        CLOCK.sleep(3.0)
        CLOCK.spin(1.0)
        return torch.full((1, 4, 4), float(index))


class Finishing(Photos):
    finish_s = 2.0


class Inline(Photos):
    """Loading that is in no function of its own, and code behind the augmentation."""

    def __getitem__(self, index):
        CLOCK.sleep(3.0)
        image = torch.full((1, 4, 4), float(index))
        image = self.transform(image)
        CLOCK.spin(2.0)
        return image * 2, index


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


class Batched(Photos):
    def __getitems__(self, indices):
        return [self[index] for index in indices]


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


class Bench:
    """An engine that has recorded, and observes in invented time."""

    def __init__(self, dataset, collate_fn, batched):
        self.dataset, self.batched = dataset, batched
        self.control = Control(1)
        self.control.worker_cache_bytes = 10**6
        self.iterable = isinstance(dataset, IterableDataset)
        sites = find_sites(dataset)
        self.engine = Engine(dataset, collate_fn, self.control, sites, seed=0, batched=batched, iterable=self.iterable)
        self.engine.start()
        self.engine._tape.clock = lambda: CLOCK.wall_s
        user_code = self.engine._user_code
        self.engine._observer = Observer(
            user_code, self.engine._tape, self.control, self.engine._observer._roots,
            Clocks(lambda: CLOCK.wall_s, lambda: CLOCK.cpu_s, lambda: CLOCK.ready_s),
        )  # fmt: skip
        self.stream = self.engine.iterate() if self.iterable else None
        for number in range(3):
            self.make(modes.RECORD | modes.ALL, number * SIZE)
        self.plan = make_plan([self.engine.report()], iterable=self.iterable)
        self.control.publish_plan(self.plan)

    def make(self, mode, first=50):
        self.control.mode = mode
        if self.stream is not None:
            return self.engine.collate(list(itertools.islice(self.stream, SIZE)))
        request = list(range(first, first + SIZE)) if self.batched else first
        return self.engine.collate(self.engine.fetch(request))

    def observe(self, batches=1):
        for number in range(batches):
            assert self.make(OBSERVE, 50 + number * SIZE) is None  # nothing is handed over
        return self.seen()

    def seen(self):
        return self.control.observations.by_worker().get(0)


def patience(monkeypatch):
    """Invented seconds are many."""
    monkeypatch.setattr(observe_module, "ENOUGH_S", math.inf)


def benches():
    """Makes benches, and closes what they hold."""
    made = []

    def make_bench(dataset, collate_fn=collate, *, batched=True):
        made.append(Bench(dataset, collate_fn, batched))
        return made[-1]

    yield make_bench
    for bench in made:
        bench.control.close()
        assert bench.engine._tape.handler is None
    assert marks.handler is None


def times(seen):
    """(wall, CPU) seconds of each stage, for a batch."""
    return {
        stage: (pytest.approx(spent.wall_s / seen.batches), pytest.approx(spent.cpu_s / seen.batches))
        for stage, spent in seen.stages.items()
    }

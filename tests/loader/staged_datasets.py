"""Datasets and loaders for tests with real workers; a separate module, so that spawned workers can import it."""

import itertools
import os
import time
from contextlib import contextmanager

import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset, get_worker_info

from bottleneck.job.cuts import find_sites
from bottleneck.loader import modes
from bottleneck.loader.recording.plan import make_plan
from bottleneck.loader.switched import SwitchedLoader

INDEX, LOAD_PID, LOAD_CALL, AUGMENT_CALL = range(4)


class Traced(Dataset):
    """Each sample says which index it was loaded for, by which process, and by which call of each stage."""

    def __init__(self, length=100_000, pause_s=0.0):
        self.length = length
        self.pause_s = pause_s
        self.loads = self.augments = 0

    def __len__(self):
        return self.length

    def __getitem__(self, index):
        return self.augment(self.load(index))

    def load(self, index):
        self.loads += 1
        if self.pause_s:
            time.sleep(self.pause_s)
        return torch.tensor([index, os.getpid(), self.loads, 0])

    def augment(self, sample):
        self.augments += 1
        return sample + torch.tensor([0, 0, 0, self.augments])


class SlowAt(Traced):
    """One index takes very long."""

    def __init__(self, slow_index, slow_s):
        super().__init__()
        self.slow_index, self.slow_s = slow_index, slow_s

    def load(self, index):
        if index == self.slow_index:
            time.sleep(self.slow_s)
        return super().load(index)


class AsksForItself(Traced):
    """Says what `get_worker_info().dataset` is."""

    def load(self, index):
        info = get_worker_info()
        own = info is None or info.dataset is self
        return torch.tensor([index, os.getpid(), int(own), 0])


class LargePickles(Traced):
    """Batches that travel as pickles of some megabytes."""

    def __getitem__(self, index):
        return [bytes(500_000), index]


class Stream(IterableDataset):
    """Numbers, shared out among the workers; with `share_for` some of these get nothing."""

    def __init__(self, length=None, share_for=None):
        self.length = length
        self.share_for = share_for
        self.augments = 0

    def __iter__(self):
        info = get_worker_info()
        worker, workers = (info.id, info.num_workers) if info is not None else (0, 1)
        if self.share_for is not None and worker >= self.share_for:
            return
        numbers = itertools.count() if self.length is None else range(self.length)
        for number in numbers:
            if number % workers == worker:
                yield self.augment(torch.tensor([number, os.getpid(), 0, 0]))

    def augment(self, sample):
        self.augments += 1
        return sample + torch.tensor([0, 0, 0, self.augments])


def stack(samples):
    return torch.stack(list(samples))


def stack_if_many(samples):
    """The batch as a matrix, also of a loader that does not batch."""
    return torch.stack(samples) if isinstance(samples, list) else samples[None]


def note_dataset(worker):
    """A `worker_init_fn` that works on the dataset, as users' do."""
    get_worker_info().dataset.length = 1000 + worker


@contextmanager
def switched(loader, *, cache_bytes=10**7, hang_s=30.0, record=True, augment=None):
    """A started loader that has recorded, and is closed in the end."""
    sites = find_sites(loader.dataset, augment)
    wrapped = SwitchedLoader(loader, sites, seed=0, hang_s=hang_s)
    wrapped.allow_caches(cache_bytes // max(1, loader.num_workers))
    try:
        wrapped.start()
        if record:
            wrapped.plan = record_with(wrapped)
        yield wrapped
    finally:
        wrapped.close()


def record_with(wrapped, batches=4):
    """Let the workers record; returns the plan, which they then use."""
    wrapped.switch(modes.RECORD | modes.ALL)
    workers = max(1, wrapped.num_workers)
    wrapped.recorded = []
    for _ in range(200):
        batch, _ = wrapped.next_batch()
        if batch is not None:
            wrapped.recorded.append(batch)
        if len(wrapped.recorded) >= batches and len(wrapped.reports()) >= workers:
            break
    plan = make_plan(wrapped.reports(), iterable=wrapped.iterable)
    wrapped.use_plan(plan)
    return plan


def take(wrapped, experiment, count):
    """The first batches after a switch."""
    wrapped.switch(modes.MODE_OF_EXPERIMENT.get(experiment, experiment))
    return [wrapped.next_batch()[0] for _ in range(count)]


def column(batches, number):
    return {int(value) for batch in batches for value in batch[:, number]}


def plain(dataset, **options):
    """A loader as users make them."""
    return DataLoader(dataset, **{"batch_size": 4, "num_workers": 2, **options})

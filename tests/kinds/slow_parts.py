"""Datasets of every kind, each with one slow part; a separate module, so that spawned workers can import it.

The slow part sleeps, several times as long as the train step, so that other load on the machine decides nothing.
"""

import itertools
import threading
import time

import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset, default_collate, get_worker_info

import bottleneck
from tests.support.datasets import Repeated
from tests.support.looks import check_verdict, diagnose_until, names

BUDGETS_S = (7.0, 15.0, 30.0)
STEP_S = 0.001
SAMPLE_S = 0.004
BATCH_SIZE = 2


def train_step(batch):
    time.sleep(STEP_S)


def job_of(dataset, **options):
    """A job with a quick step, and with one worker by default."""
    workers = max(1, options.get("num_workers", 1))
    given = {"batch_size": BATCH_SIZE * workers, "num_workers": 1, "train_step": train_step, "device": "cpu"}
    if "batch_sampler" in options:
        del given["batch_size"]
    return {"dataset": dataset, **given, **options}


def check_slow_part(expected, dataset, budget=None, **options):
    """Diagnose and check; at length, should others have kept the machine busy in so short a time."""
    first_s = budget or BUDGETS_S[0] * (1 + max(1, options.get("num_workers", 1))) / 2
    return _check(expected, job_of(dataset, **options), first_s)


def check_both_parts(dataset, **options):
    """The slow part, `load`, is named, and the augmentation is told apart from it."""
    diagnosis = check_slow_part("load", dataset, **options)
    assert [stage.name for stage in diagnosis.stages][-2:] == ["augment", "load"]


def check_slow_part_of(expected, loader):
    """The same for a loader."""
    _check(expected, bottleneck.Pipeline.from_loader(loader, train_step=train_step, device="cpu"), BUDGETS_S[0])


def _check(expected, job, first_s):
    diagnosis = diagnose_until(names(expected), job, (first_s, *BUDGETS_S[1:]))
    check_verdict(diagnosis, expected)
    return diagnosis


def rest(slow, samples=1):
    if slow:
        time.sleep(samples * SAMPLE_S)


class Parts:
    """The pieces of work in a dataset, of which one is slow."""

    def __init__(self, slow=None, length=100_000):
        self.slow, self.length = slow, length

    def load(self, index):
        rest(self.slow == "load")
        return torch.full((8,), float(index))

    def augment(self, sample):
        rest(self.slow == "augment")
        return sample + 1.0


def collate_slowly(samples):
    time.sleep(len(samples) * SAMPLE_S)
    return default_collate(samples)


def collate_of(slow, collate=default_collate):
    """A collate function that is slow if it is the part that shall be; None: PyTorch's own."""
    if slow == "collate":
        return collate_slowly if collate is default_collate else SlowCollate(collate)
    return None if collate is default_collate else collate


class SlowCollate:
    def __init__(self, collate):
        self.collate = collate

    def __call__(self, samples):
        time.sleep(len(samples) * SAMPLE_S)
        return self.collate(samples)


# --- map-style ---------------------------------------------------------------------------------------------


class Map(Parts, Dataset):
    def __len__(self):
        return self.length

    def __getitem__(self, index):
        return self.augment(self.load(index))


class WithItems(Map):
    """`__getitems__` that fetches sample by sample."""

    def __getitems__(self, indices):
        return [self[index] for index in indices]


class Columns(Map):
    """`__getitems__` that reads and transforms a whole batch at once, as Hugging Face's datasets do."""

    def __getitems__(self, indices):
        columns = self.transform(self.read(indices))
        return [{name: column[row] for name, column in columns.items()} for row in range(len(indices))]

    def __getitem__(self, index):
        return self.__getitems__([index])[0]

    def read(self, indices):
        rest(self.slow == "load", len(indices))
        return {"index": torch.tensor(indices), "pixels": torch.zeros(len(indices), 8)}

    def transform(self, columns):
        rest(self.slow == "augment", len(columns["index"]))
        return {**columns, "pixels": columns["pixels"] + 1}


class Pipelined(Map):
    """A list of transforms of which the first one loads, called one by one in a helper, as in OpenMMLab's datasets."""

    def __init__(self, slow):
        super().__init__(slow)
        self.pipeline = [LoadFromFile(slow == "load"), Flip(slow == "augment")]

    def __getitem__(self, index):
        return self.prepare_data(index)

    def prepare_data(self, index):
        record = {"index": index}
        for transform in self.pipeline:
            record = transform(record)
        return record


class LoadFromFile:
    def __init__(self, slow):
        self.slow = slow

    def __call__(self, record):
        rest(self.slow)
        return record | {"image": torch.zeros(8)}


class Flip(LoadFromFile):
    def __call__(self, record):
        rest(self.slow)
        return record | {"image": record["image"].flip(0)}


class Opaque(Map):
    """Nothing in it can be cut."""

    def __getitem__(self, index):
        time.sleep(SAMPLE_S)
        return torch.full((8,), float(index))


class Pieces(Map):
    """An item is a whole batch, asked for with a list of indices."""

    def __getitem__(self, indices):
        return torch.stack([self.augment(self.load(index)) for index in indices])


class Rows(Map):
    """Indices may be of any type that means a number, or pairs of a number and a size."""

    def __getitem__(self, index):
        number, size = index if isinstance(index, tuple) else (index, 8)
        return self.augment(self.load(int(number)))[:size]


# --- streams -----------------------------------------------------------------------------------------------


class Stream(Parts, IterableDataset):
    """Numbers divided among the workers, endless without a length.

    With `share_for`, workers from this number on get nothing.
    """

    def __init__(self, slow=None, length=None, share_for=None):
        super().__init__(slow, length)
        self.share_for = share_for

    def __iter__(self):
        return (self.augment(self.load(number)) for number in self.numbers())

    def numbers(self):
        info = get_worker_info()
        first, workers = (0, 1) if info is None else (info.id, info.num_workers)
        if self.share_for is not None:
            if first >= self.share_for:
                return iter(())
            workers = self.share_for
        return itertools.count(first, workers) if self.length is None else iter(range(first, self.length, workers))


class Steps(Stream):
    """A custom iterator: `__next__` does the work, and `__iter__` begins again."""

    def __iter__(self):
        self.left = self.numbers()
        return self

    def __next__(self):
        return self.augment(self.load(next(self.left)))


class Batches(Stream):
    """A stream of whole batches."""

    def __iter__(self):
        for number in self.numbers():
            yield torch.stack([self.augment(self.load(number)) for _ in range(BATCH_SIZE)])


class Shuffled(Stream):
    """Items leave a buffer at another time than they enter it, as in most streams that are shuffled."""

    def __iter__(self):
        buffer = []
        for number in self.numbers():
            buffer.append(self.augment(self.load(number)))
            if len(buffer) == 8:
                yield buffer.pop(number % 8)
        yield from buffer


class Shards(Stream):
    """A stream whose workers get their part of the numbers from a `worker_init_fn`."""

    start, stop = 0, 0

    def numbers(self):
        return iter(range(self.start, self.stop))


def give_shard(worker):
    info = get_worker_info()
    info.dataset.start, info.dataset.stop = 1000 * worker, 1000 * (worker + 1)


class NamedBySplit(Map):
    """Works only in a worker that has been told what to read."""

    folder = None

    def load(self, index):
        assert self.folder is not None
        return super().load(index)


def name_folder(worker):
    get_worker_info().dataset.folder = f"part-{worker}"


# --- what datasets hold ------------------------------------------------------------------------------------


class Archive(Map):
    """Opens its file in the first `__getitem__`, as datasets over HDF5 files do."""

    def __init__(self, slow, path):
        super().__init__(slow)
        self.path, self.file = path, None

    def __getitem__(self, index):
        if self.file is None:
            self.file = open(self.path, "rb")  # noqa: SIM115 - kept open for all samples, as those datasets do
        return self.augment(self.load(index))

    def load(self, index):
        rest(self.slow == "load")
        self.file.seek(8 * (index % 100))
        return torch.frombuffer(bytearray(self.file.read(8)), dtype=torch.uint8).float()


class Locked(Map):
    """Cannot be pickled or copied: with fork it need not be."""

    def __init__(self, slow):
        super().__init__(slow)
        self.lock = threading.Lock()

    def load(self, index):
        with self.lock:
            return super().load(index)


class Unpicklable(Map):
    """Holds a lambda for its transform, and a generator."""

    def __init__(self, slow):
        super().__init__(slow)
        self.numbers = (number for number in range(10))
        self.transform = lambda sample: self.augment(sample * 2)

    def __getitem__(self, index):
        return self.transform(self.load(index))


class Large(Map):
    """Takes its time to be pickled."""

    def __init__(self, slow):
        super().__init__(slow)
        self.pixels = torch.zeros(8_000_000)


# --- loaders -----------------------------------------------------------------------------------------------


class NamedLoader(DataLoader):
    """A subclass with another signature; PyTorch's iterator."""

    def __init__(self, dataset, *, name, **options):
        super().__init__(dataset, batch_size=BATCH_SIZE, num_workers=1, **options)
        self.name = name


class ScaledLoader(NamedLoader):
    """A subclass with a custom iterator, which works on every batch."""

    def __iter__(self):
        for batch in super().__iter__():
            yield batch * 2


class RepeatingLoader(DataLoader):
    """Keeps its workers from epoch to epoch by holding an iterator that never ends, as some training codes do."""

    def __init__(self, dataset, **options):
        super().__init__(dataset, **options)
        object.__setattr__(self, "batch_sampler", Repeated(self.batch_sampler))
        self.iterator = super().__iter__()

    def __len__(self):
        return len(self.batch_sampler.sampler)

    def __iter__(self):
        for _ in range(len(self)):
            yield next(self.iterator)

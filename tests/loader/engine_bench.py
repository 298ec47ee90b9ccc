"""Datasets in which every stage is work, and engines that have recorded them, in this very process."""

import itertools

import torch
from torch.utils.data import Dataset, IterableDataset, Subset, default_collate

from bottleneck.job.cuts import find_sites
from bottleneck.loader import modes
from bottleneck.loader.control import Blank, Control
from bottleneck.loader.engine import Engine
from bottleneck.loader.recording.plan import make_plan

RUN_LOAD, RUN_AUGMENT, RUN_FINISH, RUN_COLLATE = "load", "augment", "finish", "collate"
LADDER = ("after_collate", "before_collate", "before_augment", "raw")


def work(dataset, what):
    """Writes down that a stage ran; it takes a thousandth of a second of an invented clock."""
    dataset.log.append(what)
    dataset.now_s[0] += 1e-3


class Photos(Dataset):
    """Every stage is work."""

    finishes = True

    def __init__(self):
        self.log, self.now_s = [], [0.0]

    def __len__(self):
        return 100

    def __getitem__(self, index):
        image = self.load_image(index)
        image = self.augment(image)
        if self.finishes:
            work(self, RUN_FINISH)
            image = image * 2
        return image, index

    def load_image(self, index):
        work(self, RUN_LOAD)
        return torch.full((2,), float(index))

    def augment(self, image):
        work(self, RUN_AUGMENT)
        return image + 0.5


class NothingBehind(Photos):
    finishes = False


class LoadedInline(Photos):
    """Inline code before the augmentation, and after it."""

    def __getitem__(self, index):
        work(self, RUN_LOAD)
        image = torch.full((2,), float(index))
        image = self.augment(image)
        work(self, RUN_FINISH)
        return image * 2, index


class OnlyLoaderCut(Photos):
    """A dataset whose work after loading is in no function."""

    def __getitem__(self, index):
        image = self.load_image(index)
        work(self, RUN_AUGMENT)
        return image * 2, index


class Opaque(Photos):
    def __getitem__(self, index):
        work(self, RUN_LOAD)
        work(self, RUN_AUGMENT)
        work(self, RUN_FINISH)
        return torch.full((2,), float(index)), index


class Batched(Photos):
    def __getitems__(self, indices):
        return [self[index] for index in indices]


class Stream(IterableDataset):
    """A finite stream; `endless` repeats it."""

    def __init__(self, length=5, endless=False):
        self.log, self.now_s = [], [0.0]
        self.length = length
        self.endless = endless

    def __iter__(self):
        numbers = itertools.cycle(range(self.length)) if self.endless else range(self.length)
        for number in numbers:
            work(self, RUN_LOAD)
            yield self.augment(torch.full((2,), float(number)))

    def augment(self, image):
        work(self, RUN_AUGMENT)
        return image + 0.5


def engines():
    """Makes engines that have recorded, and closes what they hold."""
    controls = []

    def make_engine(dataset, *, batched=True, batches=2, size=2, collate_fn=None, **options):
        cache_bytes, augment = options.pop("cache_bytes", 10**6), options.pop("augment", None)
        clock = options.pop("clock", lambda: now_s[0])
        iterable = isinstance(dataset, IterableDataset)
        log, now_s = getattr(_innermost(dataset), "log", []), getattr(_innermost(dataset), "now_s", [0.0])

        def collate(samples):
            log.append(RUN_COLLATE)
            return (collate_fn or default_collate)(samples)

        control = Control(1)
        controls.append(control)
        sites = find_sites(dataset, augment)
        control.worker_cache_bytes = cache_bytes
        logged = collate if hasattr(_innermost(dataset), "log") else collate_fn
        engine = Engine(dataset, logged, control, sites, seed=0, batched=batched, iterable=iterable)
        vars(engine).update(options)
        engine.start()
        engine._tape.clock = clock
        bench = Bench(engine, control, log, size)
        for number in range(batches):
            bench.record(number)
        if batches:
            bench.plan = make_plan([engine.report()], iterable=iterable)
            control.publish_plan(bench.plan)
        return bench

    yield make_engine
    for control in controls:
        control.close()


def _innermost(dataset):
    while isinstance(dataset, Subset):
        dataset = dataset.dataset
    return dataset


class Bench:
    def __init__(self, engine, control, log, size):
        self.engine, self.control, self.log, self.size = engine, control, log, size
        self.stream = engine.iterate() if engine.iterable else None
        self.plan = None

    def ask(self, mode, request):
        """One batch in a mode, as a worker makes it."""
        self.control.mode = mode
        if self.stream is not None:
            samples = list(itertools.islice(self.stream, self.size)) if self.engine.batched else next(self.stream)
        else:
            samples = self.engine.fetch(request)
        return self.engine.collate(samples)

    def record(self, number=0):
        first = number * self.size
        request = list(range(first, first + self.size)) if self.engine.batched else first
        return self.ask(modes.RECORD | modes.ALL, request)

    def run(self, experiment, first=50):
        """One batch in an experiment's mode, and the stages that ran for it."""
        mode = modes.MODE_OF_EXPERIMENT.get(experiment, experiment)
        request = list(range(first, first + self.size)) if self.engine.batched else first
        if not modes.reads_indices(mode):
            request = Blank(self.size if self.engine.batched else 1, self.control.generation)
        self.log.clear()
        batch = self.ask(mode, request)
        return batch, set(self.log)

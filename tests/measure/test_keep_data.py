"""Loader, samplers and dataset are as they were, and nothing large is copied for it."""

import random
import types

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import (
    BatchSampler,
    ConcatDataset,
    DataLoader,
    Dataset,
    DistributedSampler,
    RandomSampler,
    Sampler,
    Subset,
    TensorDataset,
    WeightedRandomSampler,
)

from bottleneck.measure.keep import preserved as keep
from bottleneck.measure.keep.preserved import preserved
from bottleneck.measure.keep.search import Search


class Counting(Dataset):
    """Counts, caches, and draws its own random numbers."""

    def __init__(self):
        self.calls = 0
        self.cache = {}
        self.transform = RandomShift()

    def __len__(self):
        return 8

    def __getitem__(self, index):
        self.calls += 1
        self.cache[index] = True
        return self.transform(torch.tensor(float(index)))


class RandomShift:
    def __init__(self):
        self.random = random.Random(0)
        self.numpy = np.random.default_rng(0)
        self.legacy = np.random.RandomState(0)

    def __call__(self, value):
        return value + self.random.random() + self.numpy.random() + self.legacy.rand()


class CurriculumSampler(Sampler):
    """A sampler that knows how far it is."""

    def __init__(self, data):
        self.data = data
        self.epoch = 0
        self.weights = torch.ones(len(data))

    def __iter__(self):
        self.epoch += 1
        self.weights.mul_(0.5)
        yield from range(len(self.data))

    def __len__(self):
        return len(self.data)


def seeded():
    return torch.Generator().manual_seed(5)


SAMPLERS = {
    "shuffle, generator": lambda data: {"shuffle": True, "generator": seeded()},
    "shuffle, global": lambda data: {"shuffle": True},
    "weighted": lambda data: {"sampler": WeightedRandomSampler([1.0] * 8, 8, generator=seeded())},
    "batch sampler": lambda data: {
        "batch_sampler": BatchSampler(RandomSampler(data, generator=seeded()), 2, False),
        "batch_size": 1,
    },
    "distributed": lambda data: {"sampler": DistributedSampler(data, num_replicas=2, rank=0, seed=3)},
    "curriculum": lambda data: {"sampler": CurriculumSampler(data)},
}


def epoch(loader):
    return [batch.tolist() for batch in loader]


@pytest.mark.parametrize("name", SAMPLERS)
def test_the_next_epoch_is_the_one_that_would_have_come(name):
    epochs = []
    for is_diagnosed in (False, True):
        torch.manual_seed(0)
        data = Counting()
        loader = DataLoader(data, **{"batch_size": 2, **SAMPLERS[name](data)})
        epoch(loader)
        if is_diagnosed:
            before = dict(vars(loader.sampler))
            with preserved(loader=loader, dataset=data) as kept:
                epoch(loader)
                if isinstance(loader.sampler, DistributedSampler):
                    loader.sampler.set_epoch(7)
                epoch(loader)
            assert kept.notes == []
            assert vars(loader.sampler) == before
        epochs.append((epoch(loader), data.calls, sorted(data.cache)))
    assert epochs[0] == epochs[1]


def test_attributes_of_nested_datasets_go_back_by_identity():
    inner = Counting()
    dataset = ConcatDataset([Subset(inner, [0, 1]), Counting()])
    transform, cache = inner.transform, inner.cache
    with preserved(dataset=dataset):
        dataset[0]
        inner.transform = None
        inner.added = 1
        dataset.datasets.append("more")
        del dataset.cumulative_sizes
    assert inner.transform is transform
    assert inner.cache is cache
    assert cache == {}
    assert inner.calls == 0
    assert not hasattr(inner, "added")
    assert dataset.cumulative_sizes == [2, 10]
    assert len(dataset.datasets) == 2


def test_a_dataset_without_dataset_as_its_base_goes_back():
    class Plain:
        __slots__ = ("count",)

        def __init__(self):
            self.count = 0

    plain = Plain()
    with preserved(dataset=plain):
        plain.count = 3
    assert plain.count == 0


class Guarded(list):
    """A list of samples that must not be read as a whole."""

    def __iter__(self):
        raise AssertionError("copied")


class Large(Dataset):
    def __init__(self):
        self.samples = Guarded(range(20_000))
        self.pixels = torch.zeros(2**23)  # 32 MiB
        self.table = np.zeros(2**22)  # 32 MiB
        self.mean = torch.zeros(3)
        self.counts = np.zeros(3)


@pytest.mark.parametrize("by_the_step", [False, True])
def test_large_content_of_a_dataset_is_not_copied(by_the_step, monkeypatch):
    dataset = Large()
    samples = dataset.samples
    monkeypatch.setattr(keep, "rank_memory_bytes", lambda: 15)  # the mean takes 12 of them

    class Trainer:
        def __init__(self):
            self.loader = DataLoader(TensorDataset(dataset.pixels))

        def step(self, batch):
            return self.loader, dataset

    with preserved(train_step=Trainer().step) if by_the_step else preserved(dataset=dataset) as kept:
        dataset.samples = None
        dataset.mean.add_(1)
        dataset.counts += 1
    assert dataset.samples is samples
    assert (dataset.mean.tolist(), dataset.counts.tolist()) == ([0, 0, 0], [0, 0, 0])
    assert kept.notes == []


MIB_OF_FLOATS = 2**18


def holding(**held):
    dataset = Dataset()
    vars(dataset).update(held)
    return dataset


def test_of_a_large_storage_a_small_view_goes_back():
    base = torch.zeros(32 * MIB_OF_FLOATS)
    with preserved(dataset=holding(mean=base[:10])) as kept:
        base.add_(1)
    assert base[:12].tolist() == [0] * 10 + [1] * 2
    assert kept.notes == []


def test_a_large_tensor_that_was_written_to_is_noted():
    dataset = holding(pixels=torch.zeros(32 * MIB_OF_FLOATS), eye=torch.eye(3).to_sparse())
    with preserved(dataset=dataset) as kept:
        dataset.pixels[0] = 1
        dataset.eye.zero_()
    (note,) = kept.notes
    assert note.message.startswith("the dataset.pixels and 1 more like it could not be restored (")
    assert "too large to be copied" in note.message


# --- tensors of unusual kinds go back too, and what cannot be kept is said ---------------------------------


def _inference_tensor():
    with torch.inference_mode():
        return torch.arange(3.0)


ODD_TENSORS = {
    "expanded": lambda: torch.ones(1).expand(5),
    "strided": lambda: torch.arange(10.0)[::3],
    "conjugate": lambda: torch.randn(3, dtype=torch.complex64).conj(),
    "float8": lambda: torch.randn(3).to(torch.float8_e4m3fn),
    "nan payload": lambda: torch.tensor([0x7FC00001, -(2**31)], dtype=torch.int32).view(torch.float32),
    "scalar": lambda: torch.tensor(3.0),
    "empty": lambda: torch.empty(0, 3),
    "sparse": lambda: torch.eye(3).to_sparse(),
    "csr": lambda: torch.eye(3).to_sparse_csr(),
    "quantized": lambda: torch.quantize_per_tensor(torch.ones(3), 0.1, 0, torch.qint8),
    "inference": _inference_tensor,
}


def _bytes(tensor):
    tensor = tensor.detach()
    if tensor.is_quantized:
        tensor = tensor.int_repr()
    dense = tensor.to_dense() if tensor.layout is not torch.strided else tensor.resolve_conj().contiguous()
    return bytes(dense.clone().untyped_storage().tolist())


def _overwrite(tensor):
    """Change the content in place, with whatever this kind of tensor allows."""
    if tensor.layout is torch.sparse_coo:
        tensor.zero_()
    elif tensor.layout is torch.sparse_csr:
        tensor.values().zero_()
    else:
        storage = tensor.untyped_storage()
        torch.empty(0, dtype=torch.uint8).set_(storage).fill_(1)


@pytest.mark.filterwarnings("ignore:Sparse:UserWarning", "ignore:.*quantized tensor:UserWarning")
@pytest.mark.parametrize("name", ODD_TENSORS)
def test_odd_tensors_are_put_back(name):
    model = nn.Module()
    model.register_buffer("odd", ODD_TENSORS[name]())
    odd, before = model.odd, _bytes(model.odd)
    with preserved(model=model) as kept:
        if name != "empty":
            _overwrite(odd)
            assert _bytes(odd) != before
    assert model.odd is odd
    assert _bytes(odd) == before
    assert kept.notes == []


def test_meta_tensors_and_wrappers_are_put_back():
    model = nn.Module()
    model.meta = nn.Parameter(torch.empty(3, device="meta"))
    ragged = torch.nested.nested_tensor([torch.ones(2), torch.ones(3)], layout=torch.jagged)
    model.register_buffer("ragged", ragged)
    with preserved(model=model):
        model.meta.requires_grad_(False)
        ragged.values().zero_()
    assert model.meta.requires_grad
    assert ragged.values().tolist() == [1] * 5


def test_what_cannot_be_kept_is_said_once_for_all_of_its_kind_and_the_rest_is_put_back():
    class Stubborn(torch.Tensor):
        """A tensor subclass that refuses every operation."""

        @classmethod
        def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
            raise RuntimeError("not with me")

    model = nn.Module()
    plain = torch.ones(3)
    model.register_buffer("plain", plain)
    for name in ("first", "second"):
        model._buffers[name] = torch.Tensor._make_wrapper_subclass(Stubborn, (3,))
    stubborn = model.first
    with preserved(model=model) as kept:
        plain.zero_()
        model._buffers["first"] = None
    assert plain.tolist() == [1, 1, 1]
    assert model.first is stubborn
    (note,) = kept.notes
    assert "'first'] and 1 more like it could not be copied" in note.message
    assert "not with me" in note.message


def test_a_generator_held_by_a_sampler_is_noted():
    class Endless(Sampler):
        def __init__(self):
            self.numbers = (number for number in range(100))

        def __iter__(self):
            yield from [next(self.numbers)]

    with preserved(loader=DataLoader([0, 1], sampler=Endless())) as kept:
        pass
    assert any("numbers is a running generator" in note.message for note in kept.notes)


# --- the search ------------------------------------------------------------------------------------------------


def test_the_search_is_bounded_and_says_so_but_not_by_the_parts_of_a_model():
    chain = last = []
    for _ in range(50):
        last.append([])
        last = last[0]
    notes = []
    search = Search(notes.append, max_objects=20)
    model = nn.Sequential(*[nn.Linear(1, 1) for _ in range(50)])
    search.walk({"the model": model}, kept=True)
    assert len(search.all(nn.Parameter)) == 100
    assert notes == []
    search.walk({"the train step": chain})
    assert "ended before it had seen everything" in notes[0].message


def test_cycles_end_and_proxies_are_not_touched():
    touched = []

    class Lazy:
        """Would load what it stands for at the first look at its class or an attribute."""

        def __getattribute__(self, name):
            touched.append(name)
            raise AttributeError(name)

    left, right = types.SimpleNamespace(), types.SimpleNamespace()
    left.other, right.other, right.lazy = right, left, Lazy()
    with preserved(dataset=left, train_step=lambda batch: left):
        pass
    assert touched == []


def test_objects_of_installed_packages_are_searched_but_not_put_back(monkeypatch):
    class Logger:
        """Stands for a logger of an installed package."""

        def __init__(self):
            self.step = 0
            self.model = nn.Linear(1, 1)

    monkeypatch.setattr(Logger, "__module__", "pytest")  # any installed package
    model = nn.Linear(1, 1)
    model.logger = Logger()
    weight = model.logger.model.weight.item()
    with preserved(model=model):
        model.logger.step += 1
        model.logger.model.weight.data.zero_()
    assert model.logger.step == 1
    assert model.logger.model.weight.item() == weight

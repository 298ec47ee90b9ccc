"""Model, optimizer, loader and dataset are as they were, bit for bit, in the same objects."""

import copy
import functools
import random
import signal
import types
import warnings
from contextlib import nullcontext

import numpy as np
import pytest
import torch
from torch import distributed, nn
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

from bottleneck.errors import MeasurementError
from bottleneck.measure import keep
from bottleneck.measure.device import room_on_device
from bottleneck.measure.keep import preserved

# --- model and optimizer -----------------------------------------------------------------------------------


class Net(nn.Module):
    """Batch norm, a buffer, tied weights, a frozen layer and one in eval mode."""

    def __init__(self):
        super().__init__()
        self.first = nn.Linear(6, 6)
        self.norm = nn.BatchNorm1d(6)
        self.second = nn.Linear(6, 6, bias=False)
        self.second.weight = self.first.weight
        self.frozen = nn.Linear(6, 6)
        self.frozen.requires_grad_(False)
        self.drop = nn.Dropout(0.5).eval()
        self.register_buffer("mean", torch.zeros(6))
        self.calls = 0

    def forward(self, inputs):
        self.calls += 1
        self.mean.mul_(0.9).add_(0.1 * inputs.mean(0).detach())
        hidden = self.drop(self.norm(self.first(inputs)))
        return self.frozen(self.second(hidden))


OPTIMIZERS = {
    "momentum": lambda params: torch.optim.SGD(params, lr=0.1, momentum=0.9, nesterov=True),
    "adam": lambda params: torch.optim.Adam(params, lr=0.1, amsgrad=True),
    "adam, foreach": lambda params: torch.optim.Adam(params, lr=0.1, foreach=True),
    "adamw, fused": lambda params: torch.optim.AdamW(params, lr=0.1, fused=True),
    "tensor lr": lambda params: torch.optim.Adam(params, lr=torch.tensor(0.1)),
    "lbfgs": lambda params: torch.optim.LBFGS([p for p in params if p.requires_grad], lr=0.1, max_iter=3),
}


def train(model, optimizer, steps=3):
    def closure():
        optimizer.zero_grad()
        loss = model(torch.randn(8, 6)).square().mean()
        loss.backward()
        return loss

    for _ in range(steps):
        optimizer.step(closure)


def frozen(value):
    """Nested containers as comparable values, tensors as their bytes."""
    if isinstance(value, torch.Tensor):
        return str(value.dtype), tuple(value.shape), value.detach().clone().numpy().tobytes()
    if isinstance(value, dict):
        return [(key, frozen(item)) for key, item in value.items()]
    return [frozen(item) for item in value] if isinstance(value, (list, tuple)) else value


def everything(model, optimizer):
    """Identities and bytes of all there is, to be compared before and after."""
    tensors = {**dict(model.named_parameters(remove_duplicate=False)), **dict(model.named_buffers())}
    return {
        "order": [name for name, _ in model.named_parameters()],
        "tensors": {
            name: (id(t), t.data_ptr(), t.detach().clone().numpy().tobytes(), t.requires_grad, t.is_leaf)
            for name, t in tensors.items()
        },
        "grads": {
            name: None if p.grad is None else (id(p.grad), p.grad.numpy().tobytes())
            for name, p in model.named_parameters()
        },
        "modes": {name: module.training for name, module in model.named_modules()},
        "attributes": {name: sorted(vars(module)) for name, module in model.named_modules()},
        "calls": model.calls,
        "hooks": [len(module._forward_hooks) for module in model.modules()],
        "state": frozen(optimizer.state_dict()),
        "state ids": sorted(
            (key, id(value))
            for state in optimizer.state.values()
            for key, value in state.items()
            if isinstance(value, torch.Tensor)
        ),
        "groups": [(id(group), sorted(map(str, group))) for group in optimizer.param_groups],
        "optimizer": sorted(vars(optimizer)),
    }


@pytest.mark.parametrize("name", OPTIMIZERS)
@pytest.mark.parametrize("steps_before", [0, 2])
@pytest.mark.parametrize("fails", [False, True])
def test_model_and_optimizer_are_as_they_were(name, steps_before, fails):
    model = Net()
    optimizer = OPTIMIZERS[name](model.parameters())
    train(model, optimizer, steps_before)
    before = everything(model, optimizer)
    with nullcontext() if not fails else pytest.raises(ValueError, match="half way"):  # noqa: SIM117 - one line each
        with preserved(model=model, optimizer=optimizer) as kept:
            train(model, optimizer)
            model.eval()
            model.first.requires_grad_(False)
            model.norm.register_forward_hook(lambda *_: None)
            model.added = nn.Linear(1, 1)
            optimizer.param_groups[0]["lr"] = 7.0
            if fails:
                raise ValueError("half way")
    assert everything(model, optimizer) == before
    assert kept.notes == []


def test_training_goes_on_as_if_nothing_had_happened():
    torch.manual_seed(0)
    plain = Net()
    diagnosed = copy.deepcopy(plain)
    ends = []
    for model, is_diagnosed in ((plain, False), (diagnosed, True)):
        torch.manual_seed(1)
        optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
        train(model, optimizer)
        if is_diagnosed:
            with preserved(model=model, optimizer=optimizer):
                train(model, optimizer, steps=5)
        train(model, optimizer)
        ends.append({name: value.clone() for name, value in model.state_dict().items()})
    assert all(torch.equal(ends[0][name], ends[1][name]) for name in ends[0])


@pytest.mark.parametrize("to_none", [False, True])
def test_gradients_are_the_same_objects_with_the_same_content(to_none):
    model = Net()
    model(torch.randn(4, 6)).sum().backward()
    gradient = model.first.weight.grad
    content = gradient.clone()
    with preserved(model=model):
        model.zero_grad(set_to_none=to_none)
        model(torch.randn(4, 6)).sum().backward()
    assert model.first.weight.grad is gradient
    assert torch.equal(gradient, content)
    assert model.frozen.weight.grad is None


def test_a_model_that_is_moved_or_cast_comes_back():
    model = Net()
    optimizer = torch.optim.Adam(model.parameters())
    train(model, optimizer)
    before = everything(model, optimizer)
    with preserved(model=model, optimizer=optimizer):
        model.half()
        assert model.mean.dtype is torch.half
        model.to("meta")
        assert model.first.weight.device.type == "meta"
    assert everything(model, optimizer) == before
    assert model.first.weight is model.second.weight


def test_memory_format_comes_back():
    model = nn.Conv2d(4, 4, 3)
    stride = model.weight.stride()
    with preserved(model=model):
        model.to(memory_format=torch.channels_last)
        assert model.weight.stride() != stride
    assert model.weight.stride() == stride


def test_views_of_one_storage_stay_views_of_it():
    flat = torch.arange(12.0)
    model = nn.Module()
    model.left = nn.Parameter(flat[:6].view(2, 3))
    model.right = nn.Parameter(flat[3:].view(3, 3).t())  # overlaps the left one, and is not contiguous
    with preserved(model=model):
        model.double()
        model.left.data.zero_()
        model.right.data.zero_()
        flat.zero_()
    assert torch.equal(flat, torch.arange(12.0))
    assert model.left.data_ptr() == flat.data_ptr()
    assert model.right.data_ptr() == flat[3:].data_ptr()


def test_a_parameter_that_is_replaced_comes_back():
    model = nn.Linear(2, 2)
    weight = model.weight
    with preserved(model=model):
        model.weight = nn.Parameter(torch.zeros(2, 2))
        del model.bias
    assert model.weight is weight
    assert [name for name, _ in model.named_parameters()] == ["weight", "bias"]


def test_a_buffer_that_became_part_of_a_graph_is_a_leaf_again():
    model = nn.Module()
    model.register_buffer("mean", torch.zeros(3))
    with preserved(model=model):
        model.mean.add_(torch.ones(3, requires_grad=True))
        assert not model.mean.is_leaf
    assert model.mean.is_leaf
    assert not model.mean.requires_grad
    assert model.mean.tolist() == [0, 0, 0]


LAZY = {
    "linear": (lambda: nn.LazyLinear(3), (2, 5)),
    "conv": (lambda: nn.LazyConv2d(3, 1), (2, 4, 5, 5)),
    "norm": (nn.LazyBatchNorm1d, (4, 5)),
}


@pytest.mark.parametrize("name", LAZY)
def test_lazy_modules_are_lazy_again_and_can_take_another_shape(name):
    make, shape = LAZY[name]
    model = make()
    kinds = {key: type(value) for key, value in {**model._parameters, **model._buffers}.items()}
    cls = type(model)
    with preserved(model=model) as kept:
        model(torch.randn(shape))
        assert type(model) is not cls
    assert type(model) is cls
    assert {key: type(value) for key, value in {**model._parameters, **model._buffers}.items()} == kinds
    assert kept.notes == []
    model(torch.randn(shape[0], shape[1] + 1, *shape[2:]))


def test_scripted_modules_are_put_back():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # deprecated, and still met
        model = torch.jit.trace(nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2)), torch.randn(3, 2))
    before = {name: value.clone() for name, value in model.state_dict().items()}
    model.train()
    with preserved(model=model) as kept:
        model.eval()
        for value in model.state_dict().values():
            value.zero_()
    assert model.training
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert kept.notes == []


def test_attributes_of_modules_go_back_in_place():
    model = nn.Linear(1, 1)
    model.history = [1, 2]
    model.cache = {"a": 1}
    model.best = torch.zeros(2)
    history, cache, best = model.history, model.cache, model.best
    with preserved(model=model):
        model.history.append(3)
        model.cache.clear()
        model.best.add_(1)
        model.best = model.history = None
        model.extra = 1
    assert (model.history, model.cache) == ([1, 2], {"a": 1})
    assert (model.history, model.cache, model.best) == (history, cache, best)
    assert model.history is history
    assert best.tolist() == [0, 0]
    assert not hasattr(model, "extra")


@pytest.fixture
def alone(tmp_path):
    """A process group of this process alone."""
    distributed.init_process_group("gloo", init_method=f"file://{tmp_path}/group", rank=0, world_size=1)
    yield
    distributed.destroy_process_group()


@pytest.mark.leaks("gloo keeps its listener for as long as the process lives")
def test_sharded_weights_and_moments_are_as_they_were(alone):
    fully_shard = pytest.importorskip("torch.distributed.fsdp").fully_shard
    model = nn.Sequential(nn.Linear(6, 6), nn.Linear(6, 1))
    for layer in model:
        fully_shard(layer)
    fully_shard(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    train(model, optimizer)

    def values():
        tensors = [*model.parameters(), *(t for s in optimizer.state.values() for t in s.values())]
        tensors += [p.grad for p in model.parameters() if p.grad is not None]
        local = [getattr(tensor, "_local_tensor", tensor).detach() for tensor in tensors]
        return [(tensor.data_ptr(), tensor.tolist()) for tensor in local]

    before = values()
    with preserved(model=model, optimizer=optimizer) as kept:
        train(model, optimizer)
        assert values() != before
    assert values() == before
    assert kept.notes == []


# --- memory ------------------------------------------------------------------------------------------------


def test_a_model_that_does_not_fit_into_memory_is_refused_untouched(monkeypatch):
    model = nn.Linear(10, 10)
    monkeypatch.setattr(keep, "rank_memory_bytes", lambda: 500)
    with pytest.raises(MeasurementError, match=r"takes .* of memory") as raised, preserved(model=model):
        pytest.fail("the body must not run")
    assert "before the first training step" in raised.value.remedy
    assert "`bottleneck diagnose` keeps no copy" in raised.value.remedy


def test_shared_storage_is_copied_once(monkeypatch):
    model = Net()
    needed = sum(t.untyped_storage().nbytes() for t in [*model.parameters(), *model.buffers()])  # tied ones once
    monkeypatch.setattr(keep, "rank_memory_bytes", lambda: needed / 0.8)
    with preserved(model=model):
        pass


@pytest.mark.parametrize(("room", "refused"), [(439, True), (440, False), (None, False)])
def test_gradients_that_leave_no_room_for_new_ones_are_refused(monkeypatch, room, refused):
    # Guards: old gradients stay on the device next to new ones, and the first step runs out of memory.
    model = nn.Linear(10, 10)
    model(torch.ones(1, 10)).sum().backward()
    monkeypatch.setattr(keep, "room_on_device", lambda device: room)
    if refused:
        with (
            pytest.raises(MeasurementError, match="440 bytes of cpu, and stay there") as raised,
            preserved(model=model),
        ):
            pytest.fail("the body must not run")
        assert "optimizer.zero_grad()" in raised.value.remedy
        model.zero_grad()
    with preserved(model=model):
        pass


def test_what_torch_keeps_of_freed_tensors_is_room(monkeypatch):
    device = torch.device("cuda:0")
    for name, value in {"mem_get_info": (100, 1000), "memory_reserved": 70, "memory_allocated": 40}.items():
        monkeypatch.setattr(torch.cuda, name, lambda device, value=value: value)
    assert room_on_device(device) == 130
    assert room_on_device(torch.device("cpu")) is None


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device")
def test_on_an_accelerator_nothing_of_it_is_taken():
    device = torch.device("cuda", torch.cuda.current_device())
    model = Net().to(device)
    optimizer = torch.optim.Adam(model.parameters(), fused=True)
    for _ in range(2):
        model(torch.randn(8, 6, device=device)).sum().backward()
        optimizer.step()
    before = [tensor.clone() for tensor in [*model.parameters(), *model.buffers()]]
    allocated = torch.cuda.memory_allocated()
    random_state = torch.get_device_module(device).get_rng_state()
    with preserved(model=model, optimizer=optimizer, device=device) as kept:
        assert torch.cuda.memory_allocated() == allocated
        model(torch.randn(8, 6, device=device)).sum().backward()
        optimizer.step()
        model.cpu()
    after = [*model.parameters(), *model.buffers()]
    assert all(tensor.device.type == device.type for tensor in after)
    assert all(torch.equal(left, right) for left, right in zip(before, after, strict=True))
    assert torch.equal(torch.get_device_module(device).get_rng_state(), random_state)
    assert kept.notes == []


# --- tensors of unusual kinds ------------------------------------------------------------------------------


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


class Stubborn(torch.Tensor):
    """A tensor subclass that refuses every operation."""

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        raise RuntimeError("not with me")


def test_what_cannot_be_kept_is_said_once_for_all_of_its_kind_and_the_rest_is_put_back():
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
    assert "'first'] and 1 more like it could not be copied" in note
    assert "not with me" in note


# --- loader and dataset ------------------------------------------------------------------------------------


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


def test_attributes_of_the_loader_go_back_past_its_own_guard():
    loader = DataLoader(Counting(), batch_size=2)
    loader._iterator = iter(loader)  # as persistent workers have theirs
    before = dict(vars(loader))
    with preserved(loader=loader):
        vars(loader)["batch_size"] = 4
        loader.collate_fn = list
        loader.extra = 1
        loader._iterator = None
    assert vars(loader) == before


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
    monkeypatch.setattr(keep, "rank_memory_bytes", lambda: 15)  # of which the mean takes 12 bytes

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


def test_a_model_inside_a_dataset_is_a_model():
    class Featurising(Dataset):
        def __init__(self):
            self.model = torch.nn.BatchNorm1d(2)

    dataset = Featurising()
    with preserved(dataset=dataset):
        dataset.model(torch.randn(4, 2))
        dataset.model.eval()
    assert dataset.model.num_batches_tracked == 0
    assert dataset.model.training


def test_a_generator_function_held_by_a_sampler_is_noted():
    class Endless(Sampler):
        def __init__(self):
            self.numbers = (number for number in range(100))

        def __iter__(self):
            yield from [next(self.numbers)]

    with preserved(loader=DataLoader([0, 1], sampler=Endless())) as kept:
        pass
    assert any("numbers is a running generator" in note for note in kept.notes)


# --- what the train step holds -----------------------------------------------------------------------------

GLOBAL_MODEL = nn.Linear(2, 2)
GLOBAL_OPTIMIZER = torch.optim.SGD(GLOBAL_MODEL.parameters(), lr=0.1, momentum=0.9)


class Parts:
    """What a train step of the user's works with."""

    def __init__(self, model=None, optimizer=None):
        self.model = model or nn.Linear(2, 2)
        self.optimizer = optimizer or torch.optim.Adam(self.model.parameters(), lr=0.1)
        self.scheduler = torch.optim.lr_scheduler.OneCycleLR(self.optimizer, 1.0, total_steps=100)
        self.scaler = torch.amp.GradScaler("cpu", init_scale=4.0, growth_interval=1)
        self.average = torch.optim.swa_utils.AveragedModel(self.model)
        self.generator = torch.Generator().manual_seed(1)
        self.logged = 0

    def step(self):
        self.logged += 1
        self.optimizer.zero_grad()
        batch = torch.rand(3, 2, generator=self.generator)
        self.scaler.scale(self.model(batch).square().sum()).backward()
        self.scaler.step(self.optimizer)
        self.scaler.update()
        self.scheduler.step()
        self.average.update_parameters(self.model)

    def values(self):
        modules = [*self.model.parameters(), *self.average.parameters(), *self.average.buffers()]
        return frozen(
            [
                modules, [p.grad for p in self.model.parameters()], self.optimizer.state_dict(),
                self.scheduler.state_dict(), self.scaler.state_dict(), self.generator.get_state(),
            ]
        )  # fmt: skip


GLOBAL_PARTS = Parts(GLOBAL_MODEL, GLOBAL_OPTIMIZER)


def in_nested_closure(parts):
    def inner():
        parts.step()

    return lambda batch: inner()


def in_partial(parts):
    return functools.partial(lambda kept, batch, *, unused: kept["parts"][0].step(), {"parts": [parts]}, unused=1)


def in_bound_method(parts):
    class Trainer:
        __slots__ = ("parts",)

        def step(self, batch):
            self.parts.step()

    trainer = Trainer()
    trainer.parts = parts
    return trainer.step


def in_callable_object(parts):
    class Step:
        def __init__(self):
            self.parts = (parts,)

        def __call__(self, batch):
            self.parts[0].step()

    return Step()


def in_default_argument(parts):
    def step(batch, *, kept=parts):
        kept.step()

    return step


def in_wrapped_function(parts):
    return torch.enable_grad()(in_nested_closure(parts))


def global_step(batch):
    helper()


def helper():
    GLOBAL_PARTS.step()


PLACES = [
    in_nested_closure,
    in_partial,
    in_bound_method,
    in_callable_object,
    in_default_argument,
    in_wrapped_function,
    lambda _: global_step,
]


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("steps_before", [0, 2])
def test_what_is_trained_is_found_and_other_state_goes_on(place, steps_before):
    step = place(Parts())
    parts = GLOBAL_PARTS if step is global_step else None
    parts = parts or next(v for v in [*keep_found(step)] if isinstance(v, Parts))
    for _ in range(steps_before):
        step(None)
    before, logged = parts.values(), parts.logged
    with preserved(train_step=step) as kept:
        for _ in range(3):
            step(None)
        assert parts.values() != before
    assert parts.values() == before
    assert parts.logged == logged + 3  # what was logged elsewhere does not go back
    assert kept.notes == []


def keep_found(step):
    search = keep.Search()
    search.walk({"the train step": step})
    return [found.value for found in search.found]


def test_a_module_of_the_users_is_searched_for_the_names_in_use(tmp_path, monkeypatch):
    (tmp_path / "my_training_state.py").write_text("import torch\nmodel = torch.nn.Linear(1, 1)\n")
    monkeypatch.syspath_prepend(tmp_path)
    import my_training_state as state

    namespace = {"state": state, "__name__": "__main__"}
    exec("def step(batch):\n    state.model.weight.data.zero_()\n", namespace)
    weight = state.model.weight.item()
    with preserved(train_step=namespace["step"]):
        namespace["step"](None)
    assert state.model.weight.item() == weight


def test_optimizer_parameters_outside_the_model_go_back():
    outside = nn.Parameter(torch.ones(2))
    optimizer = torch.optim.SGD([outside], lr=0.5)
    with preserved(model=nn.Linear(1, 1), optimizer=optimizer):
        outside.grad = torch.ones(2)
        optimizer.step()
        assert outside.tolist() == [0.5, 0.5]
    assert outside.tolist() == [1, 1]
    assert outside.grad is None


def test_a_loss_with_state_goes_back_too():
    loss = nn.BatchNorm1d(2)
    with preserved(others={"the loss": loss}):
        loss(torch.randn(4, 2))
        assert loss.num_batches_tracked == 1
    assert loss.num_batches_tracked == 0


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


def test_the_search_is_bounded_and_says_so_but_not_by_the_parts_of_a_model():
    chain = last = []
    for _ in range(50):
        last.append([])
        last = last[0]
    notes = []
    search = keep.Search(notes.append, max_objects=20)
    model = nn.Sequential(*[nn.Linear(1, 1) for _ in range(50)])
    search.walk({"the model": model}, kept=True)
    assert len(search.all(nn.Parameter)) == 100
    assert notes == []
    search.walk({"the train step": chain})
    assert "ended before it had seen everything" in notes[0]


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


# --- whatever happens in between ---------------------------------------------------------------------------


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt, SystemExit, GeneratorExit])
def test_whatever_the_body_raises_comes_out_unchanged(error):
    model = nn.Linear(1, 1)
    weight = model.weight.item()
    raised = error("half way")
    with pytest.raises(error) as caught, preserved(model=model):
        model.weight.data.zero_()
        raise raised
    assert caught.value is raised
    assert model.weight.item() == weight


@pytest.mark.parametrize("interrupted", [False, True])
def test_an_error_or_ctrl_c_while_one_thing_goes_back_keeps_no_other_from_going_back(interrupted, monkeypatch):
    first, last = nn.Linear(1, 1), nn.Linear(1, 1)
    weights = first.weight.item(), last.weight.item()
    restores = keep.Tensors.restores

    def failing():
        if interrupted:
            signal.raise_signal(signal.SIGINT)
        raise OSError("no")

    monkeypatch.setattr(keep.Tensors, "restores", lambda self: [("the middle", failing), *restores(self)])
    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt) if interrupted else nullcontext():  # noqa: SIM117 - one line each
        with preserved(model=first, others={"the loss": last}) as kept:
            first.weight.data.zero_()
            last.weight.data.zero_()
    assert (first.weight.item(), last.weight.item()) == weights
    assert signal.getsignal(signal.SIGINT) is before
    assert kept.notes == ["the middle could not be put back as it was (OSError: no)."]

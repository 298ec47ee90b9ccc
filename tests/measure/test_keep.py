"""Model, optimizer, loader and dataset are as they were, bit for bit, in the same objects."""

import copy
import signal
import warnings
from contextlib import nullcontext

import pytest
import torch
from torch import distributed, nn

from bottleneck.errors import MeasurementError
from bottleneck.measure.device import room_on_device
from bottleneck.measure.keep import preserved as keep
from bottleneck.measure.keep.preserved import preserved

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

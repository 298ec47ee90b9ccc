"""Model, optimizer, loader and dataset are as they were, bit for bit, in the same objects."""

import functools
import signal
from contextlib import nullcontext

import pytest
import torch
from torch import nn

from bottleneck.errors import MeasurementError
from bottleneck.measure.keep import preserved as keep
from bottleneck.measure.keep.preserved import preserved
from bottleneck.measure.keep.search import Search

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
        "calls": (model.calls, len(model.norm._forward_hooks)),
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


def test_lazy_modules_are_lazy_again_and_can_take_another_shape():
    model = nn.LazyBatchNorm1d()
    kinds = {key: type(value) for key, value in {**model._parameters, **model._buffers}.items()}
    with preserved(model=model) as kept:
        model(torch.randn(4, 5))
        assert type(model) is nn.BatchNorm1d
    assert type(model) is nn.LazyBatchNorm1d
    assert {key: type(value) for key, value in {**model._parameters, **model._buffers}.items()} == kinds
    assert kept.notes == []
    model(torch.randn(4, 6))


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


# --- memory ------------------------------------------------------------------------------------------------


def test_a_model_that_does_not_fit_into_memory_is_refused_untouched(monkeypatch):
    model = nn.Linear(10, 10)
    monkeypatch.setattr(keep, "rank_memory_bytes", lambda: 500)
    with pytest.raises(MeasurementError, match=r"takes .* of memory") as raised, preserved(model=model):
        pytest.fail("the body must not run")
    assert "before the first training step" in raised.value.remedy
    assert "`bottleneck diagnose` keeps no copy" in raised.value.remedy


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


# --- events in between -------------------------------------------------------------------------------------


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
    assert [note.message for note in kept.notes] == ["the middle could not be restored (OSError: no)."]


def test_an_error_that_says_nothing_is_named(monkeypatch):
    def failing():
        raise NotImplementedError

    monkeypatch.setattr(keep.Tensors, "restores", lambda self: [("the weight", failing)])
    with preserved() as kept:
        pass
    assert [note.message for note in kept.notes] == ["the weight could not be restored (NotImplementedError)."]


# --- the trained is found anywhere in a train step, and other state of a step goes on ----------------------


GLOBAL_MODEL = nn.Linear(2, 2)
GLOBAL_OPTIMIZER = torch.optim.SGD(GLOBAL_MODEL.parameters(), lr=0.1, momentum=0.9)


class Parts:
    """The state of a user's train step."""

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


def global_step(batch):
    helper()


def helper():
    GLOBAL_PARTS.step()


PLACES = [
    lambda parts: torch.enable_grad()(in_nested_closure(parts)),
    in_partial,
    in_bound_method,
    in_callable_object,
    in_default_argument,
    lambda _: global_step,
]


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("steps_before", [0, 2])
def test_what_is_trained_is_found_and_other_state_goes_on(place, steps_before):
    step = place(Parts())
    search = Search()
    search.walk({"the train step": step})
    parts = GLOBAL_PARTS if step is global_step else search.all(Parts)[0]
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

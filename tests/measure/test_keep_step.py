"""What is trained is found wherever a train step holds it, and other state of a step goes on."""

import functools
import types

import pytest
import torch
from torch import nn

from bottleneck.measure.keep.preserved import preserved
from bottleneck.measure.keep.search import Search

GLOBAL_MODEL = nn.Linear(2, 2)
GLOBAL_OPTIMIZER = torch.optim.SGD(GLOBAL_MODEL.parameters(), lr=0.1, momentum=0.9)


def frozen(value):
    """Nested containers as comparable values, tensors as their bytes."""
    if isinstance(value, torch.Tensor):
        return str(value.dtype), tuple(value.shape), value.detach().clone().numpy().tobytes()
    if isinstance(value, dict):
        return [(key, frozen(item)) for key, item in value.items()]
    return [frozen(item) for item in value] if isinstance(value, (list, tuple)) else value


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
    search = Search()
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
    search = Search(notes.append, max_objects=20)
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

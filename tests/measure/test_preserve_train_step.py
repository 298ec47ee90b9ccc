"""What a train step holds on to goes back, wherever it keeps it."""

import functools
import random
import types
from collections import deque

import numpy as np
import pytest
import torch
from torch import nn

from bottleneck.measure.preserve.preserved import preserved

GLOBAL_MODEL = nn.Linear(2, 2)
GLOBAL_OPTIMIZER = torch.optim.SGD(GLOBAL_MODEL.parameters(), lr=0.1, momentum=0.9)
GLOBAL_STEPS = 0


def make_parts():
    model = nn.Linear(2, 2)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
    scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, 1.0, total_steps=100)
    return model, optimizer, scheduler


def step_once(model, optimizer, scheduler=None):
    optimizer.zero_grad()
    model(torch.ones(3, 2)).square().sum().backward()
    optimizer.step()
    if scheduler is not None:
        scheduler.step()


def values(model, optimizer, scheduler=None):
    """What a train step changes, as comparable values."""
    return (
        [p.tolist() for p in model.parameters()],
        [None if p.grad is None else p.grad.tolist() for p in model.parameters()],
        [
            {key: value.tolist() if isinstance(value, torch.Tensor) else value for key, value in state.items()}
            for state in optimizer.state.values()
        ],
        [{**group, "params": len(group["params"])} for group in optimizer.param_groups],
        None if scheduler is None else scheduler.state_dict(),
    )


def in_closure(parts):
    def step(batch):
        step_once(*parts)

    return step


def in_nested_closure(parts):
    model, optimizer, scheduler = parts

    def inner():
        step_once(model, optimizer, scheduler)

    return lambda batch: inner()


def in_partial(parts):
    return functools.partial(
        lambda kept, batch, *, scheduler: step_once(*kept, scheduler), parts[:2], scheduler=parts[2]
    )


def in_bound_method(parts):
    class Trainer:
        def __init__(self):
            self.model, self.optimizer, self.scheduler = parts
            self.steps = 0

        def step(self, batch):
            self.steps += 1
            step_once(self.model, self.optimizer, self.scheduler)

    return Trainer().step


def in_callable_object(parts):
    class Step:
        __slots__ = ("parts",)

        def __init__(self):
            self.parts = {"training": [parts]}

        def __call__(self, batch):
            step_once(*self.parts["training"][0])

    return Step()


def in_default_argument(parts):
    def step(batch, parts=parts, *, scheduler=parts[2]):
        step_once(*parts[:2], scheduler)

    return step


def in_wrapped_function(parts):
    return torch.enable_grad()(in_closure(parts))


PLACES = [
    in_closure,
    in_nested_closure,
    in_partial,
    in_bound_method,
    in_callable_object,
    in_default_argument,
    in_wrapped_function,
]


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("steps_before", [0, 2])
def test_training_state_is_found(place, steps_before):
    parts = make_parts()
    step = place(parts)
    for _ in range(steps_before):
        step(None)
    before = values(*parts)
    with preserved(train_step=step) as kept:
        for _ in range(3):
            step(None)
        assert values(*parts) != before
    assert values(*parts) == before
    assert kept.notes == []


def global_step(batch):
    global GLOBAL_STEPS  # noqa: PLW0603 - what is tested - what scripts do
    GLOBAL_STEPS += 1
    helper()


def helper():
    step_once(GLOBAL_MODEL, GLOBAL_OPTIMIZER)


def test_globals_named_by_the_code_are_found():
    before = values(GLOBAL_MODEL, GLOBAL_OPTIMIZER)
    with preserved(train_step=global_step):
        global_step(None)
        assert GLOBAL_STEPS == 1
    assert values(GLOBAL_MODEL, GLOBAL_OPTIMIZER) == before
    assert GLOBAL_STEPS == 0


def test_a_module_of_the_users_is_searched_for_the_names_in_use(tmp_path, monkeypatch):
    (tmp_path / "my_training_state.py").write_text("import torch\nmodel = torch.nn.Linear(1, 1)\nsteps = 0\n")
    monkeypatch.syspath_prepend(tmp_path)
    import my_training_state as state

    namespace = {"state": state, "__name__": "__main__"}
    exec("def step(batch):\n    state.steps += 1\n    state.model.weight.data.zero_()\n", namespace)
    weight = state.model.weight.item()
    with preserved(train_step=namespace["step"]):
        namespace["step"](None)
        assert (state.steps, state.model.weight.item()) == (1, 0)
    assert (state.steps, state.model.weight.item()) == (0, weight)


def test_counters_and_containers_of_a_closure_go_back():
    count, losses, latest, recent, seen = 0, [], {}, deque([1.0], maxlen=3), {0}
    total, array = torch.zeros(1), np.zeros(2)

    def step(batch):
        nonlocal count
        count += 1
        losses.append(1.0)
        latest["loss"] = 2.0
        recent.append(3.0)
        seen.add(count)
        total.add_(1)
        array[0] += 1
        step.calls = count

    with preserved(train_step=step) as kept:
        step(None)
        step(None)
        assert count == 2
    assert (count, losses, latest, recent, seen) == (0, [], {}, deque([1.0], maxlen=3), {0})
    assert (total.item(), array.tolist()) == (0, [0, 0])
    assert not hasattr(step, "calls")
    assert kept.notes == []


def test_scaler_generators_and_average_go_back():
    model, optimizer, _ = make_parts()
    scaler = torch.amp.GradScaler("cpu", init_scale=4.0, growth_interval=1)
    average = torch.optim.swa_utils.AveragedModel(model)
    generators = [
        torch.Generator().manual_seed(1),
        random.Random(2),
        np.random.default_rng(3),
        np.random.RandomState(4),
    ]

    def draw():
        return [
            torch.rand(1, generator=generators[0]).item(),
            generators[1].random(),
            generators[2].random(),
            generators[3].rand(),
        ]

    def step(batch):
        optimizer.zero_grad()
        scaler.scale(model(torch.ones(1, 2)).sum()).backward()
        scaler.step(optimizer)
        scaler.update()
        average.update_parameters(model)
        return draw()

    with preserved(train_step=step):
        drawn = draw()
    before = (scaler.state_dict(), average.n_averaged.item(), values(model, optimizer))
    with preserved(train_step=step) as kept:
        step(None)
        assert scaler.get_scale() == 8.0
    assert (scaler.state_dict(), average.n_averaged.item(), values(model, optimizer)) == before
    assert draw() == drawn
    assert kept.notes == []


class Meter:
    """State where the search does not look: behind a mapping proxy, as it might be in C."""

    def __init__(self):
        self.hidden = types.MappingProxyType({"sum": [0.0], "weight": torch.ones(2)})
        self.loads = 0

    def state_dict(self):
        return dict(self.hidden)

    def load_state_dict(self, state):
        self.hidden["sum"][:] = state["sum"]
        self.hidden["weight"].copy_(state["weight"])
        self.loads += 1


def test_state_out_of_reach_goes_back_by_the_objects_own_account_of_it():
    meter = Meter()

    def step(batch):
        meter.hidden["sum"][0] += 1
        meter.hidden["weight"].mul_(3)

    with preserved(train_step=step) as kept:
        step(None)
    assert meter.hidden["sum"] == [0.0]
    assert meter.hidden["weight"].tolist() == [1, 1]
    assert meter.loads == 1
    assert kept.notes == []


class Average:
    """A user's own moving average, with a state that attributes show."""

    def __init__(self, model):
        self.shadow = {name: value.clone() for name, value in model.state_dict().items()}
        self.updates = 0
        self.array = np.zeros(2)

    def state_dict(self):
        return {"shadow": self.shadow, "updates": self.updates, "array": self.array}

    def load_state_dict(self, state):
        raise AssertionError("loading may do more than setting the state")


def test_a_state_that_is_back_already_is_not_loaded_and_not_copied_twice():
    model = nn.Linear(2, 2)
    average = Average(model)
    shadow = dict(average.shadow)

    def step(batch):
        average.updates += 1
        average.shadow["weight"].add_(1)
        average.shadow["bias"] = None

    with preserved(model=model, train_step=step) as kept:
        step(None)
    assert average.updates == 0
    assert all(average.shadow[name] is value for name, value in shadow.items())
    assert torch.equal(average.shadow["weight"], model.weight)
    assert kept.saved_bytes == 2 * 6 * 4
    assert kept.notes == []


class Unloadable:
    def __init__(self):
        self.count = iter(range(100))

    def state_dict(self):
        return {"count": next(self.count)}

    def load_state_dict(self, state):
        raise KeyError("no such state")


def test_a_state_that_cannot_be_loaded_is_said_and_the_rest_goes_back():
    unloadable, model = Unloadable(), nn.Linear(1, 1)
    weight = model.weight.item()

    def step(batch):
        model.weight.data.zero_()
        return unloadable

    with preserved(train_step=step) as kept:
        step(None)
    assert model.weight.item() == weight
    (note,) = kept.notes
    assert "unloadable could not be put back as it was (KeyError" in note


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

"""What a loop trains is found by the optimizers that step in it."""

import torch
from torch import nn

from bottleneck.measure.keep.search import Search
from bottleneck.script.job import Optimizers, models_of


def stepped(*models):
    return tuple(torch.optim.SGD(model.parameters(), lr=0.1) for model in models)


def test_the_outermost_module_is_the_model():
    class Task(nn.Module):
        def __init__(self):
            super().__init__()
            self.model = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2))

    task, other = Task(), nn.Linear(2, 2)
    assert models_of(stepped(task.model[0])) is task
    assert models_of(stepped(other)) is other
    assert models_of(()) is None


def test_models_of_several_optimizers_are_found_together():
    # Guards: a GAN, of which both halves have to be put back.
    generator, critic = nn.Sequential(nn.Linear(2, 2)), nn.Linear(2, 1)
    optimizers = stepped(generator, critic)
    assert set(models_of(optimizers).parameters()) == {*generator.parameters(), *critic.parameters()}
    together, search = Optimizers.of(optimizers), Search()
    search.walk({"the optimizer": together})
    assert search.all(torch.optim.Optimizer) == list(optimizers)
    before = critic.weight.clone()
    critic(torch.ones(1, 2)).sum().backward()
    together.step()
    together.zero_grad()
    assert not torch.equal(critic.weight, before)
    assert critic.weight.grad is None


def test_one_optimizer_stays_itself():
    [optimizer] = stepped(nn.Linear(1, 1))
    assert (Optimizers.of((optimizer,)), Optimizers.of(())) == (optimizer, None)

"""A tensor that the train step computes with, in whatever way, has been read; one that is only moved has not."""

import pytest
import torch
from torch import nn

from bottleneck.measure.unread import WatchedStep, is_compiled


def batch():
    return {"ids": torch.arange(6).view(2, 3), "mask": torch.ones(2, 3), "label": torch.tensor([0, 1])}


def unread(step, works_in=()):
    watched = WatchedStep(step, works_in)
    watched(batch())
    return watched.unread(batch())["unread"]


MODEL = nn.Sequential(nn.Embedding(6, 4), nn.Flatten(), nn.Linear(12, 2))


def train(found):
    nn.functional.cross_entropy(MODEL(found["ids"]), found["label"]).backward()


def test_what_no_operation_gets_is_unread():
    watched = WatchedStep(train)
    for _ in range(3):
        watched(batch())
    assert watched.unread(batch()) == {"unread": ["['mask']"], "unread_bytes": 24}


def test_moving_or_looking_at_the_shape_is_not_reading():
    def step(found):
        moved = {key: value.to("cpu", torch.float64).clone().detach() for key, value in found.items()}
        assert moved["mask"].shape == found["mask"].size()
        moved["ids"].sum()

    assert unread(step) == ["['mask']", "['label']"]


@pytest.mark.parametrize(
    "read",
    [
        lambda mask: mask.numpy().sum(),
        torch.Tensor.tolist,
        lambda mask: mask[0, 0].item(),
        lambda mask: bool(mask.any()),
        lambda mask: mask.to(torch.float64).view(-1) + 1,
        lambda mask: torch.ones(2, 3).mul_(mask),
    ],
    ids=["numpy", "list", "item", "condition", "a view of a copy", "in place"],
)
def test_every_way_of_reading_counts(read):
    def step(found):
        train(found)
        read(found["mask"])

    assert unread(step) == []


@pytest.mark.filterwarnings("ignore:.*torch.jit.script")
def test_code_that_does_not_come_by_python_is_seen_as_well():
    scripted = torch.jit.script(nn.ReLU())

    def step(found):
        train(found)
        scripted._c.forward(found["mask"])

    assert unread(step) == []


def test_what_the_second_step_reads_has_been_read():
    calls = []

    def step(found):
        train(found)
        if calls:
            found["mask"].sum()
        calls.append(1)

    watched = WatchedStep(step)
    for _ in range(2):
        watched(batch())
    assert watched.unread(batch())["unread"] == []


def test_a_batch_of_another_form_than_the_loaders_tells_nothing():
    watched = WatchedStep(lambda found: None)
    watched((torch.ones(1),))
    assert watched.unread(batch()) == {"unread": None, "unread_bytes": None}


def test_an_operation_that_refuses_to_be_watched_is_done_all_the_same():
    def step(found):
        if torch.overrides._get_current_function_mode() is not None:
            raise NotImplementedError("no modes")
        return "done"

    watched = WatchedStep(step)
    assert watched(batch()) == "done"
    assert watched.unread(batch())["unread"] is None


def test_an_error_of_the_users_is_raised_as_it_is():
    def step(found):
        raise ValueError("shapes differ")

    with pytest.raises(ValueError, match="shapes differ"):
        WatchedStep(step)(batch())


def test_what_is_compiled_is_not_watched():
    compiled = torch.compile(nn.Linear(2, 2), backend="eager")
    module = nn.Linear(2, 2)
    module.compile(backend="eager")
    inside = nn.Sequential(nn.ReLU(), module)

    def step(found):
        return compiled

    assert all(is_compiled(root) for root in (compiled, module, inside, step))
    assert not is_compiled(MODEL)
    assert not is_compiled(train)
    assert not is_compiled(None)
    assert unread(lambda found: None, (compiled,)) is None

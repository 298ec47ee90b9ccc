"""Losses that are not finite, and steps that a scaler skips, are seen between blocks."""

from types import SimpleNamespace

import pytest
import torch

from bottleneck.loader import modes
from bottleneck.measure.ladder import Arm, Ladder, Rung
from bottleneck.measure.training import Losses

RAW, DRAINED = Arm(modes.ALL, "loader"), Arm(modes.ALL, "loader", coupled=False)
LADDER = Ladder((Rung("raw", coupled=RAW, drained=DRAINED),), (), ())
NAN = float("nan")


class Scaler:
    def __init__(self):
        self.scale = 1024.0

    def get_scale(self):
        return self.scale


def block(losses, round_, returned, arm=RAW, scalers=(), meanwhile=lambda: None):
    losses.begin_block(scalers)
    for value in returned:
        losses.keep(value)
    meanwhile()
    losses.end_block(scalers, arm, round_)


@pytest.mark.parametrize(
    "returned",
    [
        torch.tensor(NAN),
        torch.tensor([float("inf")], requires_grad=True) * 2,
        NAN,
        {"loss": torch.tensor(NAN), "logits": torch.ones(3)},
        {"loss": NAN},
        (torch.tensor(NAN), torch.ones(3)),
        SimpleNamespace(loss=torch.tensor(NAN)),
    ],
    ids=["tensor", "with a graph", "float", "mapping", "mapping to a float", "pair", "object"],
)
def test_a_loss_that_is_not_finite_is_told_with_its_place(returned):
    losses = Losses()
    block(losses, 2, [torch.tensor(1.0)])
    block(losses, 3, [torch.tensor(1.0), returned])
    block(losses, 4, [returned])
    ((id_, message),) = losses.warnings(LADDER)
    assert id_ == "loss-not-finite"
    assert "at the end of 2 of 3 blocks with the train step, first in round 3, experiment raw." in message


class Lazy:
    @property
    def loss(self):
        raise RuntimeError("not computed")


@pytest.mark.parametrize(
    "returned",
    [
        *(torch.tensor(2.0), {"loss": 0.5}),
        *(torch.tensor([NAN, 1.0]), torch.empty((), device="meta"), (), {}, "nan", 3, Lazy(), None),
    ],
)
def test_what_is_finite_or_no_loss_is_not_told(returned):
    losses = Losses()
    block(losses, 1, [returned])
    assert list(losses.warnings(LADDER)) == []


def test_the_loader_alone_has_no_loss():
    losses = Losses()
    losses.keep(NAN)  # of the block before
    block(losses, 1, [], arm=DRAINED)
    assert list(losses.warnings(LADDER)) == []


def test_a_loss_that_is_kept_holds_no_graph():
    losses = Losses()
    weight = torch.ones(1, requires_grad=True)
    loss = (weight * 2).sum()
    losses.keep(loss)
    assert losses._last.grad_fn is None
    assert losses._last.data_ptr() == loss.data_ptr()


def test_steps_that_the_scaler_skips_are_told_where_they_are_many():
    losses, scaler = Losses(), Scaler()

    def lower():
        scaler.scale /= 2

    def grow():
        scaler.scale *= 2

    block(losses, 1, [1.0], scalers=(scaler,), meanwhile=grow)
    block(losses, 1, [1.0], scalers=(scaler,), meanwhile=lower)  # a larger scale was tried
    assert list(losses.warnings(LADDER)) == []
    block(losses, 2, [1.0], scalers=(scaler,), meanwhile=lower)
    ((id_, message),) = losses.warnings(LADDER)
    assert id_ == "steps-skipped"
    assert "lowered its scale in 2 of 3 blocks with the train step, first in round 1" in message

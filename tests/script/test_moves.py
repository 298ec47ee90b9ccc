"""What a loop moves of a batch by itself; 'meta' stands for an accelerator."""

from dataclasses import dataclass

import pytest
import torch

from bottleneck.script.moves import Moves

META = torch.device("meta")


@dataclass
class Labelled:
    image: torch.Tensor
    label: torch.Tensor


def learn(batch, loop):
    with Moves(batch) as moves:
        loop(batch)
    return moves.learnt()


def devices(batch):
    return [leaf.device.type for leaf in batch]


def make():
    return [torch.zeros(2, 3), torch.zeros(2), "a name"]


@pytest.mark.parametrize(
    "move", [lambda x: x.to("meta"), lambda x: x.to(META, non_blocking=True), lambda x: x.to(device="meta")]
)
def test_what_the_loop_moves_is_moved_and_nothing_else(move):
    transfer = learn(make(), lambda batch: move(batch[0]))
    assert devices(transfer(make(), META)[:2]) == ["meta", "cpu"]
    assert transfer(make(), META)[2] == "a name"


def test_a_conversion_is_no_move():
    transfer = learn(make(), lambda batch: [x.to(torch.float64) for x in batch[:2]])
    assert transfer.moved == {}


def test_what_is_made_of_a_tensor_first_stays_to_the_loop():
    transfer = learn(make(), lambda batch: (batch[0] / 255).to("meta"))
    assert transfer.moved == {}


def test_whether_the_loop_waits_for_the_copy_is_kept():
    def loop(batch):
        batch[0].to("meta", non_blocking=True)
        batch[1].to("meta")

    assert learn(make(), loop).moved == {0: True, 1: False}


def test_parts_of_containers_are_found():
    def loop(batch):
        batch["x"].image.to("meta")

    transfer = learn({"x": Labelled(torch.zeros(2), torch.zeros(2)), "y": [torch.ones(1)]}, loop)
    moved = transfer({"x": Labelled(torch.zeros(4), torch.zeros(4)), "y": [torch.ones(1)]}, META)
    assert (moved["x"].image.device, moved["x"].label.device.type, moved["y"][0].device.type) == (META, "cpu", "cpu")


def test_a_batch_of_another_structure_is_left_to_the_loop():
    transfer = learn(make(), lambda batch: batch[0].to("meta"))
    other = [torch.zeros(2)]
    assert transfer(other, META) is other


@pytest.mark.parametrize(
    ("batch", "loop", "said"),
    [
        (make(), lambda batch: batch[0].to("meta"), None),
        (make(), lambda batch: batch[0].numpy(), "calls numpy() on parts of its batch"),
        (["a text", "another"], lambda batch: torch.tensor([len(text) for text in batch]), "makes its tensors itself"),
    ],
)
def test_what_a_loop_does_with_its_input_is_said(batch, loop, said):
    with Moves(batch) as moves:
        loop(batch)
    assert (moves.in_the_loop is None) if said is None else (said in moves.in_the_loop)

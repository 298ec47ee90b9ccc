"""The parts of a batch that a loop moves, and the models that it trains; 'meta' stands for an accelerator."""

import copy

import numpy as np
import pytest
import torch
from torch import nn

from bottleneck.measure.keep.search import Search
from bottleneck.script import job
from bottleneck.script.job import Moves, Optimizers, Transfer, models_of

META = torch.device("meta")


class Graph:
    """Moves itself in place, as PyTorch Geometric's does."""

    def __init__(self, nodes=3):
        self.nodes, self.edges, self.name = torch.zeros(nodes), torch.zeros(2, nodes), "a name"

    def to(self, device):
        self.nodes, self.edges = self.nodes.to(device), self.edges.to(device)
        return self


class Boxes(Graph):
    """Gives another object that is on the device, as detectron2's does."""

    def to(self, device):
        return Graph.to(copy.copy(self), device)


def learn(batch, loop):
    return looked_at(batch, loop).learnt()


def looked_at(batch, loop):
    moves = Moves()
    moves.begin(batch)
    loop(batch)
    moves.end()
    return moves


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
    assert transfer.moved == frozenset()


STATIC = torch.empty(2, 3, device="meta")


def write_into(static, part):
    static[:] = part


@pytest.mark.parametrize(
    "move",
    [
        lambda x: x.permute(1, 0).to("meta"),
        lambda x: x.float().to("meta"),
        lambda x: (x / 255).to("meta"),
        lambda x: x.T.contiguous().to("meta"),
        lambda x: torch.as_tensor(x, device="meta"),
        lambda x: x.to(STATIC),
        STATIC.copy_,
        lambda x: STATIC.copy_(x.view(2, 3), non_blocking=True),
        lambda x: write_into(STATIC, x),
        lambda x: torch.cat([x, x.flip(0)]).to("meta"),
    ],
)
def test_what_is_made_of_a_tensor_alone_is_moved_with_it(move):
    assert learn(make(), lambda batch: move(batch[0])).moved == {0}


@pytest.mark.parametrize(
    "read",
    [
        lambda x: x.numpy(),
        np.asarray,
        lambda x: x.tolist(),
        lambda x: x.view(-1).tolist(),
        lambda x: x[0].item(),
        lambda x: bool(x.any()),
        lambda x: int(x[0]),
        lambda x: [0, 1][x.long()[0]],
        lambda x: (x + 1).sum().item(),
        lambda x: x + torch.ones(2),  # which stays on the host
    ],
)
def test_what_the_loop_needs_on_the_host_stays_there(read):
    def loop(batch):
        for part in batch[:2]:
            part.to("meta")
        read(batch[1])

    moves = looked_at(make(), loop)
    assert moves.learnt().moved == {0}
    assert moves.moves_any


def test_parts_that_are_put_together_move_together_or_stay_together():
    def loop(batch):
        torch.cat([batch[0], batch[1][:, None].expand(2, 3)]).to("meta")

    def and_reads(batch):
        loop(batch)
        batch[1].tolist()

    assert learn(make(), loop).moved == {0, 1}
    assert learn(make(), and_reads).moved == frozenset()


def test_a_loop_one_batch_ahead_is_seen():
    # Guards: work on a batch once the next one was taken.
    moves, ahead = Moves(), None
    for _ in range(3):
        batch = make()
        moves.begin(batch)
        if ahead is not None:
            ahead[0].to("meta")
        moves.end()
        ahead = batch
    assert moves.learnt().moved == {0}


def test_a_mode_that_is_entered_in_between_stays():
    moves = Moves()
    moves.begin(make())
    with torch.device("meta"):
        moves.end()
        assert torch.zeros(1).device == META
    assert torch.zeros(1).device.type == "cpu"


@pytest.mark.parametrize(
    ("write", "are_written"),
    [
        (lambda batch: batch.update(x=batch["x"].to("meta")), True),
        (lambda batch: batch.pop("y"), True),
        (lambda batch: batch["x"].add_(1), False),
    ],
)
def test_whether_the_loop_writes_into_its_batch_is_seen(write, are_written):
    batch = {"x": torch.zeros(2), "y": torch.zeros(2)}
    assert looked_at(batch, write).are_written == are_written


def test_batches_that_are_on_the_device_already_are_not_moved():
    moves = looked_at([torch.zeros(2, device="meta")], lambda batch: batch[0].to("meta"))
    assert (moves.arrive_on_device, moves.moves_any, moves.learnt().moved) == (True, False, frozenset())


@pytest.mark.parametrize("kind", [Graph, Boxes])
@pytest.mark.parametrize("move", [lambda held: held.to(META), lambda held: held.nodes.to("meta")], ids=["all", "part"])
def test_an_object_that_holds_tensors_moves_as_a_whole_and_stays_on_the_host_itself(kind, move):
    # Guards: a graph that was not served on the device; and cached host batches that become device batches.
    moves = looked_at([kind(), torch.zeros(2)], lambda batch: move(batch[0]))
    assert moves.in_the_loop is None
    cached = [kind(nodes=5), torch.zeros(4)]
    moved, left = moves.learnt()(cached, META)
    assert (type(moved), moved.nodes.device, moved.edges.device, moved.name) == (kind, META, META, "a name")
    assert left is cached[1]
    assert (cached[0].nodes.device.type, cached[0].edges.device.type) == ("cpu", "cpu")


def train_and_save_a_picture(batch):
    nn.Linear(batch[0].shape[-1], 1)(batch[0].float()).sum().backward()
    batch[0].numpy()


@pytest.mark.parametrize(("device", "dtype"), [("mps", torch.float32), ("cuda", torch.float64)])
def test_a_part_in_a_precision_that_the_device_lacks_is_converted_first(monkeypatch, device, dtype):
    # Guards: float64 on MPS, which the loop converts before it moves it: the plain move raised, and the diagnosis too.
    monkeypatch.setattr(job, "move_to_device", lambda leaf, device: leaf)
    batch = [torch.zeros(2, dtype=torch.float64), torch.zeros(2, dtype=torch.int64)]
    served = Transfer({0, 1}, 2)(batch, torch.device(device))
    assert [tensor.dtype for tensor in served] == [dtype, torch.int64]


def test_a_batch_of_another_structure_is_left_to_the_loop():
    transfer = learn(make(), lambda batch: batch[0].to("meta"))
    other = [torch.zeros(2)]
    assert transfer(other, META) is other


@pytest.mark.parametrize(
    ("batch", "loop", "said"),
    [
        (make(), lambda batch: batch[0].to("meta"), None),
        (make(), train_and_save_a_picture, None),
        (make(), lambda batch: batch[0].numpy(), "calls numpy() on parts of its batch"),
        (["a text", "another"], lambda batch: torch.tensor([len(text) for text in batch]), "makes its tensors itself"),
    ],
)
def test_what_a_loop_does_with_its_input_is_said(batch, loop, said):
    moves = looked_at(batch, loop)
    assert (moves.in_the_loop is None) if said is None else (said in moves.in_the_loop.message)


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
    # Guards: a GAN, where generator and critic both have to be restored.
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

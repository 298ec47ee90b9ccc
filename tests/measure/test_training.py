"""Changes by training are undone at the beginning of each round, and losses are checked."""

import copy
import math
from collections import OrderedDict
from functools import partial
from queue import SimpleQueue
from types import MappingProxyType, SimpleNamespace

import pytest
import torch
from torch import distributed, nn

from bottleneck.loader import modes
from bottleneck.measure.ladder import Arm, Ladder, Rung
from bottleneck.measure.options import MeasureOptions
from bottleneck.measure.training import Losses, TrainingState
from tests.support.clock import FakeClock
from tests.support.datasets import Photos
from tests.support.sessions import UNDECIDED, invented_time, pipeline_of, run

# --- what training changes goes back at the beginning of each round, into the same memory --------------------


def state_of(clock=None, synchronize_s=0.0, free_bytes=1 << 30, **roots):
    clock = clock or FakeClock()
    roots = {key.replace("_", " "): value for key, value in roots.items()}
    return TrainingState(roots, lambda: clock.advance(synchronize_s), clock, lambda: free_bytes)


def net():
    return nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Linear(4, 1))


def train(model, optimizer, factor=1.0):
    optimizer.zero_grad()
    (factor * model(torch.rand(8, 4)).square().sum()).backward()
    optimizer.step()


def content(model, optimizer):
    return copy.deepcopy((model.state_dict(), optimizer.state_dict()["state"]))


def addresses(model, optimizer):
    tensors = [*model.parameters(), *model.buffers(), *(t for s in optimizer.state.values() for t in s.values())]
    return [tensor.data_ptr() for tensor in tensors]


@pytest.mark.parametrize(
    "kind",
    [
        torch.optim.Adam,
        partial(torch.optim.AdamW, fused=True),  # moves no version of what it writes
        partial(torch.optim.SGD, momentum=0.9, lr=0.1),
        torch.optim.Adagrad,
    ],
    ids=["adam", "fused", "momentum", "adagrad"],
)
def test_weights_buffers_and_the_optimizers_state_go_back_to_what_they_were_after_warming_up(kind):
    model = net()
    optimizer = kind(model.parameters())
    train(model, optimizer)
    state = state_of(the_model=model, the_optimizer=optimizer)
    state.begin_round()
    before, places = content(model, optimizer), addresses(model, optimizer)
    for _ in range(3):
        train(model, optimizer, factor=float("nan"))
        assert not torch.equal(model[0].weight, before[0]["0.weight"])
        state.begin_round()
        torch.testing.assert_close(content(model, optimizer), before, rtol=0, atol=0)
    assert addresses(model, optimizer) == places
    assert (state.times, state.skipped, state.warning()) == (3, 0, None)


def test_what_the_train_step_holds_goes_back_as_well():
    model = net()
    optimizer, scaler = torch.optim.SGD(model.parameters()), torch.amp.GradScaler("cpu", init_scale=1024.0)

    def step(batch):
        optimizer.zero_grad()
        scaler.scale(model(batch).sum()).backward()
        scaler.step(optimizer)
        scaler.update()

    step(torch.rand(8, 4))
    state = state_of(the_train_step=step)
    state.begin_round()
    weight = model[0].weight.detach().clone()
    assert state.scalers == (scaler,)
    step(torch.full((8, 4), float("inf")))
    assert scaler.get_scale() == 512
    state.begin_round()
    assert scaler.get_scale() == 1024
    assert torch.equal(model[0].weight, weight)


@pytest.mark.parametrize("kind", [dict, OrderedDict, MappingProxyType, type("Mine", (dict,), {})])
def test_moments_in_mappings_of_any_class_go_back(kind):
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    moment = torch.zeros(3)
    inner = kind({"moment": moment})
    optimizer.state[next(model.parameters())] = kind({"inner": inner})
    state = state_of(the_model=model, the_optimizer=optimizer)
    state.begin_round()
    moment += 1
    state.begin_round()
    assert moment.sum() == 0


def test_what_takes_much_of_the_time_is_done_seldom():
    clock, model = FakeClock(), net()
    state = state_of(clock, synchronize_s=1.0, the_model=model)
    state.begin_round()
    for _ in range(8):  # a second each, of rounds of ten: over three per cent
        clock.advance(10.0)
        state.begin_round()
    assert (state.times, state.skipped) == (2, 6)
    assert state.warning() is None


def test_a_state_without_room_for_a_copy_is_left_and_that_is_reported():
    model = net()
    state = state_of(free_bytes=300, the_model=model)
    state.begin_round()
    with torch.no_grad():
        model[0].weight.fill_(7.0)
    state.begin_round()
    assert torch.all(model[0].weight == 7)
    assert state.nbytes == 0
    assert "more than a quarter of the free memory" in state.warning().message


@pytest.fixture
def alone(tmp_path):
    """A process group of this process alone."""
    distributed.init_process_group("gloo", init_method=f"file://{tmp_path}/group", rank=0, world_size=1)
    yield
    distributed.destroy_process_group()


@pytest.mark.leaks("gloo keeps its listener for as long as the process lives")
def test_sharded_weights_and_moments_go_back_as_well(alone):
    # Guards: those of DTensors were left unchanged, while the counters of steps were restored.
    fully_shard = pytest.importorskip("torch.distributed.fsdp").fully_shard
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 1))
    for layer in model:
        fully_shard(layer)
    fully_shard(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    train(model, optimizer)
    state = state_of(the_model=model, the_optimizer=optimizer)
    state.begin_round()

    def values():
        tensors = [*model.parameters(), *(t for s in optimizer.state.values() for t in s.values())]
        return [getattr(tensor, "_local_tensor", tensor).detach().clone() for tensor in tensors]

    before = values()
    train(model, optimizer)
    assert not torch.equal(values()[0], before[0])
    state.begin_round()
    torch.testing.assert_close(values(), before, rtol=0, atol=0)
    assert state.warning() is None


def test_what_cannot_be_copied_is_named():
    model = net()
    model.register_buffer("graph", torch.eye(3).to_sparse())
    state = state_of(the_model=model)
    state.begin_round()
    state.begin_round()
    assert state.times == 1
    warning = state.warning()
    assert warning.id == "weights-not-put-back"
    assert warning.message.startswith(
        "Of the weights and the state of the optimizer, tensors of some kinds (torch.sparse_coo)"
    )


# --- a whole diagnosis -------------------------------------------------------------------------------------


class Ones(Photos):
    def load(self, index):
        return torch.ones(8)


@pytest.fixture
def diverging():
    """A job whose loss goes to minus infinity within some hundred steps."""
    torch.manual_seed(0)
    model = nn.Linear(8, 1)
    return model, torch.optim.SGD(model.parameters(), lr=0.01)


def diagnose(model, optimizer, losses):
    """Diagnose, with the losses in a queue: a list in the train step would be restored."""
    clock = invented_time()
    take_time = clock.step(0.01)

    def step(batch):
        take_time(batch)
        optimizer.zero_grad()
        loss = -model(batch[0]).square().mean()
        loss.backward()
        optimizer.step()
        losses.put(loss.item())
        return loss

    pipeline = pipeline_of(Ones(), train_step=step, num_workers=0)
    return run(pipeline, MeasureOptions(budget_s=20.0), judge=lambda _: UNDECIDED, clock=clock).measurement


def test_a_job_that_would_diverge_on_few_batches_stays_finite_for_all_of_a_diagnosis(diverging):
    model, optimizer = diverging
    before, losses = model.weight.detach().clone(), SimpleQueue()
    measurement = diagnose(model, optimizer, losses)
    assert losses.qsize() > 300
    assert all(math.isfinite(losses.get()) for _ in range(losses.qsize()))
    assert torch.equal(model.weight, before)
    assert measurement.evidence.training.put_back >= 5
    assert not {"loss-not-finite", "weights-not-put-back"} & {warning.id for warning in measurement.warnings}


# --- losses that are not finite, and steps that a scaler skips, are seen between blocks ----------------------


RAW, DRAINED = Arm(modes.ALL, "loader"), Arm(modes.ALL, "loader", coupled=False)
LADDER = Ladder((Rung("raw", coupled=RAW, drained=DRAINED),), (), ())
NAN = float("nan")


class Scaler:
    def __init__(self):
        self.scale = 1024.0

    def get_scale(self):
        return self.scale


def block(losses, round_, returned, arm=RAW, scalers=(), during=lambda: None):
    losses.begin_block(scalers)
    for value in returned:
        losses.keep(value)
    during()
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
    (warning,) = losses.warnings(LADDER)
    assert warning.id == "loss-not-finite"
    assert "at the end of 2 of 3 blocks with the train step, first in round 3, experiment raw." in warning.message


@pytest.mark.parametrize(
    "returned",
    [
        *(torch.tensor(2.0), {"loss": 0.5}),
        *(torch.tensor([NAN, 1.0]), torch.empty((), device="meta"), (), {}, "nan", 3, None),
    ],
)
def test_what_is_finite_or_no_loss_is_not_told(returned):
    losses = Losses()
    block(losses, 1, [returned])
    assert list(losses.warnings(LADDER)) == []


def test_steps_that_the_scaler_skips_are_told_where_they_are_many():
    losses, scaler = Losses(), Scaler()

    def lower():
        scaler.scale /= 2

    def grow():
        scaler.scale *= 2

    block(losses, 1, [1.0], scalers=(scaler,), during=grow)
    block(losses, 1, [1.0], scalers=(scaler,), during=lower)  # a larger scale was tried
    assert list(losses.warnings(LADDER)) == []
    block(losses, 2, [1.0], scalers=(scaler,), during=lower)
    (warning,) = losses.warnings(LADDER)
    assert warning.id == "steps-skipped"
    assert "lowered its scale in 2 of 3 blocks with the train step, first in round 1" in warning.message

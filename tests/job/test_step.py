"""A batch is moved to the device and trained on, and what cannot be is refused in a sentence."""

from collections import OrderedDict, UserDict, defaultdict, deque, namedtuple
from types import SimpleNamespace

import pytest
import torch
from torch import nn

from bottleneck.errors import PipelineError
from bottleneck.job.pipeline import Pipeline
from bottleneck.job.step import (
    copies_nothing,
    device_of,
    make_train_step,
    make_transfer,
    move_to_device,
    resolve_device,
)

META = torch.device("meta")  # a device that every machine has, next to the CPU
Pair = namedtuple("Pair", "left right")


class Moves:
    def __init__(self, device="cpu"):
        self.device = device

    def to(self, device, *, non_blocking=False):
        moved = Moves(device)
        moved.non_blocking = non_blocking
        return moved


class MovesPlainly(Moves):
    def to(self, device):
        return MovesPlainly(device)


class MovesInPlace(Moves):
    def to(self, device):
        self.device = device


class MovesInPlaceAndReturnsItself(MovesInPlace):
    """As a graph of PyTorch Geometric does."""

    def to(self, device):
        self.device = device
        return self


def tensor():
    return torch.zeros(2)


def test_tensors_in_nested_containers_move_and_other_things_stay():
    marker = object()
    moved = move_to_device({"a": [tensor(), (tensor(), "text", 3, None)], "b": marker}, META)
    assert moved["a"][0].device == moved["a"][1][0].device == META
    assert moved["a"][1][1:] == ("text", 3, None)
    assert moved["b"] is marker


@pytest.mark.parametrize(
    "container",
    [
        [tensor()],
        (tensor(),),
        Pair(tensor(), tensor()),
        {0: tensor()},
        OrderedDict({0: tensor()}),
        defaultdict(list, {0: tensor()}),
        UserDict({0: tensor()}),
        deque([tensor()], maxlen=3),
    ],
    ids=lambda value: type(value).__name__,
)
def test_the_type_of_a_container_is_kept(container):
    moved = move_to_device(container, META)
    assert type(moved) is type(container)
    assert moved[0].device == META
    assert container[0].device == CPU


def test_an_object_with_to_moves_itself():
    moved = move_to_device(Moves(), META, non_blocking=True)
    assert (moved.device, moved.non_blocking) == (META, True)
    assert move_to_device(MovesPlainly(), META, non_blocking=True).device == META


@pytest.mark.parametrize("kind", [MovesInPlace, MovesInPlaceAndReturnsItself])
def test_a_batch_that_moves_in_place_stays_on_the_host(kind):
    # Guards: a cached batch that was moved once costs no copy ever after.
    on_host = kind()
    moved = move_to_device([on_host], META)[0]
    assert (moved.device, on_host.device) == (META, "cpu")


def test_non_blocking_reaches_the_copy(monkeypatch):
    asked = []
    original = torch.Tensor.to

    def record(self, *args, **kwargs):
        asked.append(kwargs.get("non_blocking"))
        return original(self, *args, **kwargs)

    monkeypatch.setattr(torch.Tensor, "to", record)
    pipeline = Pipeline(dataset=[1], train_step=print)
    make_transfer(pipeline, CPU, pinned=True)((tensor(), [tensor()]))
    make_transfer(pipeline, CPU, pinned=False)(tensor())
    assert asked == [True, True, False]


def test_the_users_own_transfer_is_used():
    pipeline = Pipeline(dataset=[1], train_step=print, to_device=lambda batch, device: (batch, device))
    assert make_transfer(pipeline, META, pinned=True)("batch") == ("batch", META)
    assert not copies_nothing(pipeline, CPU)


def without_accelerator(monkeypatch):
    monkeypatch.setattr("bottleneck.job.step.accelerator_kind", lambda: None)


def with_cuda(monkeypatch, count):
    monkeypatch.setattr("bottleneck.job.step.accelerator_kind", lambda: "cuda")
    monkeypatch.setattr(torch.cuda, "device_count", lambda: count)
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: False)


def test_a_device_gets_its_index(monkeypatch):
    with_cuda(monkeypatch, 2)
    assert resolve_device("cuda") == torch.device("cuda", 0)
    assert resolve_device(1) == resolve_device("cuda:1") == torch.device("cuda", 1)
    assert resolve_device("cpu:0") == CPU


def test_a_device_that_is_not_there_is_refused_with_those_that_are(monkeypatch):
    without_accelerator(monkeypatch)
    with pytest.raises(PipelineError, match=r"'cuda' does not exist.*device='cpu'"):
        resolve_device("cuda")
    with_cuda(monkeypatch, 2)
    with pytest.raises(PipelineError, match=r"'cuda:2' does not exist.*2 cuda device\(s\)"):
        resolve_device("cuda:2")
    with pytest.raises(PipelineError, match="'meta' does not exist"):
        resolve_device("meta")
    with pytest.raises(PipelineError, match="must be a name"):
        resolve_device(True)


class Placed(torch.nn.Module):
    """A model whose parameters lie on devices that need not be there."""

    def __init__(self, *devices):
        super().__init__()
        self.placed = [SimpleNamespace(device=torch.device(device)) for device in devices]

    def parameters(self, recurse=True):
        return iter(self.placed)


@pytest.mark.parametrize(
    ("devices", "given", "expected"),
    [(["cuda:1"], None, "cuda:1"), (["meta", "cpu", "xpu:2", "xpu:3"], None, "xpu:2"), (["cuda:1"], "cpu", "cpu")],
)
def test_a_job_trains_where_its_model_is_unless_it_says_otherwise(devices, given, expected):
    # Guards: a model on the second device was moved to the current one, or its own step got batches from there.
    pipeline = Pipeline(dataset=[1], model=Placed(*devices), loss_fn=print, device=given)
    assert device_of(pipeline) == torch.device(expected)


CPU = torch.device("cpu")
INPUTS, TARGETS = torch.ones(4, 3), torch.zeros(4, 2)


class Net(nn.Module):
    """Returns its output, or its loss in one of the usual forms."""

    def __init__(self, form="output"):
        super().__init__()
        self.layer = nn.Linear(3, 2)
        self.form = form

    def forward(self, x, labels=None):
        output = self.layer(x)
        loss = output.sum()
        forms = {
            "output": output,
            "loss": loss,
            "mapping": {"loss": loss, "logits": output},
            "object": SimpleNamespace(loss=loss, logits=output),
            "tuple": (loss, output),
            "nothing": None,
            "other mapping": {"logits": output},
        }
        return forms[self.form]


def step_of(model, **fields):
    return make_train_step(Pipeline(dataset=[1], model=model, **fields))


def squared(output, target):
    return ((output - target) ** 2).mean()


def test_the_default_step_trains_as_a_loop_written_by_hand():
    torch.manual_seed(0)
    model = Net()
    twin = Net()
    twin.load_state_dict(model.state_dict())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    own = torch.optim.SGD(twin.parameters(), lr=0.1, momentum=0.9)
    step = step_of(model, loss_fn=squared, optimizer=optimizer)
    for _ in range(3):
        loss = step((INPUTS, TARGETS))
        own_loss = squared(twin(INPUTS), TARGETS)
        own.zero_grad(set_to_none=True)
        own_loss.backward()
        own.step()
        assert torch.equal(loss, own_loss)
    assert torch.equal(model.layer.weight, twin.layer.weight)
    assert not torch.equal(model.layer.weight, Net().layer.weight)


def test_without_an_optimizer_gradients_do_not_pile_up_and_nothing_is_updated():
    model = Net()
    weight = model.layer.weight.detach().clone()
    step = step_of(model, loss_fn=squared)
    step((INPUTS, TARGETS))
    first = model.layer.weight.grad.clone()
    step((INPUTS, TARGETS))
    assert torch.equal(model.layer.weight.grad, first)
    assert torch.equal(model.layer.weight, weight)


@pytest.mark.parametrize("form", ["loss", "mapping", "object", "tuple"])
def test_without_a_loss_fn_the_model_returns_its_loss(form):
    model = Net(form)
    loss = step_of(model)({"x": INPUTS, "labels": TARGETS})
    assert loss.ndim == 0
    assert model.layer.weight.grad is not None


@pytest.mark.parametrize(
    ("batch", "shape"),
    [
        (INPUTS, r"float32 \[4, 3\]"),
        ((INPUTS, TARGETS, TARGETS), r"\(float32 \[4, 3\], float32 \[4, 2\], float32 \[4, 2\]\)"),
        ({"x": INPUTS, "extra": TARGETS}, r"\{x: float32 \[4, 3\], extra: float32 \[4, 2\]\}"),
        (None, "None"),
        (SimpleNamespace(x=1), "SimpleNamespace"),
    ],
)
def test_a_batch_that_is_not_understood_is_shown(batch, shape):
    with pytest.raises(PipelineError, match=f"{shape}.*train_step"):
        step_of(Net(), loss_fn=squared)(batch)


def test_a_model_that_does_not_take_the_whole_batch_is_refused_as_one_without_its_loss():
    with pytest.raises(PipelineError, match=r"Without loss_fn the model gets the whole batch.*Pass loss_fn="):
        step_of(nn.Sequential(nn.Linear(3, 2)))((INPUTS, TARGETS))


def test_a_type_error_inside_the_model_stays_what_it_is():
    class Broken(nn.Linear):
        def forward(self, inputs, target):
            raise TypeError("mine")

    with pytest.raises(TypeError, match="mine"):
        step_of(Broken(3, 2))((INPUTS, TARGETS))


@pytest.mark.parametrize(
    ("model", "fields", "words"),
    [
        (Net("nothing"), {}, "must return its loss, but it returned None"),
        (Net("other mapping"), {}, r"\{logits: float32.*loss_fn=nn.CrossEntropyLoss"),
        (Net("output"), {}, r"one number, but returned float32 \[4, 2\].*loss_fn="),
        (
            Net(),
            {"loss_fn": nn.MSELoss(reduction="none")},
            "loss_fn must return the loss as a tensor of one number.*reduction='mean'",
        ),
        (Net(), {"loss_fn": lambda output, target: 0.5}, "as a tensor of one number, but returned float"),
        (Net().requires_grad_(False), {"loss_fn": squared}, "no parameter that requires a gradient"),
    ],
)
def test_a_loss_that_cannot_be_trained_on_is_refused(model, fields, words):
    with pytest.raises(PipelineError, match=words):
        step_of(model, **fields)((INPUTS, TARGETS))

from collections import OrderedDict, UserDict, defaultdict, deque, namedtuple
from dataclasses import FrozenInstanceError, dataclass, field
from types import MappingProxyType, SimpleNamespace

import pytest
import torch
from torch.nn.utils.rnn import pack_sequence

from bottleneck.errors import PipelineError
from bottleneck.job.pipeline import Pipeline
from bottleneck.job.step import (
    copies_nothing,
    device_of,
    make_transfer,
    move_to_device,
    resolve_device,
)

META = torch.device("meta")  # a device that every machine has beside the CPU
CPU = torch.device("cpu")
Pair = namedtuple("Pair", "left right")


@dataclass(frozen=True)
class FrozenBatch:
    image: torch.Tensor
    name: str
    runs: list = field(default_factory=list)

    def __post_init__(self):
        self.runs.append(1)


@dataclass
class SlottedBatch:
    __slots__ = ("image",)
    image: torch.Tensor


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


class TokenBatch(UserDict):
    def to(self, device):
        return TokenBatch({key: value.to(device) for key, value in self.data.items()})


def tensor():
    return torch.zeros(2)


def test_tensors_in_nested_containers_move_and_other_things_stay():
    marker = object()
    moved = move_to_device({"a": [tensor(), (tensor(), "text", 3, None)], "b": marker}, META)
    assert moved["a"][0].device == moved["a"][1][0].device == META
    assert moved["a"][1][1:] == ("text", 3, None)
    assert moved["b"] is marker


def test_a_tensor_that_is_there_is_returned_as_it_is():
    here = tensor()
    assert move_to_device(here, CPU) is here
    assert move_to_device([here], CPU)[0] is here


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


def test_a_default_factory_is_kept():
    moved = move_to_device(defaultdict(list, {0: tensor()}), META)
    assert moved["new"] == []


def test_a_mapping_that_cannot_be_written_to_becomes_one_of_its_kind():
    assert move_to_device(MappingProxyType({0: tensor()}), META)[0].device == META


def test_a_frozen_dataclass_moves_without_running_its_constructor_again():
    batch = FrozenBatch(tensor(), "cat")
    moved = move_to_device(batch, META)
    assert moved.image.device == META
    assert (moved.name, moved.runs) == ("cat", [1])
    assert batch.image.device == CPU
    with pytest.raises(FrozenInstanceError):
        moved.name = "dog"


def test_a_dataclass_with_slots_moves():
    assert move_to_device(SlottedBatch(tensor()), META).image.device == META


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


def test_an_object_that_refuses_to_be_copied_moves_itself():
    class Single(MovesInPlace):
        def __copy__(self):
            raise TypeError

    only = Single()
    assert move_to_device(only, META) is only
    assert only.device == META


def test_to_is_asked_before_the_container_is_opened():
    packed = pack_sequence([torch.ones(3), torch.ones(2)])
    assert move_to_device(packed, META).data.device == META
    assert move_to_device(TokenBatch(ids=tensor()), META)["ids"].device == META


def test_a_field_called_to_is_no_method():
    thing = SimpleNamespace(to=3)
    assert move_to_device(thing, META) is thing


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


def test_only_the_default_transfer_to_the_cpu_copies_nothing():
    pipeline = Pipeline(dataset=[1], train_step=print)
    assert copies_nothing(pipeline, CPU)
    assert not copies_nothing(pipeline, META)


def without_accelerator(monkeypatch):
    monkeypatch.setattr("bottleneck.job.step._accelerator_kind", lambda: None)


def with_cuda(monkeypatch, count):
    monkeypatch.setattr("bottleneck.job.step._accelerator_kind", lambda: "cuda")
    monkeypatch.setattr(torch.cuda, "device_count", lambda: count)
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: False)


def test_the_default_device(monkeypatch):
    without_accelerator(monkeypatch)
    assert resolve_device(None) == CPU
    with_cuda(monkeypatch, 2)
    assert resolve_device(None) == torch.device("cuda", 0)


def test_a_device_gets_its_index(monkeypatch):
    with_cuda(monkeypatch, 2)
    assert resolve_device("cuda") == torch.device("cuda", 0)
    assert resolve_device(1) == resolve_device("cuda:1") == torch.device("cuda", 1)
    assert resolve_device("cpu:0") == CPU


def test_a_device_that_is_not_there_is_refused_with_those_that_are(monkeypatch):
    without_accelerator(monkeypatch)
    with pytest.raises(PipelineError, match=r"'cuda' is not there.*device='cpu'"):
        resolve_device("cuda")
    with_cuda(monkeypatch, 2)
    with pytest.raises(PipelineError, match=r"'cuda:2' is not there.*2 cuda device\(s\)"):
        resolve_device("cuda:2")
    with pytest.raises(PipelineError, match="'meta' is not there"):
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
    [
        (["cuda:1"], None, "cuda:1"),
        (["meta", "cpu", "xpu:2", "xpu:3"], None, "xpu:2"),
        (["cuda:1"], "cpu", "cpu"),
    ],
)
def test_a_job_trains_where_its_model_is_unless_it_says_otherwise(devices, given, expected):
    # Guards: a model on the second device was moved to the current one, or its own step got batches from there.
    pipeline = Pipeline(dataset=[1], model=Placed(*devices), loss_fn=print, device=given)
    assert device_of(pipeline) == torch.device(expected)


@pytest.mark.parametrize("devices", [[], ["cpu"], ["meta"]])
def test_a_model_that_is_on_no_accelerator_yet_says_nothing_of_the_device(devices):
    assert device_of(Pipeline(dataset=[1], model=Placed(*devices), loss_fn=print)) == resolve_device(None)

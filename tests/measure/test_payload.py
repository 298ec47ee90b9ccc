"""The content of a batch: tensors that could travel in fewer bytes, and tensors that are never read."""

import dataclasses

import pytest
import torch
from torch import nn

from bottleneck.measure.evidence import payload
from bottleneck.measure.evidence.payload import WatchedStep, describe_payload
from bottleneck.results.evidence import Payload
from tests.support.as_json import in_json

describe_payload = in_json(describe_payload)

NOISE = torch.randn(8, 3, 16, 16)
PIXELS = torch.randint(0, 256, (8, 3, 16, 16)).float() / 255
NORMALISED = (PIXELS - torch.tensor([0.485, 0.456, 0.406]).view(3, 1, 1)) / torch.tensor([0.229, 0.224, 0.225]).view(
    3, 1, 1
)
ROWS = torch.randint(5, 1000, (8, 64))
PADDED = ROWS.clone()
PADDED[:, 20:] = 0
RECORDINGS = torch.randn(8, 64, 4)
RECORDINGS[:, 16:] = 0
SPARSE = torch.zeros(8, 64)
SPARSE[:, :32:8] = torch.randn(8, 4)
ONE_HOT = torch.nn.functional.one_hot(torch.randint(0, 50, (64,)), 50).float()
MASK = (torch.rand(8, 32, 32) > 0.5).long()


@dataclasses.dataclass
class Sample:
    image: torch.Tensor
    meta: dict


def savings(batch):
    return {(found["path"], found["id"]): found["bytes_saved"] for found in describe_payload(batch)["savings"]}


def test_every_tensor_is_listed_with_its_place():
    batch = Sample(NOISE, {"label": [torch.zeros(8, dtype=torch.int64), "text", 3]})
    found = describe_payload(batch)
    assert found["bytes"] == NOISE.numel() * 4 + 64
    assert found["tensors"] == [
        {"path": ".image", "shape": [8, 3, 16, 16], "dtype": "float32", "bytes": NOISE.numel() * 4},
        {"path": ".meta['label'][0]", "shape": [8], "dtype": "int64", "bytes": 64},
    ]
    assert found["objects"] == 2
    assert describe_payload(NOISE)["tensors"][0]["path"] == ""


@pytest.mark.parametrize(
    ("deserving", "healthy", "id_", "share"),
    [
        (NOISE.double(), NOISE, "float64", 1 / 2),
        (PIXELS, NOISE, "few-levels", 3 / 4),
        (NORMALISED, NOISE[:, :, ::2, ::2], "few-levels", 3 / 4),
        (ONE_HOT, torch.randn(64, 50), "one-hot", 1 - 8 / 200),
        (MASK, torch.randint(0, 9, (8, 32, 32)), "mask", 7 / 8),
        (PADDED, ROWS, "padding", 44 / 64),
        (RECORDINGS, SPARSE, "padding", 3 / 4),
        (RECORDINGS, torch.full((8, 64), 3.0), "padding", 3 / 4),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_could_travel_smaller(deserving, healthy, id_, share):
    found = savings([deserving])
    assert list(found) == [("[0]", id_)]
    assert found["[0]", id_] == pytest.approx(share * deserving.numel() * deserving.element_size(), rel=0.03)
    assert savings([healthy]) == {}


def batch():
    return {"ids": torch.arange(6).view(2, 3), "mask": torch.ones(2, 3), "label": torch.tensor([0, 1])}


def unread_of(step):
    found = step.add_unread(Payload(), batch())
    return {"unread": None if found.unread is None else list(found.unread), "unread_bytes": found.unread_bytes}


def watched(step, calls=3):
    """A step that has been called; the first call is not watched."""
    made = WatchedStep(step)
    for _ in range(calls):
        made(batch())
    return made


def unread(step):
    return unread_of(watched(step))["unread"]


@pytest.fixture(autouse=True)
def frames(monkeypatch):
    """Compiled functions; other tests of this process may have some."""
    found = []
    monkeypatch.setattr(payload, "has_compiled", lambda: bool(found))
    return found


MODEL = nn.Sequential(nn.Embedding(6, 4), nn.Flatten(), nn.Linear(12, 2))


def train(found):
    nn.functional.cross_entropy(MODEL(found["ids"]), found["label"]).backward()


def test_what_no_operation_gets_is_unread():
    assert unread_of(watched(train)) == {"unread": ["['mask']"], "unread_bytes": 24}


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


class Ahead:
    """A loop that takes some batches before it trains on the first of them, as a prefetcher does."""

    def __init__(self, batches):
        self.batches, self.taken = batches, []

    def __call__(self, found):
        self.taken.append({key: value.clone() for key, value in found.items()})
        if len(self.taken) > self.batches:
            train(self.taken.pop(0))


@pytest.mark.parametrize("ahead", [1, 2, 3, 5])
def test_a_loop_that_looks_ahead_reads_its_batches_later(ahead):
    # Guards: of a loop three batches ahead, all columns were listed as never read.
    step = WatchedStep(Ahead(ahead), batches_ahead=1)
    for _ in range(8):
        step(batch())
    assert unread_of(step)["unread"] == (["['mask']"] if ahead <= 2 else None)


def is_watched():
    return torch.overrides._get_current_function_mode() is not None


def test_an_operation_that_refuses_to_be_watched_is_done_all_the_same():
    def step(found):
        if is_watched():
            raise NotImplementedError("no modes")
        return "done"

    made = WatchedStep(step)
    assert [made(batch()) for _ in range(3)] == ["done"] * 3
    assert unread_of(made)["unread"] is None


def test_an_error_of_the_users_is_raised_as_it_is():
    calls = []

    def step(found):
        calls.append(1)
        if len(calls) > 1:
            raise ValueError("shapes differ")

    with pytest.raises(ValueError, match="shapes differ"):
        watched(step)


def test_what_compiles_itself_is_not_watched(frames):
    seen = []

    def step(found):
        seen.append(is_watched())
        frames.append(1)

    assert unread(step) is None
    assert seen == [False] * 3

"""What a batch holds is described, and what could travel smaller is found, in the deserving batch only."""

import dataclasses

import pytest
import torch

from bottleneck.measure.facts.payload import describe_payload
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
SPARSE = torch.zeros(8, 4096)
SPARSE[:, ::100] = torch.randn(8, 41)
ONE_HOT = torch.nn.functional.one_hot(torch.randint(0, 50, (64,)), 50).float()
MASK = (torch.rand(8, 32, 32) > 0.5).long()


@dataclasses.dataclass
class Sample:
    image: torch.Tensor
    meta: dict


def savings(batch, model=None):
    return {(found["path"], found["id"]): found["bytes_saved"] for found in describe_payload(batch, model)["savings"]}


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
        (SPARSE, torch.randn(8, 4096), "mostly-zero", 0.96),
        (PADDED, ROWS, "padding", 44 / 64),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_could_travel_smaller(deserving, healthy, id_, share):
    found = savings([deserving])
    assert list(found) == [("[0]", id_)]
    assert found["[0]", id_] == pytest.approx(share * deserving.numel() * deserving.element_size(), rel=0.03)
    assert savings([healthy]) == {}


def test_a_model_in_half_precision_needs_no_more():
    model = torch.nn.Linear(4, 4)
    assert savings([NOISE], model) == {}
    assert savings([NOISE], model.bfloat16()) == {("[0]", "half-model"): NOISE.numel() * 2}


def test_small_change_is_not_told():
    labels = torch.zeros(8, dtype=torch.float64)
    assert savings([NOISE, labels]) == {}


def test_the_largest_saving_leads():
    assert [path for path, _ in savings({"mask": MASK, "pixels": PIXELS.repeat(8, 1, 1, 1)})] == [
        "['pixels']",
        "['mask']",
    ]


@pytest.mark.parametrize(
    "batch",
    [None, [], "text", torch.zeros(0), torch.zeros(()), torch.eye(3).to_sparse(), {"a": {1, 2}}, torch.ones(9) > 0],
    ids=repr,
)
def test_any_batch_can_be_described(batch):
    assert describe_payload(batch)["savings"] == []

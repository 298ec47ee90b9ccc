"""A remedy speaks of what the run saw: no hint about images in a job without any."""

import re

import pytest

from tests.analysis.held_jobs import held_by, transform
from tests.analysis.rule_case import result_of

IMAGES = re.compile(r"image|pixel|jpe?g|crop|jitter|decode small|draft|resize|torchvision", re.IGNORECASE)
TEXT = {
    "payload": {
        "bytes": 100_000,
        "tensor_count": 2,
        "objects": 0,
        "tensors": [
            {"path": "['ids']", "shape": [32, 128], "dtype": "int64", "bytes": 32_768},
            {"path": "['mask']", "shape": [32, 1, 128, 128], "dtype": "bool", "bytes": 524_288},
        ],
        "savings": [],
    },
    "loader": {"decoded_pixels_per_sample": None, "used_pixels_per_sample": None},
}
STAGES = ("load", "augment", "collate", "handoff", "copy")


def said(job):
    return " ".join(f"{item.title} {item.why} {item.how}" for item in result_of(job).advice)


@pytest.mark.parametrize("device", ["cuda:0", "cpu"])
@pytest.mark.parametrize("held", STAGES)
def test_a_job_on_text_hears_nothing_of_images(held, device):
    heard = said(held_by(held, evidence=TEXT, environment={"device": device}, pipeline={"pin_memory": False}))
    assert heard
    assert not IMAGES.search(heard)


@pytest.mark.parametrize(
    "evidence",
    [
        {"transforms": [transform("transform", "Mixture", 0.1, stage="augment")]},
        {"payload": {"tensors": [{"path": "[0]", "shape": [32, 3, 224, 224], "dtype": "float32", "bytes": 1}]}},
        {"payload": {"tensors": [{"path": "[0]", "shape": [32, 224, 224, 3], "dtype": "uint8", "bytes": 1}]}},
        {"loader": {"decoded_pixels_per_sample": 1000.0}},
    ],
    ids=["transforms", "channels first", "channels last", "decoded"],
)
@pytest.mark.parametrize("held", ["load", "augment"])
def test_a_job_on_images_does(held, evidence):
    assert IMAGES.search(said(held_by(held, evidence=evidence)))


def test_the_dataset_the_functions_and_the_paths_are_the_users():
    evidence = {
        "loader": {"open_handles": [{"path": "self.inner.file", "type": "h5py.File"}], "fetches_batches": False}
    }
    assert "self.inner.file" in said(held_by("load", evidence=evidence))
    job = held_by(
        "collate", evidence={"payload": {"bytes": 1000, "objects": 500}}, pipeline={"collate_fn": "pack_words"}
    )
    assert "pack_words" in said(job)

"""The members of the real packages' compositions have rows of their own, and work as ever when those are taken."""

import time

import albumentations
import monai.transforms as mt
import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, Dataset
from torchvision.transforms import v2

from bottleneck.measure.evidence.stages import observe, summarise
from tests.loader.staged_datasets import switched
from tests.support.as_json import said

pytestmark = pytest.mark.integration

PLANTED_S = 4e-3


def spin(image, **kwargs):
    end_s = time.thread_time() + PLANTED_S
    while time.thread_time() < end_s:
        pass
    return image


class Photos(Dataset):
    def __init__(self, transform):
        self.transform = transform

    def __len__(self):
        return 1000

    def read(self, index):
        return np.random.default_rng(index).integers(0, 256, (32, 48, 3), dtype=np.uint8)

    def __getitem__(self, index):
        return self.transform(torch.as_tensor(self.read(index)).permute(2, 0, 1))


class ForAlbumentations(Photos):
    def __getitem__(self, index):
        return self.transform(image=self.read(index))["image"]


class ForMonai(Photos):
    def __getitem__(self, index):
        return self.transform({"image": self.read(index)})["image"]


PACKAGES = {
    "albumentations": (
        albumentations.Compose(
            [
                albumentations.Lambda(image=spin, p=1.0),
                albumentations.OneOf([albumentations.HorizontalFlip(p=1.0)], p=1.0),
                albumentations.SomeOf([albumentations.Transpose(p=1.0)], n=1, p=1.0),
                albumentations.Resize(16, 24, p=1.0),
            ]
        ),
        ForAlbumentations,
        ["Lambda", "HorizontalFlip", "Transpose", "Resize"],
        ("Resize", "16x24x3 uint8"),
    ),
    "monai": (
        mt.Compose(
            [
                mt.EnsureChannelFirstd("image", channel_dim=-1),
                mt.OneOf([mt.Lambdad("image", spin)]),
                mt.Compose([mt.Resized("image", (16, 24))]),
            ]
        ),
        ForMonai,
        ["EnsureChannelFirstd", "Lambdad", "Resized"],
        ("Resized", "3x16x24 float32"),
    ),
    "torchvision": (
        v2.Compose([v2.Lambda(spin), v2.RandomChoice([v2.RandomInvert(p=1.0)]), v2.Resize((16, 24))]),
        Photos,
        ["Lambda", "RandomInvert", "Resize"],
        ("Resize", "3x16x24 uint8"),
    ),
}


@pytest.mark.parametrize("package", PACKAGES)
def test_members_have_rows_that_add_up(package):
    transform, kind, names, (last, output) = PACKAGES[package]
    with switched(DataLoader(kind(transform), batch_size=4, num_workers=1)) as wrapped:
        seen = observe(wrapped, 0.5, time.perf_counter)
    evidence = said(summarise(seen, ()))
    rows = {row["name"]: row for row in evidence["transforms"]}
    assert list(rows) == names
    assert {row["calls_per_sample"] for row in rows.values()} == {1.0}
    assert rows[last]["output"] == output
    planted = rows.get("Lambda") or rows["Lambdad"]
    assert planted["cpu_s_per_call"] == pytest.approx(PLANTED_S, rel=0.15)
    assert planted["stage"] == "augment"
    whole = sum(row["share"] for row in rows.values())
    assert whole >= 0.9 or "add up to" in evidence["transforms_note"]

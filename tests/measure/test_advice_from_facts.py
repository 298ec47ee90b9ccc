"""What the workers see is what the rules read: from a planted pipeline to the advice that it deserves."""

import time
from dataclasses import replace

import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import DataLoader
from torchvision import transforms

from bottleneck.analysis.advice import augment
from bottleneck.analysis.advice.case import Case, pixels_of
from bottleneck.job.pipeline import Pipeline
from bottleneck.loader.observation import describe_output, image_pixels
from bottleneck.measure.evidence.dataset import describe_loader
from bottleneck.measure.evidence.stages import observe, summarise
from bottleneck.results.records import Interval, Stage, Verdict
from tests.loader.staged_datasets import switched
from tests.measure.loaded_jobs import Photos


@pytest.mark.parametrize(
    "value",
    [
        Image.new("RGB", (20, 10)),
        Image.new("L", (20, 10)),
        torch.zeros(3, 10, 20),
        torch.zeros(1, 10, 20, dtype=torch.uint8),
        np.zeros((10, 20, 3), np.uint8),
        torch.zeros(128, dtype=torch.int64),
        torch.zeros(5, 7, 9),
        "text",
    ],
    ids=["RGB", "grey", "channels first", "one channel", "channels last", "tokens", "no image", "text"],
)
def test_both_sides_agree_on_what_an_image_is(value):
    assert pixels_of(describe_output(value)) == image_pixels(value)


class Blurred(Photos):
    """Blurs 80x60 pixels, and keeps 32x32 of them."""

    def __init__(self):
        super().__init__()
        blur = transforms.GaussianBlur(15, sigma=3.0)
        self.transform = transforms.Compose([blur, transforms.RandomCrop(32), transforms.ToTensor()])


def held_by_augment(evidence):
    """A case in which the augmentation holds the job, with evidence that was really taken."""
    half = Interval(0.5, 0.5, 0.5)
    stage = Stage("augment", "before_collate", "before_augment", half, half, half, Interval(2.0, 1.9, 2.1), "real")
    verdict = Verdict("input_bound", "augment", (), half, Interval(2.0, 2.0, 2.0), "")
    return Case((stage,), verdict, {}, {"device": "cuda"}, evidence, 1.0, 0.5, 1.0, None)


@pytest.mark.integration
def test_a_blur_before_the_crop_is_found_by_what_the_workers_saw():
    loader = DataLoader(Blurred(), batch_size=2, num_workers=1, multiprocessing_context="fork")
    pipeline = Pipeline(dataset=loader.dataset, train_step=len, device="cpu")
    with switched(loader) as running:
        seen = observe(running, 0.05, time.perf_counter)
        evidence = summarise(seen, ())
        evidence = replace(evidence, loader=describe_loader(pipeline, loader, running, seen.pixels, evidence))
    case = held_by_augment(evidence)
    given = {found.id: found for rule in augment.RULES for found in rule(case)}
    assert "transform.transforms[1] (RandomCrop)" in given["crop-before"].how
    assert given["crop-before"].evidence["pixels_before"] == 80 * 60
    assert given["crop-before"].evidence["pixels_after"] == 32 * 32
    assert given["costliest-transform"].evidence["path"] == "transform.transforms[0]"
    assert "GaussianBlur" in given["augment-on-device"].title

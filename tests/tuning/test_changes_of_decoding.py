"""JPEG files decoded small: the picture stays, or the change is refused with the reason."""

import pytest
import torch
from PIL import Image
from torch.utils.data import Subset
from torchvision import transforms
from torchvision.datasets import FakeData

from bottleneck.tuner.change import build
from bottleneck.tuner.changes.samples import InMemory
from tests.tuning.jobs import BY_NAME, Stream, here, table_job

CHANGE = BY_NAME["decode_small"]
RESIZED = transforms.Compose([transforms.Resize(32), transforms.CenterCrop(32), transforms.ToTensor()])
ZOOMED = transforms.Compose([transforms.RandomResizedCrop(32, scale=(0.08, 1.0)), transforms.ToTensor()])
CUT_OUT = transforms.Compose([transforms.RandomCrop(32), transforms.ToTensor()])


class Files:
    """Photographs of a slope, from dark to bright, in files of one kind."""

    def __init__(self, folder, transform, ending="jpg", side=160):
        self.transform, self.paths = transform, [folder / f"{index}.{ending}" for index in range(6)]
        slope = torch.arange(side, dtype=torch.float32) * 255 / side
        for index, path in enumerate(self.paths):
            pixels = torch.stack(
                [slope.expand(side, side), slope[:, None].expand(side, side), slope.expand(side, side)]
            )
            Image.fromarray(pixels.roll(20 * index, 1).byte().permute(1, 2, 0).numpy()).save(path)

    def __len__(self):
        return len(self.paths)

    def open(self, index):
        return Image.open(self.paths[index])

    def __getitem__(self, index):
        return self.transform(self.open(index).convert("RGB")), index


class Sized(Files):
    """Gives what a box would be scaled by."""

    def __getitem__(self, index):
        image = self.open(index)
        return self.transform(image.convert("RGB")), image.size[0]


class Broken(Files):
    def __getitem__(self, index):
        image = self.open(index)
        assert image.size == (160, 160)
        return self.transform(image), index


@pytest.mark.parametrize("transform", [RESIZED, ZOOMED])
def test_samples_are_made_of_images_of_a_quarter_of_the_size(tmp_path, transform):
    job = table_job(Subset(Files(tmp_path, transform), range(5)))
    place = here(job)
    assert CHANGE.why_not(place) is None
    setting = CHANGE.propose(place, {})
    assert setting.label == "decode_small=37"
    assert CHANGE.propose(place, {37: None}) is None
    small = build(job, (setting,)).dataset
    opens, sizes = Image.open, []
    transform.transforms.insert(0, transforms.Lambda(lambda image: sizes.append(image.size) or image))
    try:
        image, index = small[3]
        other, _ = job.dataset[3]
    finally:
        del transform.transforms[0]
    assert sizes == [(40, 40), (160, 160)]
    assert (index, image.shape, Image.open) == (3, other.shape, opens)


@pytest.mark.parametrize(
    ("kind", "transform", "options", "why"),
    [
        (Files, CUT_OUT, {}, "show something else"),
        (Sized, RESIZED, {}, "show something else"),
        (Broken, RESIZED, {}, "cannot be made"),
        (Files, RESIZED, {"ending": "png"}, "no JPEG file has twice the size"),
        (Files, RESIZED, {"side": 60}, "no JPEG file has twice the size"),
        (Files, transforms.Lambda(lambda image: 1.0), {}, "no image"),
    ],
)
def test_what_would_differ_or_gain_nothing_is_refused(tmp_path, kind, transform, options, why):
    opens = Image.open
    assert why in CHANGE.why_not(here(table_job(kind(tmp_path, transform, **options))))
    assert Image.open is opens


@pytest.mark.parametrize(
    ("dataset", "why"),
    [
        (Stream(), "a stream"),
        (InMemory(FakeData(8, transform=RESIZED), whole=False), "come from memory"),
        (FakeData(8, (3, 90, 90), transform=RESIZED), "no JPEG file has twice the size"),
    ],
)
def test_what_opens_no_files_is_refused(dataset, why):
    assert why in CHANGE.why_not(here(table_job(dataset)))

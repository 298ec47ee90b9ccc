"""Random changes of pixels on whole batches: as torchvision makes them, drawn for each sample, or refused."""

import pytest
import torch
from torch.utils.data import DataLoader
from torchvision import transforms
from torchvision.transforms import functional, v2

from bottleneck.job.step import make_transfer
from bottleneck.tuner.change import Setting, build
from bottleneck.tuner.changes.on_device import OnDevice
from tests.tuning.jobs import BY_NAME, CPU, CUDA, Pictures, Stream, here, pictures_job, table_job

CHANGE = BY_NAME["augment_on_device"]
NORMALIZE = transforms.Normalize((0.4, 0.5, 0.6), (0.2, 0.3, 0.2))


def bytes_of(samples=6, side=16):
    return torch.randint(
        0, 256, (samples, 3, side, side), dtype=torch.uint8, generator=torch.Generator().manual_seed(1)
    )


def blurred(kernel_size, sigma):
    return lambda image: functional.gaussian_blur(image, kernel_size, [sigma, sigma])


def by_torchvision(change, images):
    return torch.stack([change(image.float() / 255) for image in images])


@pytest.mark.parametrize(
    ("step", "change"),
    [
        (transforms.RandomHorizontalFlip(1.0), functional.hflip),
        (transforms.RandomVerticalFlip(1.0), functional.vflip),
        (transforms.RandomHorizontalFlip(0.0), lambda image: image),
        (transforms.ColorJitter(brightness=(1.4, 1.4)), lambda image: functional.adjust_brightness(image, 1.4)),
        (transforms.ColorJitter(contrast=(0.6, 0.6)), lambda image: functional.adjust_contrast(image, 0.6)),
        (transforms.ColorJitter(saturation=(1.7, 1.7)), lambda image: functional.adjust_saturation(image, 1.7)),
        (transforms.ColorJitter(hue=(0.2, 0.2)), lambda image: functional.adjust_hue(image, 0.2)),
        (transforms.RandomGrayscale(1.0), lambda image: functional.rgb_to_grayscale(image, 3)),
        (transforms.RandomInvert(1.0), functional.invert),
        (transforms.RandomSolarize(128, 1.0), lambda image: functional.solarize(image, 128 / 255)),
        (transforms.GaussianBlur(5, (1.3, 1.3)), blurred([5, 5], 1.3)),
        (transforms.GaussianBlur((3, 7), (0.8, 0.8)), blurred([3, 7], 0.8)),
        (v2.GaussianBlur(3, (0.8, 0.8)), blurred([3, 3], 0.8)),
        (v2.ColorJitter(contrast=(0.6, 0.6)), lambda image: functional.adjust_contrast(image, 0.6)),
        (transforms.RandomApply([transforms.RandomInvert(1.0)], 1.0), functional.invert),
        (transforms.RandomErasing(0.0), lambda image: image),
        (NORMALIZE, NORMALIZE),
    ],
)  # fmt: skip
def test_each_image_is_changed_as_torchvision_changes_one(step, change):
    images = bytes_of()
    made = OnDevice([step])(images)
    assert made.dtype is torch.float32
    assert torch.allclose(made, by_torchvision(change, images), atol=2e-3)
    assert images.equal(bytes_of())


@pytest.mark.parametrize(
    "step",
    [
        transforms.RandomHorizontalFlip(0.5),
        transforms.ColorJitter(0.4, 0.4, 0.4, 0.1),
        transforms.GaussianBlur(5, (0.1, 2.0)),
        transforms.RandomErasing(1.0),
        transforms.RandomApply([transforms.ColorJitter(0.5)], 0.5),
    ],
)
def test_what_is_drawn_is_drawn_apart_for_each_sample(step):
    torch.manual_seed(0)
    alike = bytes_of(1).expand(32, -1, -1, -1)
    made = OnDevice([step])(alike)
    assert len({tuple(image.flatten()[::7].tolist()) for image in made}) > 1
    assert made.min() >= 0
    assert made.max() <= 1


def test_a_flip_takes_about_its_share_of_the_samples():
    torch.manual_seed(0)
    images = bytes_of(400, 8)
    flipped = (OnDevice([transforms.RandomHorizontalFlip(0.3)])(images) * 255).round().byte() != images
    assert 0.2 < float(flipped.flatten(1).any(1).float().mean()) < 0.4


def test_what_is_erased_has_the_size_that_was_asked_for():
    torch.manual_seed(0)
    step = transforms.RandomErasing(1.0, scale=(0.1, 0.3), ratio=(0.5, 2.0), value=0)
    erased = OnDevice([step])(torch.full((64, 3, 40, 40), 255, dtype=torch.uint8)) == 0
    shares = erased[:, 0].flatten(1).float().mean(1)
    assert 0.06 < float(shares.min()) < float(shares.max()) <= 0.31


def test_what_is_no_batch_of_images_stays_as_it_is():
    labels = torch.arange(4)
    assert OnDevice([NORMALIZE])(labels) is labels
    assert OnDevice([NORMALIZE])("text") == "text"


# --- where it applies ----------------------------------------------------------------------------------------


USUAL = transforms.Compose([
    transforms.RandomResizedCrop(12), transforms.RandomHorizontalFlip(), transforms.ColorJitter(0.4, 0.4, 0.4, 0.1),
    transforms.ToTensor(), NORMALIZE,
])  # fmt: skip


def test_the_crop_stays_in_the_workers_and_pixels_travel_as_bytes():
    given = pictures_job(USUAL)
    assert CHANGE.why_not(here(given, CUDA)) is None
    changed = build(given, (Setting(CHANGE),))
    names = [type(step).__name__ for step in changed.dataset.transform.transforms]
    assert names == ["RandomResizedCrop", "PILToTensor"]
    assert [type(step).__name__ for step in given.dataset.transform.transforms][1] == "RandomHorizontalFlip"
    images, labels = next(iter(DataLoader(changed.dataset, batch_size=4)))
    assert images.dtype is torch.uint8
    moved, same = make_transfer(changed, CPU, False)([images, labels])
    assert (moved.dtype, moved.shape) == (torch.float32, images.shape)
    assert same.equal(labels)
    assert moved.min() < 0  # normalized


def ending_in(*steps):
    return pictures_job(transforms.Compose(steps))


TURNED, SCALED = transforms.RandomRotation(9), transforms.ToTensor()
SCALED_BY_V2 = v2.ToDtype(torch.float32, scale=True)


@pytest.mark.parametrize(
    ("pipeline", "device", "said"),
    [
        (pictures_job(USUAL), CPU, "take the cores from the workers"),
        (ending_in(transforms.RandomHorizontalFlip(), SCALED), CUDA, None),
        (pictures_job(v2.Compose([v2.PILToTensor(), v2.RandomHorizontalFlip(), SCALED_BY_V2])), CUDA, None),
        (pictures_job(), CUDA, "ends in random changes"),
        (ending_in(TURNED, SCALED), CUDA, "ends in random changes"),
        (ending_in(transforms.RandomInvert(), TURNED, SCALED), CUDA, "ends in random changes"),
        (ending_in(SCALED, transforms.RandomErasing(value="random")), CUDA, "ends in random changes"),
        (ending_in(SCALED, SCALED_BY_V2, transforms.RandomErasing()), CUDA, "ends in random changes"),
        (pictures_job(USUAL, to_device=lambda batch, device: batch), CUDA, "moves its batches itself"),
        (table_job(Stream()), CUDA, "is a stream"),
        (table_job(), CUDA, "ends in random changes"),
    ],
)
def test_elsewhere_it_is_refused_with_the_reason(pipeline, device, said):
    why = CHANGE.why_not(here(pipeline, device))
    assert why is None if said is None else said in why


class Doubling(Pictures):
    def __getitem__(self, index):
        image, label = super().__getitem__(index)
        return image * 2, label


def test_a_dataset_that_does_more_to_its_pixels_is_refused():
    given = pictures_job(USUAL)
    given = given.replace(dataset=Doubling(USUAL))
    assert "the dataset does more" in CHANGE.why_not(here(given, CUDA))


@pytest.mark.gpu
def test_on_a_device_nothing_waits_for_it():
    images = bytes_of(32, 64).cuda()
    steps = [*USUAL.transforms[1:3], transforms.GaussianBlur(5), transforms.RandomErasing(0.5), NORMALIZE]
    OnDevice(steps)(images)
    torch.cuda.synchronize()
    torch.cuda.set_sync_debug_mode("error")
    try:
        OnDevice(steps)(images)
    finally:
        torch.cuda.set_sync_debug_mode("default")

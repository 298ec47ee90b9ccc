import numpy as np
import pytest
import torch
from PIL import Image

from bottleneck.loader.observation import PixelNotes, Pixels, image_pixels


@pytest.mark.parametrize(
    ("leaf", "pixels"),
    [
        (Image.new("RGB", (20, 10)), 200),
        (torch.zeros(3, 10, 20), 200),
        (np.zeros((10, 20, 3)), 200),
        (torch.zeros(1, 10, 20), 200),
        (torch.zeros(8, 3, 10, 20), 1600),
        (np.zeros((10, 20), np.uint8), 200),
        (torch.zeros(10, 20), None),
        (torch.zeros(10, dtype=torch.uint8), None),
        (torch.zeros(5, 7, 9), None),
        ("text", None),
        (7, None),
    ],
)
def test_what_counts_as_an_image(leaf, pixels):
    assert image_pixels(leaf) == pixels


def seen(notes, value, samples=1):
    return notes.end(value, samples)


def test_what_goes_into_the_augmentation_against_what_comes_out_of_the_dataset():
    notes = PixelNotes()
    notes.begin()
    notes.see_loaded((Image.new("RGB", (40, 20)),), {})
    notes.see_transformed((Image.new("RGB", (10, 10)),), {})
    found = seen(notes, (torch.zeros(3, 5, 8), 1))
    assert (found.samples, found.decoded, found.used) == (1, 800, 40)
    assert (found.loaded_samples, found.loaded_bytes) == (1, 40 * 20 * 4)


def test_without_a_cut_the_first_transform_tells_what_was_decoded():
    notes = PixelNotes()
    notes.begin()
    for size in (40, 80):
        notes.see_transformed((), {"image": np.zeros((size, size, 3), np.uint8)})
    found = seen(notes, {"image": torch.zeros(3, 8, 8)})
    assert (found.decoded, found.used) == (1600, 64)
    assert found.loaded_samples == 0


def test_two_views_of_one_image_are_decoded_once():
    notes, image = PixelNotes(), Image.new("RGB", (40, 20))
    notes.begin()
    notes.see_loaded((image,), {})
    notes.see_loaded((image,), {})
    notes.see_loaded((Image.new("L", (10, 5)),), {})  # and a small one beside it
    found = seen(notes, [torch.zeros(3, 5, 8), torch.zeros(3, 5, 8)])
    assert (found.decoded, found.used, found.loaded_bytes) == (800, 40, 3200 + 50)


def test_a_batch_that_is_fetched_at_once_counts_each_of_its_images():
    notes = PixelNotes()
    notes.begin()
    for width in (10, 30):
        notes.see_loaded((np.zeros((10, width, 3), np.uint8),), {})
    found = seen(notes, [torch.zeros(3, 5, 5), torch.zeros(3, 5, 5)], samples=2)
    assert (found.samples, found.decoded, found.used) == (2, 400, 50)
    assert found.loaded_bytes == pytest.approx(1200, abs=10)


def test_text_and_floats_are_no_decoded_images():
    notes = PixelNotes()
    notes.begin()
    notes.see_loaded(("a text", torch.zeros(3, 10, 10)), {})
    found = seen(notes, torch.zeros(3, 10, 10))
    assert found.samples == 0
    assert found.loaded_samples == 1


def test_nothing_is_carried_over_to_the_next_sample():
    notes = PixelNotes()
    notes.begin()
    notes.see_loaded((Image.new("RGB", (40, 20)),), {})
    seen(notes, torch.zeros(3, 5, 8))
    assert seen(notes, torch.zeros(3, 5, 8)) == Pixels()

"""Samples and batches in a few words."""

from collections import namedtuple

import numpy as np
import pytest
import torch
from PIL import Image

from bottleneck.job.containers import describe_structure

Pair = namedtuple("Pair", "image label")


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (torch.zeros(2, 3), "float32 [2, 3]"),
        ((np.zeros((4, 4), np.uint8), 3), "(array uint8 [4, 4], int)"),
        (Pair(Image.new("RGB", (5, 7)), "cat"), "(image: image RGB 5x7, label: str of 3)"),
        ({"x": [torch.zeros(1), None]}, "{x: [float32 [1], None]}"),
        ([torch.zeros(2)] * 9, "list of 9 times float32 [2]"),
        (list(range(3)) + ["a"] * 5, "[int, int, int, str of 1, str of 1, str of 1, 2 more]"),
        ([[[[1, 2]]]], "[[[list of 2]]]"),
        (dict.fromkeys(range(50), 1), "{0: int, 1: int, 2: int, 3: int, 4: int, 5: int, 44 more}"),
    ],
)
def test_structures_in_words(value, words):
    assert describe_structure(value) == words

"""Samples of many types, and collate functions for them."""

import dataclasses
from typing import NamedTuple

import torch
from torch.utils.data import default_collate

from tests.kinds.slow_parts import Map, rest


class Pair(NamedTuple):
    image: torch.Tensor
    label: int


@dataclasses.dataclass
class Record:
    image: torch.Tensor
    label: int


@dataclasses.dataclass(frozen=True)
class FrozenRecord:
    image: torch.Tensor
    label: int


class Samples(Map):
    """Samples of a type; `like` makes one of a number."""

    def __init__(self, slow, like):
        super().__init__(slow)
        self.like = like

    def load(self, index):
        rest(self.slow == "load")
        return self.like(index)

    def augment(self, sample):
        rest(self.slow == "augment")
        return sample


def like_dict(index):
    return {"image": torch.zeros(8), "label": index % 10}


def like_pair(index):
    return Pair(torch.zeros(8), index % 10)


def like_record(index):
    return Record(torch.zeros(8), index % 10)


def like_frozen_record(index):
    return FrozenRecord(torch.zeros(8), index % 10)


def like_text(index):
    return f"sample {index}"


def like_nothing_at_times(index):
    return None if index % 3 == 2 else torch.zeros(8)


def like_sequence(index):
    return torch.zeros(3 + index % 5)


def as_list(samples):
    return list(samples)


def stack_images(records):
    return torch.stack([record.image for record in records])


def without_none(samples):
    return default_collate([sample for sample in samples if sample is not None])

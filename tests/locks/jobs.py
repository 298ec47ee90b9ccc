"""Small jobs in invented time. What runs of them is noted by name; `cost` says what each function takes [s]."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from typing import Any

import torch
from torch.utils.data import Dataset, IterableDataset, default_collate, get_worker_info

from tests.locks.doors import stage
from tests.locks.world import WORLD

LENGTH = 100_000


def work(name: str, seconds: float, index: int | None = None) -> None:
    """Note a function that runs; with an index, a sample's time is uneven by up to a fifth, each time the same."""
    WORLD.noted.append(name)
    WORLD.spend(seconds if index is None else seconds * (0.8 + 0.4 * (index * 0.618 % 1)))


class Step:
    """A train step."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds

    def __call__(self, batch: Any) -> None:
        WORLD.begin_step()
        WORLD.spend(self.seconds)


def broken(batch: Any) -> None:
    """A train step that fails."""
    raise ValueError("no such kernel")


class Collate:
    def __init__(self, seconds: float = 0.0005) -> None:
        self.seconds = seconds

    def __call__(self, samples: Any) -> Any:
        work("collate", self.seconds)
        return default_collate(samples)


def collate_one(sample: Any) -> Any:
    """Collate a single sample, of a loader without batches."""
    work("collate", 0.0005)
    return sample


class MarkedCollate(Collate):
    def __call__(self, samples: Any) -> Any:
        work("collate", self.seconds)
        return self.pad(default_collate(samples))

    @stage("pad")
    def pad(self, batch: Any) -> Any:
        work("pad", self.seconds)
        return batch


class Photos(Dataset[Any]):
    """Methods that load and augment."""

    def __init__(self, load_s: float = 0.001, augment_s: float = 0.001) -> None:
        self.load_s, self.augment_s = load_s, augment_s

    def __len__(self) -> int:
        return LENGTH

    def __getitem__(self, index: int) -> Any:
        return self.augment(self.load_image(index)), index

    def load_image(self, index: int) -> torch.Tensor:
        work("load", self.load_s, index)
        return torch.full((4,), float(index))

    def augment(self, image: torch.Tensor) -> torch.Tensor:
        work("augment", self.augment_s)
        return image + random.random()


class Few(Photos):
    def __len__(self) -> int:
        return 200


class Uneven(Photos):
    """Batches of uneven times, the same ones in every run: a factor for all samples of one."""

    def __init__(self, load_s: float, augment_s: float, cv: float, batch_size: int, seed: int) -> None:
        super().__init__(load_s, augment_s)
        self.cv, self.batch_size, self.seed = cv, batch_size, seed

    def factor(self, index: int) -> float:
        spread = math.sqrt(math.log1p(self.cv**2))
        drawn = random.Random(1_000_003 * self.seed + index // self.batch_size)
        return drawn.lognormvariate(-spread * spread / 2, spread)

    def __getitem__(self, index: int) -> Any:
        factor = self.factor(index)
        return self.augment(self.load_image(index, factor), factor), index

    def load_image(self, index: int, factor: float = 1.0) -> torch.Tensor:
        WORLD.spend(self.load_s * factor)
        return torch.full((4,), float(index))

    def augment(self, image: torch.Tensor, factor: float = 1.0) -> torch.Tensor:
        WORLD.spend(self.augment_s * factor)
        return image + random.random()


class Finished(Photos):
    """Code follows the augmentation."""

    def __getitem__(self, index: int) -> Any:
        image = self.augment(self.load_image(index))
        work("finish", 0.0005)
        return image * 2, index


class Inline(Photos):
    """Loads in inline code."""

    def __getitem__(self, index: int) -> Any:
        work("load", self.load_s, index)
        return self.augment(torch.full((4,), float(index))), index


class Tail(Photos):
    """The same, and code follows the augmentation."""

    def __getitem__(self, index: int) -> Any:
        work("load", self.load_s, index)
        image = self.augment(torch.full((4,), float(index)))
        work("finish", 0.0005)
        return image * 2, index


class Opaque(Photos):
    """Nothing can be cut."""

    def __getitem__(self, index: int) -> Any:
        work("load", self.load_s, index)
        work("augment", self.augment_s)
        return torch.full((4,), float(index)), index


class Batched(Photos):
    def __getitems__(self, indices: list[int]) -> list[Any]:
        WORLD.noted.append("items")
        return [self[index] for index in indices]


class Transform:
    """One of several in a list."""

    def __init__(self, name: str, seconds: float = 0.0005) -> None:
        self.name, self.seconds = name, seconds

    def __call__(self, image: Any) -> Any:
        work(self.name, self.seconds)
        return image + 1 if isinstance(image, torch.Tensor) else torch.full((4,), float(image))


class Compose:
    def __init__(self, transforms: list[Transform]) -> None:
        self.transforms = transforms

    def __call__(self, image: Any) -> Any:
        for transform in self.transforms:
            image = transform(image)
        return image


class Folder(Photos):
    """As torchvision's folders: attributes that load and transform; the target has a transform, too."""

    def __init__(self) -> None:
        super().__init__()
        self.loader = Transform("load", 0.001)
        self.transform = Compose([Transform("crop"), Transform("flip")])
        self.target_transform = Transform("target")

    def __getitem__(self, index: int) -> Any:
        return {"image": self.transform(self.loader(index)), "label": self.target_transform(index)}


class Marked(Photos):
    """Marked functions, one of them called twice, and code around them."""

    def __getitem__(self, index: int) -> Any:
        image = self.decode(index)
        work("other", 0.0005)
        return self.crop(self.crop(image)), index

    @stage("decode")
    def decode(self, index: int) -> torch.Tensor:
        work("decode", self.load_s, index)
        return torch.full((4,), float(index))

    @stage("crop")
    def crop(self, image: torch.Tensor) -> torch.Tensor:
        work("crop", self.augment_s)
        return image + random.random()


class Nested(Marked):
    """One marked function calls the others."""

    @stage("around")
    def around(self, index: int) -> torch.Tensor:
        work("around", 0.0005)
        return self.crop(self.decode(index))

    def __getitem__(self, index: int) -> Any:
        return self.around(index), index


class Lengths(Photos):
    """Sequences as long as the others of their batch of four."""

    def load_image(self, index: int) -> torch.Tensor:
        work("load", self.load_s)
        return torch.full((4 + index // 4 % 5,), float(index))


class Stream(IterableDataset[Any]):
    """Each worker has its share."""

    def __init__(self, length: int = LENGTH) -> None:
        self.length = length

    def __iter__(self) -> Iterator[Any]:
        info = get_worker_info()
        for number in range(0 if info is None else info.id, self.length, 1 if info is None else info.num_workers):
            yield self.augment(self.load_image(number))

    def load_image(self, number: int) -> torch.Tensor:
        work("load", 0.001, number)
        return torch.full((4,), float(number))

    def augment(self, image: torch.Tensor) -> torch.Tensor:
        work("augment", 0.001)
        return image + random.random()


class MarkedStream(Stream):
    @stage("decode")
    def load_image(self, number: int) -> torch.Tensor:
        return super().load_image(number)

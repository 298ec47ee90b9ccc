"""A job as users have it: photographs that are decoded and augmented by workers, a ResNet on the device."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torchvision
from PIL import Image
from torch.utils.data import DataLoader, Dataset
from torchvision.transforms import v2

PHOTOGRAPHS = 256
"""Different ones, in memory: reading is not what is looked at here."""
MEAN, DEVIATION = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
CLASSES = 1000


@dataclass(frozen=True)
class Settings:
    """What a person changes about a training job, one thing after the other.

    Attributes:
        workers: Of the loader.
        batch_size: Samples in a batch.
        pinned: Batches in pinned memory, and copies that are not waited for.
        uint8: Pixels stay bytes until they are on the device.
        set_to_none: How gradients are cleared.
        autocast: Computes in bfloat16.
        compiled: By `torch.compile`.
        side: Of an image, in pixels.
    """

    workers: int = 8
    batch_size: int = 256
    pinned: bool = True
    uint8: bool = False
    set_to_none: bool = True
    autocast: bool = False
    compiled: bool = False
    side: int = 224

    @property
    def batch_bytes(self) -> int:
        """Bytes of the images of a batch as a worker hands it over."""
        return self.batch_size * 3 * self.side**2 * (1 if self.uint8 else 4)

    def __str__(self) -> str:
        words = [f"{self.workers} workers", f"{self.batch_size} images ({self.batch_bytes / 1e6:.0f} MB)"]
        words += ["pinned" if self.pinned else "pageable", "compiled" if self.compiled else "eager"]
        return ", ".join(words)


class Photographs(Dataset[tuple[torch.Tensor, int]]):
    """JPEG files in memory, decoded and augmented as for ImageNet.

    Args:
        settings: Says in which form images are returned.
        length: Samples.
    """

    def __init__(self, settings: Settings, length: int = 1_000_000) -> None:
        self._length = length
        self._files = _make_photographs(PHOTOGRAPHS, int(settings.side * 1.8))
        steps: list[Callable[[Any], Any]] = [
            v2.RandomResizedCrop(settings.side, antialias=True),
            v2.RandomHorizontalFlip(),
            v2.PILToTensor(),
        ]
        if not settings.uint8:
            steps += [v2.ToDtype(torch.float32, scale=True), v2.Normalize(MEAN, DEVIATION)]
        self.transform = v2.Compose(steps)

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        return self.transform(self.load(index)), index % CLASSES

    def load(self, index: int) -> Image.Image:
        return Image.open(io.BytesIO(self._files[index % len(self._files)])).convert("RGB")


def _make_photographs(number: int, side: int) -> list[bytes]:
    """Smooth noise, which is compressed about as far as photographs are."""
    random = np.random.default_rng(0)
    found = []
    for _ in range(number):
        coarse = Image.fromarray(random.integers(0, 256, (side // 8, side // 8, 3), dtype=np.uint8))
        file = io.BytesIO()
        coarse.resize((side, side), Image.Resampling.BICUBIC).save(file, "JPEG", quality=90)
        found.append(file.getvalue())
    return found


def resnet() -> torch.nn.Module:
    """ResNet-50 with random weights: speed does not ask for others."""
    model: torch.nn.Module = torchvision.models.resnet50(weights=None)
    return model


class Job:
    """A job with some settings, ready to run by itself or to be diagnosed.

    Args:
        settings: Of the job.
        device: Where it computes.
        make_model: Makes the model.
    """

    def __init__(
        self, settings: Settings, device: torch.device, make_model: Callable[[], torch.nn.Module] = resnet
    ) -> None:
        self.settings, self.device = settings, device
        torch.manual_seed(0)
        self.model = make_model().to(device)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=1e-3, momentum=0.9)
        self._forward: Any = torch.compile(self.model) if settings.compiled else self.model
        shape = (1, 3, 1, 1)
        self._mean, self._deviation = (torch.tensor(v, device=device).view(shape) for v in (MEAN, DEVIATION))

    def to_device(self, batch: Any, device: torch.device) -> Any:
        """Copy a batch as the settings say."""
        return [part.to(device, non_blocking=self.settings.pinned) for part in batch]

    def train_step(self, batch: Any) -> torch.Tensor:
        images, labels = batch
        if self.settings.uint8:
            images = (images.float().div_(255) - self._mean) / self._deviation
        self.optimizer.zero_grad(set_to_none=self.settings.set_to_none)
        with torch.autocast(self.device.type, torch.bfloat16, enabled=self.settings.autocast):
            loss = torch.nn.functional.cross_entropy(self._forward(images), labels)
        loss.backward()  # type: ignore[no-untyped-call]  # torch's own
        self.optimizer.step()
        return loss

    def fields(self) -> dict[str, Any]:
        """The job as `diagnose` takes it."""
        settings = self.settings
        return {
            "dataset": Photographs(settings),
            "model": self.model,
            "optimizer": self.optimizer,
            "train_step": self.train_step,
            "to_device": self.to_device,
            "device": self.device,
            "batch_size": settings.batch_size,
            "num_workers": settings.workers,
            "pin_memory": settings.pinned and self.device.type != "cpu",
            "shuffle": True,
            "drop_last": True,
        }

    def loader(self) -> DataLoader[Any]:
        """The loader of a plain loop."""
        settings = self.settings
        return DataLoader(
            Photographs(settings), settings.batch_size, shuffle=True, num_workers=settings.workers, drop_last=True,
            pin_memory=settings.pinned and self.device.type != "cpu",
        )  # fmt: skip

    def steps(self) -> Iterator[int]:
        """Train in a plain loop, as the user would; yields the samples of each step."""
        for batch in self.loader():
            self.train_step(self.to_device(batch, self.device))
            yield len(batch[0])

    def steps_on_device(self, batches: int = 4) -> Iterator[int]:
        """Train on batches that are on the device already: the upper bound, without any of our code."""
        loader = iter(self.loader())
        kept = [self.to_device(next(loader), self.device) for _ in range(batches)]
        del loader
        while True:
            for batch in kept:
                self.train_step(batch)
                yield len(batch[0])


def make_job(settings: Settings) -> Job:
    """The job on the first CUDA device."""
    return Job(settings, torch.device("cuda", 0))

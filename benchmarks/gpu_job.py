"""Jobs as users have them: photographs that workers decode and augment for a ResNet, and big batches to be copied."""

from __future__ import annotations

import functools
import io
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
import torchvision
from PIL import Image
from torch.utils.data import DataLoader, Dataset
from torchvision.transforms import v2

from benchmarks.gpu_host import make_photographs

PHOTOGRAPHS = 256
"""Different images, in memory: reading is not tested here."""
MEAN, DEVIATION = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
CLASSES = 1000
BLOCKS_STEP_S = 0.010
_REHEARSED_BATCH, _REHEARSED_SHARE = 8, 1 / 8
_FASTER = 0.5
"""Time of a step that sleeps in 16 bits, as a part of that in float32."""


@dataclass(frozen=True)
class Settings:
    """Settings of a training job, as a person changes them one after the other.

    Attributes:
        workers: Workers of the loader.
        batch_size: Samples in a batch.
        pinned: Batches in pinned memory, and copies that are not waited for.
        uint8: Pixels stay bytes until they are on the device.
        set_to_none: Gradients are set to None when they are cleared.
        autocast: Computes in bfloat16.
        channels_last: Model and images have this layout.
        compiled: By `torch.compile`.
        side: Side of an image, in pixels.
        sleeps_s: A step sleeps for so long instead of computing; None: it computes.
    """

    workers: int = 8
    batch_size: int = 256
    pinned: bool = True
    uint8: bool = False
    set_to_none: bool = True
    autocast: bool = False
    channels_last: bool = False
    compiled: bool = False
    side: int = 224
    sleeps_s: float | None = None

    @property
    def batch_bytes(self) -> int:
        """Bytes of the images of a batch as a worker hands it over."""
        return self.batch_size * 3 * self.side**2 * (1 if self.uint8 else 4)

    def rehearsed(self, sleeps_s: float) -> Settings:
        """The settings as two cores can take them, with a step that sleeps."""
        workers = max(1, round(self.workers * _REHEARSED_SHARE))
        return replace(self, workers=workers, batch_size=_REHEARSED_BATCH, sleeps_s=sleeps_s)

    def __str__(self) -> str:
        words = [f"{self.workers} workers", f"{self.batch_size} images ({self.batch_bytes / 1e6:.0f} MB)"]
        words += ["pinned" if self.pinned else "pageable", "compiled" if self.compiled else "eager"]
        words += [name for name in ("uint8", "autocast", "channels_last") if getattr(self, name)]
        return ", ".join(words)


# --- photographs ------------------------------------------------------------------------------------------


class Photographs(Dataset[tuple[torch.Tensor, int]]):
    """JPEG files in memory, decoded and augmented as for ImageNet.

    Args:
        settings: Says in which form images are returned.
        length: Samples.
    """

    def __init__(self, settings: Settings, length: int = 1_000_000) -> None:
        self._length = length
        self._files = make_photographs(PHOTOGRAPHS, int(settings.side * 1.8))
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


def resnet() -> torch.nn.Module:
    """ResNet-50 with random weights: speed does not ask for others."""
    model: torch.nn.Module = torchvision.models.resnet50(weights=None)
    return model


def tiny() -> torch.nn.Module:
    """A model that costs nothing, for a step that sleeps."""
    few_pixels = (torch.nn.AvgPool2d(1, stride=32), torch.nn.AdaptiveAvgPool2d(1))
    return torch.nn.Sequential(*few_pixels, torch.nn.Flatten(), torch.nn.Linear(3, CLASSES))


class LoadedJob(ABC):
    """A job with some settings, ready to run in a plain loop or to be diagnosed.

    Args:
        settings: Settings of the job.
        device: Device that it computes on.
    """

    def __init__(self, settings: Settings, device: torch.device) -> None:
        self.settings, self.device = settings, device

    @abstractmethod
    def dataset(self) -> Any:
        """The samples."""

    @abstractmethod
    def to_device(self, batch: Any, device: torch.device) -> Any:
        """Copy a batch as the settings say."""

    @abstractmethod
    def train_step(self, batch: Any) -> object:
        """Train on a batch."""

    def warm_up(self) -> None:
        """Load what the device needs for a step, with a batch that takes little of it."""
        dataset = self.dataset()
        batch = torch.utils.data.default_collate([dataset[number] for number in range(2)])
        self.train_step(self.to_device(batch, self.device))
        if self.device.type == "cuda":
            torch.cuda.synchronize()
            torch.cuda.empty_cache()

    @abstractmethod
    def samples(self, batch: Any) -> int:
        """Count the samples of a batch."""

    def _loader_fields(self, dataset: Any) -> dict[str, Any]:
        settings, pinned = self.settings, self.settings.pinned and self.device.type != "cpu"
        return {
            "dataset": dataset,
            "batch_size": settings.batch_size,
            "num_workers": settings.workers,
            "pin_memory": pinned,
            "shuffle": True,
            "drop_last": True,
        }

    def loader(self, dataset: Any) -> DataLoader[Any]:
        """The loader of a plain loop."""
        return DataLoader(**self._loader_fields(dataset))

    def fields(self) -> dict[str, Any]:
        """The job as `diagnose` takes it."""
        own = {"train_step": self.train_step, "to_device": self.to_device, "device": self.device}
        return {**self._loader_fields(self.dataset()), **own}


class Job(LoadedJob):
    """A model that is trained on photographs.

    Args:
        settings: Settings of the job.
        device: Device that it computes on.
        make_model: Makes the model.
    """

    def __init__(
        self, settings: Settings, device: torch.device, make_model: Callable[[], torch.nn.Module] = resnet
    ) -> None:
        super().__init__(settings, device)
        self._layout = torch.channels_last if settings.channels_last else torch.contiguous_format
        torch.manual_seed(0)
        model = make_model() if settings.sleeps_s is None else tiny()
        self.model = model.to(device, memory_format=self._layout)  # type: ignore[call-overload]  # torch has one for it
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=1e-3, momentum=0.9)
        self._forward: Any = torch.compile(self.model) if settings.compiled else self.model
        shape = (1, 3, 1, 1)
        self._mean, self._deviation = (torch.tensor(v, device=device).view(shape) for v in (MEAN, DEVIATION))

    def dataset(self) -> Photographs:
        return Photographs(self.settings)

    def to_device(self, batch: Any, device: torch.device) -> Any:
        return [part.to(device, non_blocking=self.settings.pinned) for part in batch]

    def train_step(self, batch: Any) -> torch.Tensor:
        images, labels = batch
        if self.settings.uint8:
            images = (images.float().div_(255) - self._mean) / self._deviation
        images = images.contiguous(memory_format=self._layout)
        self.optimizer.zero_grad(set_to_none=self.settings.set_to_none)
        with torch.autocast(self.device.type, torch.bfloat16, enabled=self.settings.autocast):
            loss = torch.nn.functional.cross_entropy(self._forward(images), labels)
        loss.backward()  # type: ignore[no-untyped-call]  # torch's own
        self.optimizer.step()
        if self.settings.sleeps_s is not None:
            time.sleep(self.settings.sleeps_s * (_FASTER if self.settings.autocast else 1))
        return loss

    def samples(self, batch: Any) -> int:
        return len(batch[0])

    def fields(self) -> dict[str, Any]:
        return {**super().fields(), "model": self.model, "optimizer": self.optimizer}


def make_job(settings: Settings) -> Job:
    """The job on the first CUDA device."""
    return Job(settings, torch.device("cuda", 0))


# --- copies -----------------------------------------------------------------------------------------------


class Blocks(Dataset[dict[str, Any]]):
    """Big samples that cost nothing to make: what remains is moving them."""

    def __init__(self, side: int) -> None:
        self.pool = torch.rand(8, 3, side, side)

    def __len__(self) -> int:
        return 1_000_000

    def __getitem__(self, index: int) -> dict[str, Any]:
        return {"images": self.pool[index % 8], "labels": index % 10}


class CopyJob(LoadedJob):
    """A job whose loop moves each batch within its own dict; its step keeps the device busy, and the host free."""

    def dataset(self) -> Blocks:
        return Blocks(self.settings.side)

    def to_device(self, batch: Any, device: torch.device) -> Any:
        for key, value in batch.items():  # as many loops do: what came from the loader is another batch afterwards
            # On the CPU a rehearsal has to copy on purpose.
            batch[key] = value.to(device, non_blocking=self.settings.pinned, copy=device.type == "cpu")
        return batch

    def train_step(self, batch: Any) -> None:
        if self.settings.sleeps_s is None:
            keep_busy(BLOCKS_STEP_S)
        else:
            time.sleep(self.settings.sleeps_s)

    def warm_up(self) -> None:
        """Load nothing: how long to keep the device busy is found out when nothing else uses it."""

    def samples(self, batch: Any) -> int:
        return len(batch["images"])


@functools.cache
def cycles_per_second() -> float:
    """Cycles of `torch.cuda._sleep` in a second, on a device that has left its idle clocks."""
    _spin(1_000_000_000)
    torch.cuda.synchronize()
    cycles = 200_000_000
    return cycles / device_seconds(lambda: _spin(cycles))


def _spin(cycles: int) -> None:
    torch.cuda._sleep(cycles)  # type: ignore[no-untyped-call]  # torch's own


def keep_busy(seconds: float) -> None:
    """Keep the current stream busy, and the host not at all."""
    _spin(int(seconds * cycles_per_second()))


def device_seconds(work: Callable[[], object]) -> float:
    """Seconds that the device takes for work, by CUDA's own events."""
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]  # torch's
    start.record()
    work()
    end.record()
    torch.cuda.synchronize()
    return float(start.elapsed_time(end)) / 1000

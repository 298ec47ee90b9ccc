"""Samples streamed from tar shards, as large data sets are kept: an IterableDataset, sharded over its workers.

    bottleneck diagnose examples/iterable_shards.py:build

The shards are made once, from the photographs of `bottleneck demo`, and lie beside them. Decoding is marked as a
stage; what else the stream does, reading the archive among it, is `other`.
"""

import io
import os
import tarfile
from pathlib import Path

import torch
from PIL import Image
from torch import nn
from torch.utils.data import IterableDataset, get_worker_info
from torchvision.transforms.functional import to_tensor

import bottleneck
from bottleneck.demo import CLASSES, ensure_photographs


def ensure_shards(images: int, shards: int) -> list[Path]:
    """The shards, made now if they are not there yet; the photographs are spread over them in turn."""
    photographs = ensure_photographs(images)
    folder = photographs.parent / f"{photographs.name}-in-{shards}-shards"
    folder.mkdir(exist_ok=True)
    paths = [folder / f"{number:04}.tar" for number in range(shards)]
    files = sorted(photographs.glob("*/*.jpg"), key=lambda path: path.name)
    for number, path in enumerate(paths):
        if path.exists():
            continue
        unfinished = path.with_suffix(f".{os.getpid()}")
        with tarfile.open(unfinished, "w") as archive:
            for file in files[number::shards]:
                archive.add(file, arcname=f"{file.parent.name}/{file.name}")
        unfinished.replace(path)
    return paths


class Shards(IterableDataset):
    """The samples of some shards, one after another; each worker has its own shards."""

    def __init__(self, paths: list[Path], size: int) -> None:
        self.paths, self.size = paths, size

    def __iter__(self):
        worker = get_worker_info()
        mine = self.paths if worker is None else self.paths[worker.id :: worker.num_workers]
        for path in mine:
            with tarfile.open(path) as archive:
                for member in archive:
                    data = archive.extractfile(member).read()
                    yield decode(data, self.size), CLASSES.index(member.name.partition("/")[0])


@bottleneck.stage("decode")
def decode(data: bytes, size: int) -> torch.Tensor:
    """An image of shape (3, size, size)."""
    return to_tensor(Image.open(io.BytesIO(data)).convert("RGB").resize((size, size)))


def build(
    images: int = 300, shards: int = 8, size: int = 224, batch_size: int = 8, num_workers: int = 2
) -> bottleneck.Pipeline:
    """The job: photographs from shards, in the order in which they lie there, and a small CNN."""
    model = nn.Sequential(
        nn.Conv2d(3, 16, kernel_size=7, stride=4, padding=3),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(16, len(CLASSES)),
    ).to("cuda" if torch.cuda.is_available() else "cpu")
    return bottleneck.Pipeline(
        dataset=Shards(ensure_shards(images, shards), size),
        model=model,
        loss_fn=nn.CrossEntropyLoss(),
        optimizer=torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9),
        batch_size=batch_size,
        num_workers=num_workers,
        pin_memory=torch.cuda.is_available(),
        drop_last=True,
    )

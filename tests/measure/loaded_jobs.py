"""Datasets with something to tell of themselves; a module of its own, so that spawned workers can import it."""

import io
import sys
import zipfile
from types import SimpleNamespace

import torch
from PIL import Image
from torch.utils.data import Dataset, get_worker_info
from torchvision import transforms

OBJECTS = 100_000


class Photos(Dataset):
    """Decodes images of 80x60, and keeps 32x32 of each."""

    def __init__(self):
        self.transform = transforms.Compose([transforms.RandomCrop(32), transforms.ToTensor()])
        file = io.BytesIO()
        Image.new("RGB", (80, 60), (200, 10, 10)).save(file, "JPEG")
        self.encoded = file.getvalue()

    def __len__(self):
        return 10_000

    def __getitem__(self, index):
        return self.transform(self.load(index)), index

    def load(self, index):
        return Image.open(io.BytesIO(self.encoded)).convert("RGB")


class Keeping(Photos):
    """Keeps what it has decoded."""

    def __init__(self):
        super().__init__()
        self.kept = {}

    def load(self, index):
        if index not in self.kept:
            self.kept[index] = super().load(index)
        return self.kept[index]


class Archive(Dataset):
    """Reads from a file that is open before the workers are started."""

    def __init__(self, path):
        self.path = path
        self.archive = zipfile.ZipFile(path)

    def __len__(self):
        return 10_000

    def __getitem__(self, index):
        return torch.tensor(list(self.load(index)))

    def load(self, index):
        return self.archive.read("a")


class OpenedLate(Archive):
    """Opens the file again in each worker, at its first sample."""

    opened = False

    def load(self, index):
        if not self.opened:
            self.archive, self.opened = zipfile.ZipFile(self.path), True
        return super().load(index)


class Listed(Dataset):
    """Holds a long list of names."""

    def __init__(self):
        self.samples = [f"folder/image-{number:07}.jpg" for number in range(OBJECTS)]

    def __len__(self):
        return len(self.samples)

    def __getitem__(self, index):
        if get_worker_info() is not None:
            sys.modules["cv2"] = SimpleNamespace(getNumThreads=lambda: 3)  # as a library that is imported late
        return torch.tensor(len(self.samples[index]))


class Batched(Listed):
    """Fetches whole batches."""

    def __getitems__(self, indices):
        return [self[index] for index in indices]

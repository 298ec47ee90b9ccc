"""Photographs of 1600 x 1200 pixels for samples of 16 x 16: `photographs.py [small]`, where small is by hand."""

import io
import sys

import torch
from job import BATCH_SIZE, compute, inputs, make_model
from PIL import Image
from torch import nn
from torch.utils.data import DataLoader, Dataset
from torchvision import transforms

SMALL = "small" in sys.argv[1:]


def photograph():
    """A JPEG file, in memory."""
    across, down = torch.meshgrid(torch.arange(1600), torch.arange(1200), indexing="xy")
    pixels = torch.stack([across % 256, down % 256, (across + down) % 256], -1).byte()
    file = io.BytesIO()
    Image.fromarray(pixels.numpy()).save(file, "JPEG")
    return file.getvalue()


class Photographs(Dataset):
    """One photograph, again and again."""

    def __init__(self):
        self.file = photograph()
        self.transform = transforms.Compose([transforms.Resize((16, 16)), transforms.ToTensor()])

    def __len__(self):
        return 100_000

    def __getitem__(self, index):
        image = Image.open(io.BytesIO(self.file))
        if SMALL:
            image.draft(None, (18, 18))
        return self.transform(image.convert("RGB")), index % 10


dataset, num_workers, collate = inputs(Photographs(), 1)
model = make_model()
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
for _ in range(100):
    for images, labels in DataLoader(dataset, BATCH_SIZE, shuffle=True, num_workers=num_workers, collate_fn=collate):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(images), labels).backward()
        compute()
        optimizer.step()

"""CIFAR-sized images, resized to 224 on the fly, into a ResNet-18: the job of PyTorch's profiler tutorial.

    bottleneck diagnose examples/cifar_resnet.py:build

The images are random, so nothing has to be downloaded; what they cost to resize is the same. As in the
tutorial, the loader has no workers. Try `--set num_workers=4`.
"""

import numpy as np
import torch
from PIL import Image
from torch import nn
from torch.utils.data import Dataset
from torchvision import models, transforms

from bottleneck import Pipeline


class RandomImages(Dataset):
    """As torchvision's CIFAR10: all images in one uint8 array in memory."""

    def __init__(self, images: int, transform) -> None:
        rng = np.random.default_rng(0)
        self.data = rng.integers(0, 256, (images, 32, 32, 3), dtype=np.uint8)
        self.targets = rng.integers(0, 10, images)
        self.transform = transform

    def __len__(self) -> int:
        return len(self.data)

    def __getitem__(self, index):
        image = Image.fromarray(self.data[index])
        return self.transform(image), int(self.targets[index])


def build(images: int = 10_000, size: int = 224, batch_size: int = 32) -> Pipeline:
    """The job: ResNet-18 on 224x224 images, SGD, batches of 32."""
    preparation = transforms.Compose(
        [
            transforms.Resize(size),
            transforms.ToTensor(),
            transforms.Normalize((0.5, 0.5, 0.5), (0.5, 0.5, 0.5)),
        ]
    )
    device = "cuda" if torch.cuda.is_available() else "cpu"
    model = models.resnet18(weights=None, num_classes=10).to(device)
    return Pipeline(
        dataset=RandomImages(images, preparation),
        model=model,
        loss_fn=nn.CrossEntropyLoss(),
        optimizer=torch.optim.SGD(model.parameters(), lr=0.001, momentum=0.9),
        batch_size=batch_size,
        shuffle=True,
    )

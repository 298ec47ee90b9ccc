"""Photographs from a folder of JPEG files, with the usual augmentation: what a first classifier looks like.

    bottleneck diagnose examples/image_folder.py:build

reads the folder that IMAGE_FOLDER names (one folder of images per class); without it, the photographs that
`bottleneck demo` makes.
"""

import os

import torch
from torch import nn
from torchvision import datasets, transforms

from bottleneck import Pipeline
from bottleneck.demo import ensure_photographs


def build(images: int = 300, size: int = 224, batch_size: int = 32, num_workers: int = 2) -> Pipeline:
    """The job: 500x375 photographs, random crops, a small CNN."""
    folder = os.environ.get("IMAGE_FOLDER") or ensure_photographs(images)
    augmentation = transforms.Compose(
        [
            transforms.RandomResizedCrop(size),
            transforms.RandomHorizontalFlip(),
            transforms.ColorJitter(brightness=0.2, contrast=0.2, saturation=0.2),
            transforms.ToTensor(),
            transforms.Normalize(mean=(0.485, 0.456, 0.406), std=(0.229, 0.224, 0.225)),
        ]
    )
    train_set = datasets.ImageFolder(folder, transform=augmentation)
    model = small_cnn(len(train_set.classes))
    if torch.cuda.is_available():
        model = model.cuda()
    return Pipeline(
        dataset=train_set,
        model=model,
        loss_fn=nn.CrossEntropyLoss(),
        optimizer=torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9),
        batch_size=batch_size,
        shuffle=True,
        num_workers=num_workers,
        pin_memory=torch.cuda.is_available(),
        drop_last=True,
    )


def small_cnn(classes: int) -> nn.Module:
    """A network that costs little, so that the loader is what one looks at."""
    return nn.Sequential(
        nn.Conv2d(3, 16, kernel_size=7, stride=4, padding=3),
        nn.BatchNorm2d(16),
        nn.ReLU(),
        nn.Conv2d(16, 32, kernel_size=3, stride=2, padding=1),
        nn.BatchNorm2d(32),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(32, classes),
    )

"""Classifies photographs: the training script of the tutorial.

python train.py          trains, and says how fast
"""

import time

import torch
from torch import nn
from torch.utils.data import DataLoader
from torchvision import datasets, transforms

from bottleneck.demo import ensure_photographs

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def make_loader(images: int = 400, batch_size: int = 32, num_workers: int = 2) -> DataLoader:
    """Batches of augmented photographs."""
    augmentation = transforms.Compose(
        [
            transforms.ColorJitter(brightness=0.4, contrast=0.4, saturation=0.4),
            transforms.RandomHorizontalFlip(),
            transforms.RandomResizedCrop(160),
            transforms.ToTensor(),
            transforms.Normalize(mean=(0.485, 0.456, 0.406), std=(0.229, 0.224, 0.225)),
        ]
    )
    # In a job of your own this is the path of your data; here photographs that are drawn once.
    train_set = datasets.ImageFolder(ensure_photographs(images), transform=augmentation)
    return DataLoader(
        train_set,
        batch_size=batch_size,
        shuffle=True,
        num_workers=num_workers,
        pin_memory=DEVICE == "cuda",
        persistent_workers=num_workers > 0,
        drop_last=True,
    )


def make_model() -> nn.Module:
    """A small convolutional network."""
    return nn.Sequential(
        nn.Conv2d(3, 16, kernel_size=7, stride=4, padding=3),
        nn.BatchNorm2d(16),
        nn.ReLU(),
        nn.Conv2d(16, 32, kernel_size=3, stride=2, padding=1),
        nn.BatchNorm2d(32),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(32, 4),
    ).to(DEVICE)


def main(epochs: int = 3) -> None:
    """Trains, and says how fast."""
    loader, model, loss_fn = make_loader(), make_model(), nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    for epoch in range(1, epochs + 1):
        began, samples = time.perf_counter(), 0
        for images, labels in loader:
            loss = loss_fn(model(images.to(DEVICE)), labels.to(DEVICE))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            samples += len(labels)
        print(f"epoch {epoch}: loss {loss.item():.2f}, {samples / (time.perf_counter() - began):.0f} samples/s")


if __name__ == "__main__":
    torch.set_num_threads(1)  # without a GPU: leave the cores to the workers
    main()

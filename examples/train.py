"""A plain training script that can diagnose itself.

    python examples/train.py                 trains
    python examples/train.py --diagnose      says where the time goes, and does not train

The diagnosis gets the loader, the model and the optimizer of the script and leaves them as they were.
`bottleneck diagnose examples/train.py:build` does the same from outside.
"""

import argparse

import torch
from torch import nn
from torch.utils.data import DataLoader
from torchvision import datasets, transforms

import bottleneck


def make_job(images: int = 10_000, batch_size: int = 64, num_workers: int = 2):
    """Loader, model, loss function and optimizer of the job."""
    augmentation = transforms.Compose(
        [
            transforms.RandomCrop(64, padding=4),
            transforms.RandomHorizontalFlip(),
            transforms.ToTensor(),
        ]
    )
    train_set = datasets.FakeData(images, image_size=(3, 64, 64), num_classes=10, transform=augmentation)
    loader = DataLoader(train_set, batch_size=batch_size, shuffle=True, num_workers=num_workers, drop_last=True)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    model = nn.Sequential(
        nn.Conv2d(3, 32, 3, stride=2),
        nn.ReLU(),
        nn.Conv2d(32, 64, 3, stride=2),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(64, 10),
    ).to(device)
    return loader, model, nn.CrossEntropyLoss(), torch.optim.SGD(model.parameters(), lr=0.01)


def build(**sizes) -> bottleneck.Pipeline:
    """The same job, for `bottleneck diagnose examples/train.py:build`."""
    loader, model, loss_fn, optimizer = make_job(**sizes)
    return bottleneck.Pipeline.from_loader(loader, model=model, loss_fn=loss_fn, optimizer=optimizer)


def train(loader, model, loss_fn, optimizer, epochs: int) -> None:
    """The loop that everybody writes."""
    device = next(model.parameters()).device
    for epoch in range(epochs):
        total = 0.0
        for images, targets in loader:
            loss = loss_fn(model(images.to(device)), targets.to(device))
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
            total += loss.item()
        print(f"epoch {epoch + 1}: mean loss {total / len(loader):.4f}")


def main() -> None:
    """Trains, or diagnoses."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--images", type=int, default=10_000)
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--diagnose", action="store_true", help="say where the time goes instead of training")
    parser.add_argument("--budget", default=None, help="how long the diagnosis may take, such as 2m")
    arguments = parser.parse_args()

    loader, model, loss_fn, optimizer = make_job(images=arguments.images)
    if arguments.diagnose:
        pipeline = bottleneck.Pipeline.from_loader(loader, model=model, loss_fn=loss_fn, optimizer=optimizer)
        print(bottleneck.diagnose(pipeline, budget=arguments.budget))
    else:
        train(loader, model, loss_fn, optimizer, arguments.epochs)


if __name__ == "__main__":
    main()

"""CIFAR-sized images, resized to 224 on the fly, into a ResNet-18: the job of PyTorch's profiler tutorial.

    bottleneck diagnose examples/seed_ladder.py:build
    bottleneck tune examples/seed_ladder.py:build
    python examples/seed_ladder.py --size 224 --budget 40m

The images are random, so nothing has to be downloaded; what they cost to resize is the same. As in the tutorial, the
loader has no workers. On a GPU they are resized to 224x224, as there. Without one, such a step takes seconds, and a
tuning most of an hour: there they are resized to 64x64, which is a twelfth of the work and the same job otherwise.
The last command tunes all of it from Python, and prints the ladder that people have climbed by hand beside its own.
"""

import argparse
import copy
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import nn
from torch.utils.data import Dataset
from torchvision import models, transforms

import bottleneck

BY_HAND = """
What is published for this job on one data-centre GPU, each step on top of those before:

    as it is, batches of 32             400 samples/s   (80 ms a batch)
    num_workers                         865             (37 ms a batch)
    pin_memory, non_blocking          1,200
    batches of 512                    1,584
    bytes until the device            1,670
    zero_grad(set_to_none=True)       no gain
    autocast, batches of 1,024        2,477
    torch.compile                     3,268
"""


class RandomImages(Dataset[tuple[torch.Tensor, int]]):
    """As torchvision's CIFAR10: all images in one uint8 array in memory."""

    def __init__(self, images: int, transform: transforms.Compose) -> None:
        rng = np.random.default_rng(0)
        self.data = rng.integers(0, 256, (images, 32, 32, 3), dtype=np.uint8)
        self.targets = rng.integers(0, 10, images)
        self.transform = transform

    def __len__(self) -> int:
        return len(self.data)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        image = Image.fromarray(self.data[index])
        return self.transform(image), int(self.targets[index])


def build(images: int = 10_000, size: int | None = None, batch_size: int = 32) -> bottleneck.Pipeline:
    """The job: ResNet-18, SGD, batches of 32; images of 224x224 on a GPU, and of 64x64 without one."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    size = size or (224 if device == "cuda" else 64)
    preparation = transforms.Compose(
        [
            transforms.Resize(size),
            transforms.ToTensor(),
            transforms.Normalize((0.5, 0.5, 0.5), (0.5, 0.5, 0.5)),
        ]
    )
    model = models.resnet18(weights=None, num_classes=10).to(device)
    return bottleneck.Pipeline(
        dataset=RandomImages(images, preparation),
        model=model,
        loss_fn=nn.CrossEntropyLoss(),
        optimizer=torch.optim.SGD(model.parameters(), lr=0.001, momentum=0.9),
        batch_size=batch_size,
        shuffle=True,
    )


def main() -> None:
    """Tune the job from Python; the model is as it was afterwards, bit for bit."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--budget", default="5m")
    parser.add_argument("--size", type=int, help="of the images; by default 224 on a GPU, and 64 without one")
    parser.add_argument("--json", help="write the result, for bottleneck report and compare")
    chosen = parser.parse_args()
    job = build(size=chosen.size)
    before = copy.deepcopy(job.model.state_dict())
    tuning = bottleneck.tune(job, budget=chosen.budget)
    print(tuning)
    print(BY_HAND)
    if chosen.json:
        Path(chosen.json).write_text(tuning.to_json(), encoding="utf-8")
    after = job.model.state_dict()
    alike = list(before) == list(after) and all(torch.equal(before[name], after[name]) for name in before)
    print("The weights of the model are as they were." if alike else "The weights of the model have changed.")


if __name__ == "__main__":
    main()

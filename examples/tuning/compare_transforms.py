"""Is version 2 of torchvision's transforms, on tensors of bytes, faster in this job? On top of more workers."""

import copy

import torch
from job import NORMALIZE, build
from torchvision.transforms import v2

import bottleneck


def with_v2(pipeline: bottleneck.Pipeline) -> bottleneck.Pipeline:
    """The same job, whose dataset is a copy with other transforms."""
    dataset = copy.copy(pipeline.dataset)
    dataset.transform = v2.Compose(
        [
            v2.PILToTensor(),
            v2.RandomResizedCrop(64),
            v2.RandomHorizontalFlip(),
            v2.ToDtype(torch.float32, scale=True),
            v2.Normalize(**NORMALIZE),
        ]
    )
    return pipeline.replace(dataset=dataset)


if __name__ == "__main__":
    change = bottleneck.Change("transforms_v2", with_v2, line="from torchvision.transforms import v2")
    print(bottleneck.tune(build(), try_=["num_workers", change], budget="2m"))

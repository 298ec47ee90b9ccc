"""As timm's train.py: its loader keeps its workers over epochs that end by count, normalizes, and is evaluated."""

import torch
from jobs import Photos, Slow, make_model, wait_for_the_device
from timm.data import create_loader
from timm.optim import create_optimizer_v2
from timm.scheduler import create_scheduler_v2
from torch import nn


class Named(Photos):
    """Has its transform set by `create_loader`, as timm's datasets have."""

    def __getitem__(self, index):
        image, label = super().__getitem__(index)
        return image.to(torch.uint8).numpy(), label


if __name__ == "__main__":
    options = {
        "input_size": (3, 16, 16), "batch_size": 16, "device": torch.device("cpu"), "use_multi_epochs_loader": True,
        "num_workers": 1, "persistent_workers": False,
    }  # fmt: skip
    train_set = Named(640)
    train = create_loader(train_set, is_training=True, no_aug=True, **options)
    train_set.transform = Slow()
    validation = create_loader(Named(32), **options)
    model = make_model()[0]
    optimizer = create_optimizer_v2(model, opt="sgd", lr=0.1)
    scheduler, epochs = create_scheduler_v2(optimizer, num_epochs=1000, updates_per_epoch=len(train))
    updates = 0
    for epoch in range(epochs):
        for images, labels in train:
            loss = nn.functional.cross_entropy(model(images), labels)
            loss.backward()
            wait_for_the_device()
            optimizer.step()
            optimizer.zero_grad()
            updates += 1
            scheduler.step_update(num_updates=updates)
        with torch.no_grad():
            for images, _ in validation:
                model(images)
        scheduler.step(epoch + 1)
    print("the end")

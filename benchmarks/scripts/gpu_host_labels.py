"""Train with labels that the loop needs in both places: on the device for the loss, on the host for a histogram."""

import numpy as np
import torch
import torchvision
from torch.utils.data import DataLoader, Dataset

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
SIDE, BATCH, WORKERS = (224, 256, 8) if DEVICE.type == "cuda" else (32, 16, 1)


class Noise(Dataset):
    """Images of noise, which cost little to make."""

    def __init__(self):
        self.pool = torch.rand(16, 3, SIDE, SIDE)

    def __len__(self):
        return 1_000_000

    def __getitem__(self, index):
        return self.pool[index % len(self.pool)].clone(), index % 10


def main():
    """Train until somebody stops it."""
    model = torchvision.models.resnet18(weights=None, num_classes=10).to(DEVICE)
    optimizer = torch.optim.AdamW(model.parameters())
    counts = np.zeros(10, dtype=np.int64)
    for images, labels in DataLoader(Noise(), BATCH, num_workers=WORKERS, pin_memory=True, drop_last=True):
        counts += np.bincount(labels.numpy(), minlength=10)
        loss = torch.nn.functional.cross_entropy(
            model(images.to(DEVICE, non_blocking=True)), labels.to(DEVICE, non_blocking=True)
        )
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


if __name__ == "__main__":
    main()

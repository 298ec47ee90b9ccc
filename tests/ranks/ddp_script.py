"""A training script of several ranks as people write it, every other of which loads slowly; it knows nothing of us."""

import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset, DistributedSampler


class Rows(Dataset):
    def __init__(self, load_s):
        self.load_s, self.transform = load_s, nn.Identity()

    def __len__(self):
        return 400

    def __getitem__(self, index):
        return self.transform(self.load(index)), index % 2

    def load(self, index):
        time.sleep(self.load_s)
        return torch.full((8,), float(index))


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    model = DistributedDataParallel(nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 2)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    rows = Rows(0.034 if rank % 2 else 0.001)
    sampler = DistributedSampler(rows)
    loader = DataLoader(rows, batch_size=4, sampler=sampler, num_workers=1)
    for epoch in range(10_000):
        sampler.set_epoch(epoch)
        for values, labels in loader:
            time.sleep(0.03)
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(values), labels)
            loss.backward()
            optimizer.step()
    print("trained")


if __name__ == "__main__":
    main()

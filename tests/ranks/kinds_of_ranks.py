"""Kinds of jobs of two ranks, diagnosed one after the other in ranks that `torch.multiprocessing.spawn` has started.

Rank 0 writes, by kind, the diagnosis as JSON, or what was raised.
"""

import json
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset, DistributedSampler, IterableDataset

import bottleneck
from bottleneck.measure.ranks import team
from bottleneck.measure.rounds import schedule

BATCH = 4
STEP_S = 0.02
WORKERS = {"uneven_workers": (1, 3), "workers_on_one": (0, 2), "no_workers": (0, 0)}
"""Numbers of workers of the two ranks."""


class Rows(Dataset):
    def __init__(self, count, varies):
        self.count, self.varies = count, varies

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        time.sleep(0.002)
        length = 8 * (1 + index // BATCH % 3) if self.varies else 8
        return torch.full((length,), float(index))


class Stream(IterableDataset):
    def __iter__(self):
        while True:
            time.sleep(0.002)
            yield torch.ones(8)


class Net(nn.Module):
    """Two layers behind a normalisation whose buffers are broadcast; one of them may be left out of a step."""

    def __init__(self, leaves_out):
        super().__init__()
        self.norm, self.one, self.other = nn.BatchNorm1d(8), nn.Linear(8, 2), nn.Linear(8, 2)
        self.leaves_out, self.steps = leaves_out, 0

    def forward(self, rows):
        rows, self.steps = self.norm(rows[:, :8]), self.steps + 1
        if self.leaves_out:
            return (self.one if self.steps % 2 else self.other)(rows)
        return self.one(rows) + self.other(rows)


def wrap(kind):
    net = Net(leaves_out="find_unused_parameters" in kind)
    if "all_reduce_by_hand" in kind:
        return net
    if "fully_shard" in kind:
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import fully_shard

        mesh = init_device_mesh("cpu", (dist.get_world_size(),))
        for module in (net.one, net):
            fully_shard(module, mesh=mesh)
        return net
    return DistributedDataParallel(net, find_unused_parameters=net.leaves_out, static_graph="static_graph" in kind)


class Step:
    """A train step that may share gradients only every fourth time, or by hand."""

    def __init__(self, kind, model, optimizer):
        self.model, self.optimizer, self.steps = model, optimizer, 0
        self.every, self.by_hand = 4 if "accumulation" in kind else 1, "all_reduce_by_hand" in kind

    def __call__(self, batch):
        self.steps += 1
        time.sleep(STEP_S)
        if self.steps % self.every:
            with self.model.no_sync():
                self.model(batch).sum().backward()
            return
        self.model(batch).sum().backward()
        if self.by_hand:
            for parameter in self.model.parameters():
                dist.all_reduce(parameter.grad)
        self.optimizer.step()
        self.optimizer.zero_grad()


def build(kind, rank):
    model = wrap(kind)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    count = 300 if "uneven_lengths" in kind and rank else 400
    rows = Stream() if "stream" in kind else Rows(count, varies="varying_shapes" in kind)
    workers = next((numbers[rank] for name, numbers in WORKERS.items() if name in kind), 1)
    sampler = DistributedSampler(rows) if "distributed_sampler" in kind else None
    # A rank that was spawned would spawn its workers, too, and take seconds for that.
    context = "fork" if workers else None
    loader = DataLoader(rows, BATCH, num_workers=workers, sampler=sampler, multiprocessing_context=context)
    step = Step(kind, model, optimizer)
    return bottleneck.Pipeline.from_loader(loader, model=model, train_step=step, optimizer=optimizer, device="cpu")


def measure_briefly():
    """Options of a short diagnosis, whose precision does not matter."""
    schedule.MIN_BLOCK_S, schedule.MIN_ROUNDS = 0.03, 2
    team._MIN_BLOCK_S, team._MAX_BLOCK_S, team._MIN_ROUNDS = 0.05, 0.1, 2


def run(rank, kinds, folder, budget_s):
    torch.set_num_threads(1)
    measure_briefly()
    dist.init_process_group("gloo", init_method=f"file://{folder}/group", rank=rank, world_size=2)
    found = {}
    for kind in kinds:
        try:
            found[kind] = json.loads(bottleneck.diagnose(build(kind, rank), budget=budget_s).to_json())
        except bottleneck.BottleneckError as error:
            found[kind] = {"error": str(error)}
        dist.barrier()
    if rank == 0:
        Path(folder, "found.json").write_text(json.dumps(found))
    dist.destroy_process_group()


if __name__ == "__main__":
    torch.multiprocessing.spawn(run, args=(sys.argv[3:], sys.argv[1], float(sys.argv[2])), nprocs=2)

"""One rank of a job that sleeps: its plain loops, a diagnosis of all ranks, and its plain loops again.

`torchrun benchmarks/rank_job.py PLAN OUT`: PLAN is a JSON object of what `Plan` has. The first rank writes to OUT what
a batch takes in the plain loops, and the result of the diagnosis.
"""

from __future__ import annotations

import fcntl
import json
import os
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset

import bottleneck
from benchmarks.work import Work

BATCH = 4
WARM_UP, STEPS = 10, 60
LENGTH = 100_000


@dataclass(frozen=True)
class Plan:
    """Times of a batch of the job [s], and its planted fault."""

    budget_s: float | None
    """Budget of the diagnosis; None: its default."""
    load_s: float = 0.004
    step_s: float = 0.05
    workers: int = 2
    spins: bool = False
    """Loading computes, and does not sleep."""
    copied_bytes: int = 0
    """Memory to read for each sample: more than the caches of the processor hold."""
    cores: int = 0
    """Cores of the machine that all ranks may use together; 0: all."""
    disk: str = ""
    """A file that one loader at a time holds while it loads."""
    share_s: float = 0.0
    slow_ranks: tuple[int, ...] = ()
    slow_load_s: float = 0.0
    slow_step_s: float = 0.0
    last_length: int = 0
    """Samples of the last rank, where these are not as many as those of the others."""


class Samples(Dataset[torch.Tensor]):
    """Samples that take their time."""

    def __init__(self, plan: Plan, rank: int, world: int) -> None:
        seconds = plan.slow_load_s if rank in plan.slow_ranks and plan.slow_load_s else plan.load_s
        self.work = Work("spin" if plan.spins else "wait", seconds / BATCH)
        self.disk = plan.disk
        self.copied = (torch.ones(plan.copied_bytes // 4), torch.ones(plan.copied_bytes // 4))
        self.length = plan.last_length if plan.last_length and rank == world - 1 else LENGTH

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> torch.Tensor:
        if len(self.copied[0]):
            self.copied[1].copy_(self.copied[0])
        elif self.work.kind == "spin":
            # By the processor's time, and not by the clock's: what shares a core takes longer.
            until_s = time.thread_time() + self.work.seconds
            while time.thread_time() < until_s:
                pass
        elif not self.disk:
            self.work.run()
        else:
            with Path(self.disk).open("w") as disk:
                fcntl.flock(disk, fcntl.LOCK_EX)
                time.sleep(self.work.seconds)
        return torch.full((8,), float(index))


class Step:
    """A train step that sleeps, and shares a few gradients."""

    def __init__(self, plan: Plan, rank: int, model: Any) -> None:
        self.seconds = plan.slow_step_s if rank in plan.slow_ranks and plan.slow_step_s else plan.step_s
        self.model, self.optimizer = model, torch.optim.SGD(model.parameters(), lr=0.01)

    def __call__(self, batch: torch.Tensor) -> None:
        """One step."""
        time.sleep(self.seconds)
        loss = self.model(batch).sum()
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()


def make_model(plan: Plan) -> Any:
    """A small model whose gradients are shared, with a delay."""
    model = DistributedDataParallel(torch.nn.Linear(8, 2))

    def share(_, bucket):  # type: ignore[no-untyped-def]  # no annotations but torch's own are taken
        time.sleep(plan.share_s)
        return allreduce_hook(None, bucket)  # type: ignore[arg-type]  # the group of the model

    if plan.share_s:
        model.register_comm_hook(None, share)
    return model


def per_batch_s(step: Callable[[Any], None], batches: Any) -> float:
    """Return the time of a batch in a plain loop."""
    for _ in range(WARM_UP):
        step(next(batches))
    began_s = time.perf_counter()
    for _ in range(STEPS):
        step(next(batches))
    return (time.perf_counter() - began_s) / STEPS


def plain_loops(step: Step, loader: DataLoader[Any]) -> dict[str, float]:
    """Return this rank's times of a batch: unchanged, from a cache, and from a cache without sharing gradients."""
    batches = iter(loader)
    real_s = per_batch_s(step, batches)
    cached = next(batches)
    del batches

    def endless() -> Any:
        while True:
            yield cached

    cached_s = per_batch_s(step, endless())
    with step.model.no_sync():
        unshared_s = per_batch_s(step, endless())
    dist.barrier()
    return {"real_s": real_s, "cached_s": cached_s, "unshared_s": unshared_s}


def main() -> None:
    """Run this rank."""
    plan = Plan(**json.loads(sys.argv[1]))
    if plan.cores:
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: plan.cores])
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    dataset, step = Samples(plan, rank, world), Step(plan, rank, make_model(plan))
    loader = DataLoader(dataset, batch_size=BATCH, num_workers=plan.workers)
    before = plain_loops(step, loader)
    fields = {"batch_size": BATCH, "num_workers": plan.workers, "model": step.model, "train_step": step}
    diagnosis = bottleneck.diagnose({"dataset": dataset, **fields, "device": "cpu"}, budget=plan.budget_s)
    loops = [before, plain_loops(step, loader)]
    found: list[Any] = [None] * world
    dist.all_gather_object(found, loops)
    if rank == 0:
        Path(sys.argv[2]).write_text(json.dumps({"loops": found, "result": json.loads(diagnosis.to_json())}))
    dist.barrier()
    # Gloo's threads may abort the process at the end of the interpreter, as pytorch/pytorch#179291 reports.
    sys.stderr.flush()
    os._exit(0)


if __name__ == "__main__":
    main()

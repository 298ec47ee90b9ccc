"""A planted job as somebody would run it, for ever: `planted_job.py NAME CLOCKS`.

CLOCKS is a file of three numbers that the loop keeps up to date: batches so far, the seconds that it has spent on its
input, and the time. The planted work is made code of a library, as decoding is in a real job: the lines of the user's
own code are those that call it.
"""

from __future__ import annotations

import sys
import time
import types
from pathlib import Path

import numpy as np
import torch

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))


def make_work_a_library() -> None:
    """Import `benchmarks.work` as code that belongs to no file of the user's."""
    module = types.ModuleType("benchmarks.work")
    sys.modules[module.__name__] = module
    exec(compile((ROOT / "benchmarks" / "work.py").read_text(encoding="utf-8"), "<work>", "exec"), vars(module))


make_work_a_library()

from benchmarks.plain import plain_loader, plain_move  # noqa: E402 - after its work has become a library's
from benchmarks.planted import find_planted  # noqa: E402


class Model(torch.nn.Module):
    """A small model whose pass takes as long as the planted step."""

    def __init__(self, step: object) -> None:
        super().__init__()
        self.step, self.weight = step, torch.nn.Parameter(torch.zeros(1))

    def forward(self, batch: object) -> torch.Tensor:
        self.step(batch)
        return self.weight.square().sum()


def main(name: str, clocks_file: str) -> None:
    """Train for ever."""
    torch.set_num_threads(1)
    clocks = np.memmap(clocks_file, dtype=np.float64, mode="r+", shape=(3,))
    fields = find_planted(name).build()
    loader, move, device = plain_loader(fields), plain_move(fields), torch.device("cpu")
    model = Model(fields["train_step"])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    asked_s = time.perf_counter()
    while True:
        for batch in loader:
            moved = move(batch, device)
            there_s = time.perf_counter()
            loss = model(moved)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            clocks[:] = clocks[0] + 1, clocks[1] + there_s - asked_s, time.perf_counter()
            asked_s = time.perf_counter()


if __name__ == "__main__":
    main(*sys.argv[1:])

"""Loops without a DataLoader, as people write them, for ever: `without_loader.py KIND CLOCKS`.

CLOCKS is a file of three numbers that the loop keeps up to date: batches so far, the seconds that it has spent on its
input, and the time. Kinds: `get_batch`, nanoGPT's loop on a memory map; `ahead`, a generator that tokenizes, with a
thread that runs ahead; `simulator`, reinforcement learning; `child`, a training in a process that the script starts.
"""

from __future__ import annotations

import queue
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch import nn

WORDS, WIDTH, ROWS = 50, 64, 16


class Clocks:
    """Time of the loop's input, by its own clocks."""

    def __init__(self, file: str) -> None:
        self._clocks = np.memmap(file, dtype=np.float64, mode="r+", shape=(3,))
        self._asked_s = 0.0

    def asks(self) -> None:
        self._asked_s = time.perf_counter()

    def gets(self) -> None:
        now_s = time.perf_counter()
        self._clocks[:] = self._clocks[0] + 1, self._clocks[1] + now_s - self._asked_s, now_s


class Model(nn.Module):
    """A small model that takes 10 ms more, with the cores left free."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.out = nn.Embedding(WORDS, 32), nn.Linear(32, WORDS)

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        time.sleep(0.01)
        return nn.functional.cross_entropy(self.out(self.words(x)).flatten(0, 1), y.flatten())


def read(row: np.ndarray) -> np.ndarray:
    """A row from a slow disk."""
    time.sleep(0.001)
    return row.astype(np.int64)


def train_by_get_batch(clocks: Clocks) -> None:
    """Train as nanoGPT does: the next batch is made between the forward and the backward pass."""
    data = np.random.randint(0, WORDS, 100_000, dtype=np.uint16)
    model = Model()
    optimizer = torch.optim.AdamW(model.parameters())

    def get_batch() -> tuple[torch.Tensor, torch.Tensor]:
        starts = torch.randint(len(data) - WIDTH - 1, (ROWS,))
        rows = torch.stack([torch.from_numpy(read(data[start : start + WIDTH + 1])) for start in starts])
        return rows[:, :-1], rows[:, 1:]

    clocks.asks()
    x, y = get_batch()
    clocks.gets()
    while True:
        loss = model(x, y)
        clocks.asks()
        x, y = get_batch()
        clocks.gets()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)


def tokenize(number: int) -> torch.Tensor:
    """Rows of words, from a text that has to be waited for."""
    time.sleep(0.03)
    return torch.randint(0, WORDS, (ROWS, WIDTH + 1), generator=torch.Generator().manual_seed(number))


def texts() -> Iterator[torch.Tensor]:
    """Batches of a text without an end."""
    number = 0
    while True:
        yield tokenize(number)
        number += 1


def ahead(batches: Iterator[torch.Tensor]) -> Iterator[torch.Tensor]:
    """The same, made by a thread while the loop trains."""
    made: queue.Queue[torch.Tensor] = queue.Queue(2)

    def fill() -> None:
        for batch in batches:
            made.put(batch)

    threading.Thread(target=fill, daemon=True).start()
    while True:
        yield made.get()


def train_on_what_is_ahead(clocks: Clocks) -> None:
    """Train on a generator whose batches a thread makes."""
    model = Model()
    optimizer = torch.optim.AdamW(model.parameters())
    clocks.asks()
    for rows in ahead(texts()):
        clocks.gets()
        loss = model(rows[:, :-1], rows[:, 1:])
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        clocks.asks()


class Environment:
    """A simulator that takes 3 ms for a step."""

    def step(self, _action: torch.Tensor) -> tuple[torch.Tensor, float]:
        time.sleep(0.003)
        return torch.randn(8), 1.0


def act_and_learn(clocks: Clocks) -> None:
    """Act in a simulator, then learn from what came of it."""
    environment, seen = Environment(), torch.zeros(8)
    policy = nn.Sequential(nn.Linear(8, 64), nn.ReLU(), nn.Linear(64, 4))
    optimizer = torch.optim.Adam(policy.parameters())
    while True:
        rows: list[tuple[torch.Tensor, torch.Tensor]] = []
        for _ in range(16):
            with torch.no_grad():
                action = torch.distributions.Categorical(logits=policy(seen)).sample()
            clocks.asks()
            seen, _ = environment.step(action)
            clocks.gets()
            rows.append((seen, action))
        states, actions = torch.stack([row[0] for row in rows]), torch.stack([row[1] for row in rows])
        for _ in range(4):
            loss = nn.functional.cross_entropy(policy(states), actions)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            time.sleep(0.005)


def main(kind: str, file: str) -> Any:
    """Train for ever."""
    torch.set_num_threads(1)
    if kind == "child":
        return subprocess.run([sys.executable, __file__, "get_batch", file], check=True)
    kinds = {"get_batch": train_by_get_batch, "ahead": train_on_what_is_ahead, "simulator": act_and_learn}
    return kinds[kind](Clocks(file))


if __name__ == "__main__":
    main(*sys.argv[1:])

"""Small jobs of the kinds in which advice was found to be wrong, each as a user's `build` returns it."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.utils.data import Dataset

from benchmarks.datasets import Images, Step
from benchmarks.uneven import LENGTH, UnevenLoader
from benchmarks.work import Work, spin, wait

ROWS, COLUMNS = 20_000_000, 8
_NUMBERS = 4096
"""Rows that really are in memory; indices wrap around."""


class Table(Dataset[Any]):
    """Rows of a table in memory: to take one is next to nothing."""

    def __init__(self, rows: int = ROWS) -> None:
        self.rows = rows
        self.numbers = torch.arange(_NUMBERS * COLUMNS, dtype=torch.float32).reshape(_NUMBERS, COLUMNS).div_(_NUMBERS)

    def __len__(self) -> int:
        return self.rows

    def __getitem__(self, index: int) -> Any:
        return self.numbers[index % _NUMBERS], index % 2


class TableInBatches(Table):
    """The same, which takes the rows of a batch by one call."""

    def __init__(self, table: Table) -> None:
        super().__init__(table.rows)

    def __getitems__(self, indices: list[int]) -> list[Any]:
        chosen = torch.tensor(indices)
        return list(zip(self.numbers[chosen % _NUMBERS].unbind(), (chosen % 2).tolist(), strict=True))


class Training:
    """A train step that really trains: a small network, by the cores that the loader would use as well."""

    def __init__(self, columns: int, hidden: int) -> None:
        self.model = nn.Sequential(nn.Linear(columns, hidden), nn.ReLU(), nn.Linear(hidden, hidden), nn.ReLU(),
                                   nn.Linear(hidden, 2))  # fmt: skip
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=1e-4)

    def __call__(self, batch: Any) -> None:
        numbers, labels = batch
        self.optimizer.zero_grad()
        loss = nn.functional.cross_entropy(self.model(numbers.flatten(1)), labels)
        loss.backward()  # type: ignore[no-untyped-call]  # torch's own
        self.optimizer.step()


class Large(Dataset[Any]):
    """Images of practical sizes."""

    def __init__(self, length: int = 1_000_000) -> None:
        self.length = length
        self.image = torch.zeros(3, 224, 224)

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> Any:
        return self.image, index % 2


def _fields(dataset: Dataset[Any], step: Any, batch_size: int, num_workers: int) -> dict[str, Any]:
    return {
        "dataset": dataset, "train_step": step, "device": "cpu", "batch_size": batch_size,
        "num_workers": num_workers, "drop_last": True,
    }  # fmt: skip


def waiting() -> dict[str, Any]:
    """Loading that waits, in the main process: workers really help."""
    images = Images(10_000_000, wait(0.012 / 16), Work("wait", 0.0))
    return _fields(images, Step(wait(0.010)), batch_size=16, num_workers=0)


def table_on_cpu() -> dict[str, Any]:
    """A table that a small network trains on, on the CPU, in the main process."""
    return _fields(Table(), Training(COLUMNS, 512), batch_size=256, num_workers=0)


def table() -> dict[str, Any]:
    """A table, taken sample by sample by one worker, for a quick step."""
    return _fields(Table(), Step(wait(0.001)), batch_size=512, num_workers=1)


def table_in_workers() -> dict[str, Any]:
    """A table that two workers take small batches of: handing one over costs more than making it."""
    return _fields(Table(), Step(wait(0.0)), batch_size=8, num_workers=2)


def tiny() -> dict[str, Any]:
    """A step of nothing, and loading of 31 µs: handing over one batch costs many times as much as making it."""
    return _fields(Images(10_000_000, spin(31e-6), Work("wait", 0.0)), Step(wait(0.0)), batch_size=1, num_workers=0)


def large_copies() -> dict[str, Any]:
    """Batches of 38 MB, copied to a CUDA device from pageable memory."""
    step = Training(3 * 224 * 224, 256)
    step.model.cuda()
    return _fields(Large(), step, batch_size=64, num_workers=4) | {"device": "cuda", "to_device": move}


def move(batch: Any, device: torch.device) -> Any:
    """The batch on the device."""
    return [part.to(device) for part in batch]


def move_beside(batch: Any, device: torch.device) -> Any:
    """The batch on the device, without waiting for the copy."""
    return [part.to(device, non_blocking=True) for part in batch]


# --- what costs to hand over ----------------------------------------------------------------------------------

_KEPT_SAMPLES = 64


class Graph:
    """A graph as its parser left it, in dicts."""

    def __init__(self) -> None:
        self.bonds = {atom: {(atom + k) % 120: {"order": k} for k in range(1, 5)} for atom in range(120)}


class GraphsBesideFeatures(Dataset[Any]):
    """Samples with the graph that their features were made of, which no step reads."""

    def __init__(self) -> None:
        self.features, self.graphs = torch.rand(_KEPT_SAMPLES, 64), [Graph() for _ in range(_KEPT_SAMPLES)]

    def __len__(self) -> int:
        return LENGTH

    def __getitem__(self, index: int) -> Any:
        return {"features": self.features[index % _KEPT_SAMPLES], "graph": self.graphs[index % _KEPT_SAMPLES]}


def features_alone(samples: list[dict[str, Any]]) -> dict[str, Any]:
    """Collate the features, and leave out the graphs."""
    return {"features": torch.stack([sample["features"] for sample in samples])}


def _with_graphs(samples: list[dict[str, Any]]) -> dict[str, Any]:
    return {**features_alone(samples), "graph": [sample["graph"] for sample in samples]}


class StepOnFeatures(Step):
    """A train step that reads the features of a batch, and nothing else."""

    def __call__(self, batch: Any) -> None:
        batch["features"].sum()
        super().__call__(batch)


def graphs_beside_features() -> dict[str, Any]:
    """Workers that hand over a graph with each sample, for a step that never reads it."""
    loader, step = UnevenLoader(2, 0.0, 0.0, 0.0), StepOnFeatures(wait(0.004))
    return loader.build(dataset=GraphsBesideFeatures(), collate_fn=_with_graphs, batch_size=16, train_step=step)


class Boxes(Dataset[Any]):
    """Boxes with their labels, areas and flags, as a detector wants them: four small tensors a sample."""

    names = ("boxes", "labels", "area", "crowd")

    def __len__(self) -> int:
        return LENGTH

    def __getitem__(self, index: int) -> Any:
        return {name: torch.full((5, 4), float(index % 7)) for name in self.names}


class InFewTensors:
    """A batch that travels as one tensor for each name, and arrives as a list of samples."""

    def __init__(self, samples: list[dict[str, torch.Tensor]]) -> None:
        self.rows = {name: torch.cat([sample[name] for sample in samples]) for name in Boxes.names}
        self.counts = [len(sample[Boxes.names[0]]) for sample in samples]

    def __reduce__(self) -> tuple[Any, ...]:
        return _in_samples, (self.rows, self.counts)


def _in_samples(rows: dict[str, torch.Tensor], counts: list[int]) -> list[dict[str, torch.Tensor]]:
    parts = (torch.split(rows[name], counts) for name in Boxes.names)
    return [dict(zip(Boxes.names, sample, strict=True)) for sample in zip(*parts, strict=True)]


def _as_they_are(samples: list[Any]) -> list[Any]:
    return samples


def many_small_tensors() -> dict[str, Any]:
    """Workers that hand over four small tensors for each sample."""
    return UnevenLoader(2, 0.0, 0.0, 0.004).build(dataset=Boxes(), collate_fn=_as_they_are, batch_size=16)

"""Jobs that are slow for a reason that can be named: `causes.py NAME`, and `causes.py NAME without` for the same job
without it.

Each is rebuilt from a public report of a slow job. Nothing here knows of `bottleneck`. With `BENCH_SECONDS` a script
ends after as many seconds of steady training, and prints what a step took, validation and epoch starts included.
"""

from __future__ import annotations

import copy
import json
import multiprocessing
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, IterableDataset, RandomSampler, WeightedRandomSampler, get_worker_info

SECONDS = float(os.environ.get("BENCH_SECONDS", "0"))
STEP_S = 0.006
WARM_UP_S = 3.0
FEATURES = 64
MANY = 100_000

NAME, SICK = sys.argv[1], "without" not in sys.argv[2:]
FOLDER = Path(tempfile.mkdtemp())


def nothing(*_: Any) -> None:
    """Most jobs do nothing after a step."""


@dataclass
class Job:
    """Data of the loop below, and its other work."""

    loader: Any
    prepare: Callable[[Any], Any] = lambda batch: batch
    after_step: Callable[[int, nn.Module], None] = nothing


# --- within a sample ------------------------------------------------------------------------------------------


class Items(Dataset[torch.Tensor]):
    """Samples that a function makes of their index."""

    def __init__(self, make: Callable[[int], torch.Tensor], length: int = MANY) -> None:
        self.make, self.length = make, length

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> torch.Tensor:
        return self.make(index)


def over(make: Callable[[int], torch.Tensor], length: int = MANY, **settings: Any) -> Job:
    """A job whose two workers make samples by a function."""
    settings = {"batch_size": 16, "shuffle": True, "num_workers": 2, "persistent_workers": True, **settings}
    return Job(DataLoader(Items(make, length), **settings))


def deepcopy() -> Job:
    """Each patch is taken of a copy of the whole record."""
    records = [{"volume": np.random.rand(160, 160, 96).astype(np.float32), "name": str(i)} for i in range(8)]

    def patch(index: int) -> torch.Tensor:
        record = copy.deepcopy(records[index % 8]) if SICK else records[index % 8]
        return torch.from_numpy(record["volume"][:8, :8, 0].copy()).flatten()

    return over(patch)


def frame_rows() -> Job:
    """Rows of a pandas frame, one by one."""
    import pandas as pd

    frame = pd.DataFrame(np.random.rand(20_000, FEATURES).astype(np.float32)).assign(name="a")
    columns = list(range(FEATURES))
    values = frame[columns].to_numpy()

    def row(index: int) -> torch.Tensor:
        if SICK:
            return torch.tensor(frame.iloc[index % 20_000][columns].astype("float32").to_numpy())
        return torch.from_numpy(values[index % 20_000])

    return over(row, batch_size=128)


def saved_views() -> Job:
    """Files of views, which hold the whole of what they are views of."""
    for number in range(64):
        table = torch.rand(400, 2048)
        torch.save(table[number] if SICK else table[number].clone(), FOLDER / f"{number}.pt")
    return over(lambda index: torch.load(FOLDER / f"{index % 64}.pt")[:FEATURES])


def row_groups() -> Job:
    """A Parquet file is opened, and a whole group decoded, for one row."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    table = pa.table({f"c{i}": np.random.rand(8192).astype(np.float32) for i in range(FEATURES)})
    size = 512 if SICK else 1
    pq.write_table(table, FOLDER / "rows.parquet", row_group_size=512)
    kept = np.stack([column.to_numpy() for column in table.columns], axis=1)

    def row(index: int) -> torch.Tensor:
        if not SICK:
            return torch.from_numpy(kept[index % 8192])
        group = pq.ParquetFile(FOLDER / "rows.parquet").read_row_group(index % 8192 // size)
        return torch.tensor([column[index % size].as_py() for column in group.columns])

    return over(row, batch_size=4)


def one_slice() -> Job:
    """A compressed volume is read whole for one slice of it."""
    volumes = []
    for number in range(8):
        volume = np.random.randint(0, 4, (64, FEATURES, FEATURES)).astype(np.float32)
        np.savez_compressed(FOLDER / f"{number}.npz", volume=volume)
        np.save(FOLDER / f"{number}.npy", volume)
        volumes.append(np.load(FOLDER / f"{number}.npy", mmap_mode="r"))

    def one(index: int) -> torch.Tensor:
        volume = np.load(FOLDER / f"{index % 8}.npz")["volume"] if SICK else volumes[index % 8]
        return torch.from_numpy(volume[index % len(volume)].copy()).flatten()

    return over(one, batch_size=8)


def one_frame() -> Job:
    """Decodes all frames of a film up to the wanted one."""
    import cv2

    cv2.setNumThreads(1)
    path, length = str(FOLDER / "film.avi"), 120
    film = cv2.VideoWriter(path, cv2.VideoWriter.fourcc(*"MJPG"), 10, (FEATURES, FEATURES))
    for _ in range(length):
        film.write(np.random.randint(0, 256, (FEATURES, FEATURES, 3)).astype(np.uint8))
    film.release()
    opened: list[Any] = []  # in each worker

    def frame(index: int) -> torch.Tensor:
        if SICK or not opened:
            opened[:] = [cv2.VideoCapture(path)]
        if not SICK:
            opened[0].set(cv2.CAP_PROP_POS_FRAMES, index % length)
        pictures = [opened[0].read()[1] for _ in range(index % length + 1 if SICK else 1)]
        return torch.from_numpy(pictures[-1])

    job = over(frame, batch_size=8)
    job.prepare = lambda pictures: pictures.flatten(1) / 255
    return job


def resampled() -> Job:
    """The same spectra of a few recordings, in every epoch."""
    recordings = torch.randn(48, 32_000)

    def spectrum(index: int) -> torch.Tensor:
        windows = recordings[index].unfold(0, 1024, 64) * torch.hann_window(1024)
        return torch.fft.rfft(windows).abs().pow(2).mean(0)[:FEATURES].log1p()

    spectra = [spectrum(index) for index in range(48)]
    return over(spectrum if SICK else spectra.__getitem__, 48, batch_size=8, drop_last=True)


def one_by_one() -> Job:
    """Tiny samples, each by a separate call."""
    data = torch.rand(MANY, 4)

    class Batches(Items):
        """Gives a batch by one call."""

        def __getitems__(self, indices: list[int]) -> list[torch.Tensor]:
            return [data[indices]]

    loader: Any = DataLoader(Items(data.__getitem__), 4096, shuffle=True, num_workers=2, persistent_workers=True)
    if not SICK:
        batches = Batches(data.__getitem__)
        loader = DataLoader(
            batches, 4096, shuffle=True, num_workers=2, persistent_workers=True, collate_fn=lambda rows: rows[0]
        )
    return Job(loader)


def threads() -> Job:
    """Each worker computes in sixteen threads."""

    def initialise(_worker: int) -> None:
        torch.set_num_threads(16 if SICK else 1)

    image = torch.rand(3, 160, 160)

    def jittered(_index: int) -> torch.Tensor:
        picture = image
        for _ in range(20):
            picture = picture * (1 + 0.01 * torch.rand(1))
        return picture.flatten()[:FEATURES]

    return over(jittered, worker_init_fn=initialise)


# --- around the samples -----------------------------------------------------------------------------------------


class Shards(IterableDataset[torch.Tensor]):
    """A stream that is divided among workers by its shards."""

    def __init__(self, count: int) -> None:
        self.num_shards = count

    def __iter__(self) -> Iterator[torch.Tensor]:
        info = get_worker_info()
        own = range(self.num_shards)[info.id :: info.num_workers] if info else range(self.num_shards)
        for shard in own:
            for number in range(10 * MANY):
                time.sleep(0.001)
                yield torch.full((FEATURES,), float(shard + number))


def one_shard() -> Job:
    """Two workers, and a single shard."""
    return Job(DataLoader(Shards(1 if SICK else 2), batch_size=16, num_workers=2))


def garbage() -> Job:
    """Samples made of many small lists, while millions of objects are alive."""
    texts = [[number, [number]] for number in range(600_000)]
    table = torch.zeros(16, FEATURES)
    if not SICK:
        import gc

        gc.freeze()
        gc.disable()

    def packed(index: int) -> torch.Tensor:
        pairs = [[token, [index]] for token in range(1_500)]
        return table[index % 16] + float(len(pairs) + len(texts)) * torch.rand(1)

    return over(packed, num_workers=1)


def drawn() -> Job:
    """An epoch of a few hundred samples, which take time to fetch, drawn from fifteen million weights."""
    weights = torch.rand(15_000_000)
    sampler: Any = WeightedRandomSampler(weights, 480) if SICK else RandomSampler(range(MANY), num_samples=480)

    def fetched(index: int) -> torch.Tensor:
        time.sleep(0.0005)
        return torch.full((FEATURES,), float(index))

    return over(fetched, len(weights), shuffle=False, sampler=sampler)


def padded() -> Job:
    """Texts padded to the longest that the model takes."""

    def collate(texts: list[torch.Tensor]) -> torch.Tensor:
        longest = 8192 if SICK else max(map(len, texts))
        batch = torch.zeros(len(texts), longest)
        for row, text in zip(batch, texts, strict=True):
            row[: len(text)] = text
        return batch

    generator = torch.Generator().manual_seed(0)
    lengths = torch.randint(300, 600, (1000,), generator=generator)
    return over(lambda index: torch.rand(int(lengths[index % 1000])), collate_fn=collate, batch_size=32)


class Molecule:
    """A graph as its parser left it, in dicts of dicts."""

    def __init__(self) -> None:
        self.atoms = {atom: {"charge": 0.1 * atom, "mass": 12.0 + atom} for atom in range(120)}
        self.bonds = {atom: {(atom + k) % 120: {"order": k} for k in range(1, 5)} for atom in range(120)}


def pickled() -> Job:
    """Each sample's graph travels beside the features that were made of it, and nobody reads it."""
    samples = [{"graph": Molecule(), "features": torch.rand(FEATURES)} for _ in range(64)]

    def collate(batch: list[dict[str, Any]]) -> dict[str, Any]:
        together: dict[str, Any] = {"features": torch.stack([sample["features"] for sample in batch])}
        if SICK:
            together["graph"] = [sample["graph"] for sample in batch]
        return together

    def sample(index: int) -> Any:
        return samples[index % 64]

    job = over(sample, collate_fn=collate)
    job.prepare = lambda batch: batch["features"]
    return job


def many_tensors() -> Job:
    """Targets of seven small tensors for each sample of a batch."""
    names = ("boxes", "labels", "area", "iscrowd", "image_id", "orig_size", "size")

    def sample(index: int) -> Any:
        boxes = 1 + index % 5
        return torch.full((FEATURES,), float(index % 7)), {name: torch.full((boxes, 2), 0.5) for name in names}

    def collate(samples: list[Any]) -> Any:
        rows, targets = zip(*samples, strict=True)
        if SICK:
            return torch.stack(rows), targets
        lengths = torch.tensor([len(target["boxes"]) for target in targets])
        return torch.stack(rows), {name: torch.cat([target[name] for target in targets]) for name in names}, lengths

    job = over(sample, collate_fn=collate)
    job.prepare = lambda batch: batch[0]
    return job


class PackedDocuments(IterableDataset[torch.Tensor]):
    """Rows packed from documents; those that are yet to be packed are its state."""

    def __init__(self, documents: int = 1200) -> None:
        self.waiting = [list(range(number, number + 60)) for number in range(documents)]
        self.taken = 0

    def __iter__(self) -> Iterator[torch.Tensor]:
        while True:
            self.taken += 1
            self.waiting[self.taken % len(self.waiting)] = list(range(self.taken, self.taken + 60))
            end = time.perf_counter() + 4e-4  # as tokenizing takes
            while time.perf_counter() < end:
                pass
            yield quick(self.taken)

    def state_dict(self) -> dict[str, Any]:
        return {"taken": self.taken, "waiting": copy.deepcopy(self.waiting)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.taken, self.waiting = state["taken"], state["waiting"]


def snapshots() -> Job:
    """A loader that can resume copies and sends the state of its dataset with every batch, as is its default."""
    from torchdata.stateful_dataloader import StatefulDataLoader

    interval = 1 if SICK else 100
    return Job(StatefulDataLoader(PackedDocuments(), batch_size=16, num_workers=2, snapshot_every_n_steps=interval))


# --- the loop ---------------------------------------------------------------------------------------------------


def quick(index: int) -> torch.Tensor:
    """A sample that costs nothing."""
    return torch.full((FEATURES,), float(index % 7))


def watched() -> Job:
    """Histograms of all weights after each step."""
    extra = [torch.rand(200_000) for _ in range(4)]

    def log(step: int, _model: nn.Module) -> None:
        if step % (1 if SICK else 500) == 0:
            for weights in extra:
                torch.histc(weights, 64)
                np.histogram(weights.numpy(), 64)

    job = over(quick)
    job.after_step = log
    return job


def in_the_loop() -> Job:
    """The loop prepares the batch itself."""
    image = torch.rand(1, 3, 200, 200)

    def prepare(batch: torch.Tensor) -> torch.Tensor:
        return batch + nn.functional.avg_pool2d(image, 9, 1, 4).mean() if SICK else batch

    job = over(quick)
    job.prepare = prepare
    return job


def saves() -> Job:
    """A checkpoint every ten steps."""
    weights = torch.rand(8_000_000)

    def save(step: int, _model: nn.Module) -> None:
        if step % (10 if SICK else 100_000) == 0:
            torch.save(weights, FOLDER / "last.pt")

    job = over(quick)
    job.after_step = save
    return job


def validates() -> Job:
    """Frequent validation, which starts its workers each time."""
    validation = DataLoader(Items(quick, 256), batch_size=64, num_workers=2, persistent_workers=not SICK)

    def validate(step: int, model: nn.Module) -> None:
        if step % 20 == 0:
            with torch.no_grad():
                for batch in validation:
                    model(batch)

    job = over(quick)
    job.after_step = validate
    return job


def anomalies() -> Job:
    """Anomaly mode, left on."""
    torch.autograd.set_detect_anomaly(SICK, check_nan=True)
    return over(quick)


JOBS = {
    job.__name__: job
    for job in (
        *(deepcopy, frame_rows, saved_views, row_groups, one_slice, one_frame, resampled, one_by_one, threads),
        *(one_shard, garbage, drawn, padded, pickled, many_tensors, snapshots),
        *(watched, in_the_loop, saves, validates, anomalies),
    )
}


class Model(nn.Module):
    """A small network, and the time of a large one on an accelerator."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(*(nn.Linear(FEATURES, FEATURES) for _ in range(4)), nn.Linear(FEATURES, 1))

    def forward(self, batch: torch.Tensor) -> torch.Tensor:
        """Features (batch, any) -> (batch, 1)."""
        time.sleep(STEP_S * (batch.shape[1] / FEATURES if NAME == "padded" else 1.0) / (8 if NAME == "padded" else 1))
        return self.layers(nn.functional.pad(batch, (0, FEATURES))[:, :FEATURES])


def main() -> None:
    """Train."""
    torch.set_num_threads(1)
    job = JOBS[NAME]()
    model = Model()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-6)
    step, begun, started_s = 0, 0, time.perf_counter()
    measured_s = 0.0
    while True:
        for batch in job.loader:
            optimizer.zero_grad()
            model(job.prepare(batch)).square().mean().backward()
            optimizer.step()
            job.after_step(step, model)
            step += 1
            now = time.perf_counter()
            if SECONDS and not begun and now - started_s > WARM_UP_S:
                begun, measured_s = step, now
            elif SECONDS and begun and now - measured_s > SECONDS:
                print(json.dumps({"s_per_batch": (now - measured_s) / (step - begun)}), flush=True)
                for child in multiprocessing.active_children():
                    child.terminate()
                os._exit(0)
            if not SECONDS and step > MANY:
                return


if __name__ == "__main__":
    main()

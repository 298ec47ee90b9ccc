"""Facts about the loader and its dataset, read without changing them, and what starting a worker sends."""

from __future__ import annotations

import gc
import importlib
import io
import itertools
import json
import multiprocessing
import pickle
import sys
import threading
import time
import zipfile
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import DataLoader, Dataset, WeightedRandomSampler, get_worker_info
from torchvision import transforms

from bottleneck.analysis.advice.transforms import pixels_of
from bottleneck.job.pipeline import Pipeline
from bottleneck.loader.control import BatchTally
from bottleneck.loader.engine import WorkerFacts
from bottleneck.loader.observing.garbage import CollectionCount
from bottleneck.loader.observing.images import describe_output, image_pixels
from bottleneck.loader.observing.meter import Spent
from bottleneck.loader.observing.observation import Line
from bottleneck.measure.evidence.dataset import (
    describe_loaded,
    describe_loader,
    describe_sampler,
    note_collections,
    note_kept_samples,
    pickle_size,
    warn_of_repeated_stream,
)
from bottleneck.measure.evidence.payload import describe_payload
from bottleneck.measure.evidence.stages import observe, summarise
from bottleneck.measure.ledger import Ledger
from bottleneck.measure.options import MeasureOptions
from bottleneck.results.evidence import CollectionsSeen, Evidence, LoadedBatches, LoaderFacts, SamplerSeen
from bottleneck.results.json import from_json, to_json
from tests.loader.staged_datasets import switched
from tests.support.as_json import said
from tests.support.results_factory import make_result
from tests.support.sessions import pipeline_of, run

# --- datasets with something to tell of themselves -----------------------------------------------------------


OBJECTS = 100_000


class Photos(Dataset):
    """Decodes images of 80x60, and keeps 32x32 of each."""

    def __init__(self):
        self.transform = transforms.Compose([transforms.RandomCrop(32), transforms.ToTensor()])
        file = io.BytesIO()
        Image.new("RGB", (80, 60), (200, 10, 10)).save(file, "JPEG")
        self.encoded = file.getvalue()

    def __len__(self):
        return 10_000

    def __getitem__(self, index):
        return self.transform(self.load(index)), index

    def load(self, index):
        return Image.open(io.BytesIO(self.encoded)).convert("RGB")


class Keeping(Photos):
    """Keeps what it has decoded."""

    def __init__(self):
        super().__init__()
        self.kept = {}

    def load(self, index):
        if index not in self.kept:
            self.kept[index] = super().load(index)
        return self.kept[index]


class Archive(Dataset):
    """Reads from a file that is open before the workers are started."""

    def __init__(self, path):
        self.path = path
        self.archive = zipfile.ZipFile(path)

    def __len__(self):
        return 10_000

    def __getitem__(self, index):
        return torch.tensor(list(self.load(index)))

    def load(self, index):
        return self.archive.read("a")


class OpenedLate(Archive):
    """Opens the file again in each worker, at its first sample."""

    opened = False

    def load(self, index):
        if not self.opened:
            self.archive, self.opened = zipfile.ZipFile(self.path), True
        return super().load(index)


class Listed(Dataset):
    """Holds a long list of names."""

    def __init__(self):
        self.samples = [f"folder/image-{number:07}.jpg" for number in range(OBJECTS)]

    def __len__(self):
        return len(self.samples)

    def __getitem__(self, index):
        if get_worker_info() is not None:
            sys.modules["cv2"] = SimpleNamespace(getNumThreads=lambda: 3, setNumThreads=int)  # imported late
        return torch.tensor(len(self.samples[index]))


class Batched(Listed):
    """Fetches whole batches."""

    def __getitems__(self, indices):
        return [self[index] for index in indices]


def facts_of(dataset, pipeline=None, **options):
    """The facts of a loader, as a diagnosis finds them."""
    loader = DataLoader(dataset, **{"batch_size": 4, "num_workers": 2, **options})
    pipeline = pipeline or Pipeline(dataset=dataset, train_step=len, device="cpu")
    with switched(loader) as running:
        seen = observe(running, 0.05, time.perf_counter)
        assert not any(one.growing for one in running.facts())
        evidence = replace(summarise(seen, ()), payload=describe_payload([torch.zeros(8), torch.zeros(2)]))
        found = said(describe_loader(pipeline, loader, running, seen.pixels, evidence))
    return json.loads(json.dumps(found))


@pytest.fixture
def archive(tmp_path):
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as file:
        file.writestr("a", bytes(16))
    return tmp_path / "a.zip"


class Refilled(Dataset):
    """Takes its samples from its own loader, as a queue of patches does."""

    def __init__(self, num_workers):
        self.volumes = iter(DataLoader(torch.rand(40_000, 2), batch_size=None, num_workers=num_workers))

    def __len__(self):
        return 100

    def __getitem__(self, index):
        return next(self.volumes)


@pytest.mark.integration
@pytest.mark.parametrize(("within", "seen"), [(0, None), (1, 1)])
def test_workers_within_a_dataset_are_counted(within, seen):
    assert facts_of(Refilled(within), num_workers=0).get("own_workers") == seen


@pytest.mark.integration
def test_images_that_are_decoded_and_cropped():
    found = facts_of(Photos(), multiprocessing_context="fork")
    assert found["decoded_pixels_per_sample"] == 80 * 60
    assert found["used_pixels_per_sample"] == 32 * 32
    assert found["loaded_bytes_per_sample"] == 80 * 60 * 4
    assert found["transform_modules"]["transform.transforms[0]"] == "torchvision.transforms.transforms"
    assert found["start_method"] == "fork"
    assert not found["fetches_batches"]
    assert not found["open_handles"]
    assert found["dataset_pickle_bytes"] is None  # nothing is sent
    assert found["python_objects"] < 1000


@pytest.mark.parametrize(
    ("persistent", "epochs", "forgotten", "warned"),
    [
        (False, 1, None, []),
        (False, 2, "self.kept", []),
        (True, 1, None, ["these numbers are of the first:"]),
        (True, 2, None, ["these numbers are of neither alone:"]),
    ],
)
def test_kept_samples_are_noted_by_what_the_job_does_with_them(persistent, epochs, forgotten, warned):
    # Guards: workers that stay find them, and the job is called as fast as it never is.
    running = SimpleNamespace(
        facts=lambda: [WorkerFacts(), WorkerFacts(growing=("self.kept",))], order=SimpleNamespace(epochs_begun=epochs)
    )
    ledger = Ledger({}, {})
    note_kept_samples(DataLoader(Keeping(), num_workers=1, persistent_workers=persistent), running, ledger)
    assert ledger.evidence.loader.forgotten == forgotten
    warnings = ledger.measurement().warnings
    assert len(warnings) == len(warned)
    assert all(words in warning.message for words, warning in zip(warned, warnings, strict=True))


@pytest.mark.integration
def test_a_file_that_forked_workers_share_is_told_and_one_that_they_open_is_not(archive):
    shared, own = Archive(archive), OpenedLate(archive)
    with shared.archive, own.archive:
        found = facts_of(shared, multiprocessing_context="fork")
        assert found["open_handles"] == [{"path": "self.archive", "type": "zipfile.ZipFile"}]
        assert facts_of(own, multiprocessing_context="fork")["open_handles"] == []


@pytest.mark.integration
def test_a_long_list_that_is_sent_to_spawned_workers():
    dataset = Listed()
    found = facts_of(dataset, multiprocessing_context="spawn", num_workers=1)
    assert found["start_method"] == "spawn"
    assert found["dataset_pickle_bytes"] == pytest.approx(OBJECTS * 30, rel=0.2)
    assert found["dataset_pickle_complete"]
    assert 0 < found["dataset_pickle_s"] < 5
    assert found["python_objects"] == pytest.approx(OBJECTS, rel=0.05)
    assert found["python_objects_largest"] == "self.samples"
    assert found["decoded_pixels_per_sample"] is None
    assert len(dataset.samples) == OBJECTS


def test_a_dataset_that_fetches_batches_in_the_main_process():
    found = facts_of(Batched(), num_workers=0)
    assert found["fetches_batches"]
    assert found["start_method"] is None


@pytest.mark.parametrize(
    ("to_device", "mentions"),
    [
        (None, True),
        (lambda batch, device: batch.to(device, non_blocking=True), True),
        (lambda batch, device: [part.to(device) for part in batch], False),
        (print, None),
    ],
    ids=["ours", "asynchronous", "waits", "not of Python"],
)
def test_whether_the_transfer_waits(to_device, mentions):
    pipeline = Pipeline(dataset=Batched(), train_step=len, to_device=to_device, device="cpu")
    assert facts_of(Batched(), pipeline, num_workers=0)["mentions_non_blocking"] is mentions


def test_a_transfer_whose_file_was_edited_since_it_was_imported(tmp_path, monkeypatch):
    file = tmp_path / "my_transfer.py"
    file.write_text("\n\ndef to_device(batch, device):\n    return batch\n")
    monkeypatch.syspath_prepend(tmp_path)
    pipeline = Pipeline(
        dataset=Batched(), train_step=len, to_device=importlib.import_module("my_transfer").to_device, device="cpu"
    )
    file.write_text('\n\ndef to_device(batch, device): return (\n\n"""\n')
    assert facts_of(Batched(), pipeline, num_workers=0)["mentions_non_blocking"] is None


def test_a_diagnosis_has_the_facts_and_what_the_step_does_not_read():
    def step(batch):
        batch[0].sum()

    outcome = run(pipeline_of(Photos(), train_step=step, num_workers=0), MeasureOptions(budget_s=1.0))
    evidence = outcome.measurement.evidence
    assert evidence.loader.used_pixels_per_sample == 32 * 32
    assert evidence.payload.unread == ("[1]",)
    assert evidence.payload.unread_bytes == 4 * 8


class Numbers:
    """A dataset with a list, as people write them."""

    def __init__(self, values):
        self.values = values


class Refusing:
    def __reduce__(self):
        raise RuntimeError("not me,\n  please")


def test_tensors_stay_where_they_are_and_are_not_sent():
    tensor = torch.zeros(1000, 100)
    size = pickle_size(Numbers([tensor, tensor[:10], torch.nn.Parameter(torch.zeros(10))]))
    assert not tensor.is_shared()
    assert size.complete
    assert size.stream_bytes < 2000


def test_it_ends_at_the_limit_of_bytes():
    size = pickle_size(Numbers(list(range(1_000_000))), limit_bytes=300_000)
    assert not size.complete
    assert 300_000 < size.stream_bytes < 600_000


def test_an_array_over_the_limit_is_not_copied_first():
    array = np.broadcast_to(np.zeros(1), (1 << 40,))  # 8 TiB, if it were written out
    size = pickle_size(Numbers([array]), limit_bytes=1 << 20)
    assert not size.complete


@pytest.mark.parametrize("value", [lambda: None, threading.Lock(), Refusing()])
def test_of_what_cannot_be_pickled_nothing_is_known(value):
    assert pickle_size(Numbers(value)) is None


def test_locks_for_processes_can_be_sent_while_one_is_started():
    lock = multiprocessing.get_context("spawn").Lock()
    assert pickle_size(Numbers(lock)).complete
    with pytest.raises(RuntimeError, match="inheritance"):
        pickle.dumps(lock)


# --- what a run measured besides its blocks is of the types that its annotations promise: it can be read again


@pytest.mark.parametrize("workers", [0, pytest.param(1, marks=pytest.mark.integration)])
def test_evidence_is_read_as_it_was_measured(workers, monkeypatch):
    monkeypatch.setattr("bottleneck.measure.session.pinned_bytes_per_s", lambda device: 25e9)
    pipeline = pipeline_of(train_step=lambda batch: batch[0].sum(), num_workers=workers)
    outcome = run(pipeline, MeasureOptions(budget_s=1.0))
    assert outcome.failure is None
    evidence = outcome.measurement.evidence
    assert from_json(to_json(make_result(evidence=evidence))).evidence == evidence
    assert evidence.first_batch_s > 0
    assert evidence.payload.tensors[0].shape == (4, 8)
    assert evidence.loader.iterable is False
    assert evidence.loader.pinned_bytes_per_s == 25e9
    assert evidence.trace.device.steps
    assert evidence.wait_s.count


# --- what the workers see is what the rules read: from a planted pipeline to the advice that it deserves ---


@pytest.mark.parametrize(
    "value",
    [
        Image.new("RGB", (20, 10)),
        Image.new("L", (20, 10)),
        torch.zeros(3, 10, 20),
        torch.zeros(1, 10, 20, dtype=torch.uint8),
        np.zeros((10, 20, 3), np.uint8),
        torch.zeros(128, dtype=torch.int64),
        torch.zeros(5, 7, 9),
        "text",
    ],
    ids=["RGB", "grey", "channels first", "one channel", "channels last", "tokens", "no image", "text"],
)
def test_both_sides_agree_on_what_an_image_is(value):
    assert pixels_of(describe_output(value)) == image_pixels(value)


# --- what chooses the samples, and workers that give the same -------------------------------------------------


def test_a_sampler_is_told_with_what_it_chooses_from_and_its_costliest_line():
    own, library = Line("train.py", 7, "__iter__", None, False), Line(torch.__file__, 9, "__iter__", None, True)
    lines = {own: Spent(0.4, 0.4), library: Spent(0.6, 0.6)}
    sampler = WeightedRandomSampler(torch.ones(50), 8)

    found = describe_sampler(SimpleNamespace(order=SimpleNamespace(users_sampler=sampler, lines=lines)))

    assert (found.name, found.choices, found.draws) == ("WeightedRandomSampler", 50, 8)
    assert (found.line.path, found.line.line, found.line.share) == ("train.py", 7, 0.4)
    stream = SimpleNamespace(order=SimpleNamespace(users_sampler=None, lines={}))
    assert describe_sampler(stream) == SamplerSeen()


@pytest.mark.parametrize("workers", [None, 3])
def test_workers_that_give_the_same_samples_are_warned_of(workers):
    ledger = Ledger({}, {})
    warn_of_repeated_stream(LoaderFacts(repeating_workers=workers), ledger)
    told = [warning.message for warning in ledger.measurement().warnings]
    assert len(told) == (workers is not None)
    assert all(message.startswith("3 workers yield the same samples") for message in told)


def loader_that_made(*workers):
    """Each with the times of its batches but for the first one, which takes long."""
    times = map(np.array, workers)
    tallies = [BatchTally(9.0, len(own), own.sum(), (own**2).sum()) for own in times]
    return SimpleNamespace(num_workers=len(workers), tallies=lambda: tallies)


def test_what_batches_take_is_summed_over_the_workers_without_the_first_of_each():
    made = [[0.2, 0.4, 0.3, 0.5], [0.1, 0.3, 0.2, 0.2, 0.6]]
    found, all_of_them = describe_loaded(loader_that_made(*made)), np.concatenate(made)
    assert found.count == 9
    assert found.seconds_each == pytest.approx(all_of_them.mean())
    assert found.cv == pytest.approx(all_of_them.std(ddof=1) / all_of_them.mean())
    for few in ([], [[0.2], [0.3, 0.3]]):
        assert describe_loaded(loader_that_made(*few)) == LoadedBatches()


@pytest.mark.parametrize(
    ("each_s", "workers", "share"), [(0.5, 2, 0.2), (3.0, 2, 1.0), (None, 2, None), (0.5, 0, None)]
)
def test_collections_take_as_many_as_were_counted_each_as_observed(each_s, workers, share):
    ledger = Ledger({}, {})
    ledger.evidence = Evidence(collections=CollectionsSeen(seconds_each=each_s))
    note_collections(SimpleNamespace(num_workers=workers, made=lambda: [(5, 10.0), (3, 10.0)]), ledger)
    assert ledger.evidence.collections.share == share
    assert ledger.evidence.collections.count == (None if share is None else 8)


def test_collections_are_counted_while_everything_is_real_alone():
    now_s = itertools.count(0.0, 10.0)
    counted = CollectionCount(now_s.__next__)
    for real in (False, True, True, False, False):
        counted.switch(real=real)
        gc.collect()
        gc.collect(0)
    assert (counted.count, counted.seconds) == (2, 20.0)

"""Facts about the loader and its dataset, read without changing them, and what starting a worker sends."""

import json
import multiprocessing
import pickle
import threading
import time
import zipfile
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, Dataset, TensorDataset

from bottleneck.job.pipeline import Pipeline
from bottleneck.loader.engine import WorkerFacts
from bottleneck.measure.evidence.dataset import describe_loader, note_kept_samples, pickle_size
from bottleneck.measure.evidence.payload import describe_payload
from bottleneck.measure.evidence.stages import observe, summarise
from bottleneck.measure.ledger import Ledger
from bottleneck.measure.options import MeasureOptions
from tests.loader.staged_datasets import switched
from tests.measure.loaded_jobs import OBJECTS, Archive, Batched, Keeping, Listed, OpenedLate, Photos
from tests.support.as_json import said
from tests.support.clock import FakeClock
from tests.support.sessions import pipeline_of, run


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
    """Takes its samples from a loader of its own, as a queue of patches does."""

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
    assert found["worker_threads"]["torch"] == 1
    assert found["start_method"] == "fork"
    assert not found["fetches_batches"]
    assert not found["open_handles"]
    assert found["dataset_pickle_bytes"] is None  # nothing is sent
    assert found["descriptors_needed"] == (2 * 2 + 1) * 2
    assert found["python_objects"] < 1000


@pytest.mark.integration
def test_a_dict_that_keeps_samples_is_found():
    loader = DataLoader(Keeping(), batch_size=4, num_workers=2)
    with switched(loader) as running:
        observe(running, 0.05, time.perf_counter)
        assert {name for one in running.facts() for name in one.growing} == {"self.kept"}


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
        facts=lambda: [WorkerFacts(torch_threads=1), WorkerFacts(torch_threads=1, growing=("self.kept",))],
        order=SimpleNamespace(epochs_begun=epochs),
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
    assert found["worker_threads"]["opencv"] == 3
    assert found["decoded_pixels_per_sample"] is None
    assert len(dataset.samples) == OBJECTS


def test_a_dataset_that_fetches_batches_in_the_main_process():
    found = facts_of(Batched(), num_workers=0)
    assert found["fetches_batches"]
    assert found["start_method"] is None
    assert found["descriptors_needed"] is None
    assert not found["pin_thread"]


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


def test_the_bytes_are_those_of_the_pickle():
    dataset = Numbers([f"image {number}.jpg" for number in range(10_000)])
    size = pickle_size(dataset)
    assert size.complete
    assert size.stream_bytes == pytest.approx(len(pickle.dumps(dataset)), rel=0.01)


def test_tensors_stay_where_they_are_and_are_not_sent():
    tensor = torch.zeros(1000, 100)
    size = pickle_size(Numbers([tensor, tensor[:10], torch.nn.Parameter(torch.zeros(10))]))
    assert not tensor.is_shared()
    assert size.complete
    assert size.stream_bytes < 2000


def test_a_tensor_dataset_is_left_as_it_was():
    dataset = TensorDataset(torch.zeros(10, 3), torch.zeros(10))
    assert pickle_size(dataset).complete
    assert not any(tensor.is_shared() for tensor in dataset.tensors)


def test_sparse_tensors_do_not_disturb():
    assert pickle_size(torch.eye(3).to_sparse()).complete


def test_it_ends_at_the_limit_of_bytes():
    size = pickle_size(Numbers(list(range(1_000_000))), limit_bytes=300_000)
    assert not size.complete
    assert 300_000 < size.stream_bytes < 600_000


def test_an_array_over_the_limit_is_not_copied_first():
    array = np.broadcast_to(np.zeros(1), (1 << 40,))  # 8 TiB, if it were written out
    size = pickle_size(Numbers([array]), limit_bytes=1 << 20)
    assert not size.complete


def test_it_ends_at_the_limit_of_time():
    size = pickle_size(
        Numbers([Numbers(None) for _ in range(1000)]), limit_s=10.0, read_clock_s=FakeClock(per_reading_s=1.0)
    )
    assert not size.complete
    assert 10.0 < size.duration_s < 20.0


@pytest.mark.parametrize("value", [lambda: None, threading.Lock(), Refusing()])
def test_of_what_cannot_be_pickled_nothing_is_known(value):
    assert pickle_size(Numbers(value)) is None


def test_locks_for_processes_can_be_sent_while_one_is_started():
    lock = multiprocessing.get_context("spawn").Lock()
    assert pickle_size(Numbers(lock)).complete
    with pytest.raises(RuntimeError, match="inheritance"):
        pickle.dumps(lock)


def test_afterwards_locks_refuse_again_to_be_pickled():
    pickle_size(Refusing())
    assert multiprocessing.context.get_spawning_popen() is None

"""Samples that wait at the same time, and copies beside the step: the same batches, or refused with the reason."""

import contextlib
import pickle
import random
import threading
from types import SimpleNamespace

import pytest
import torch
from torch.utils.data import Dataset, Subset, default_collate

from bottleneck.tuner.change import build
from bottleneck.tuner.changes import batches
from bottleneck.tuner.changes.batches import AheadOnDevice, InThreads
from bottleneck.tuner.changes.samples import InMemory
from tests.tuning.jobs import BY_NAME, CUDA, Stream, here, table_job

CHANGE = BY_NAME["fetch_in_threads"]


class Numbers(Dataset):
    """A sample for each index; those below show other ways to give one."""

    def __init__(self, length=64):
        self.length, self.calls, self.held = length, 0, None

    def __len__(self):
        return self.length

    def __getitem__(self, index):
        return torch.full((2,), float(index)), index


class Drawing(Numbers):
    def __getitem__(self, index):
        return torch.randn(2) + random.random(), index


class Counting(Numbers):
    def __getitem__(self, index):
        self.calls += 1
        self.held = [index]
        return super().__getitem__(index)


class Opening(Numbers):
    def __getitem__(self, index):
        self.held = self.held or open(__file__)  # noqa: SIM115 - it stays open
        return super().__getitem__(index)


class InBatches(Numbers):
    def __getitems__(self, indices):
        return [self[index] for index in indices]


class OfOneThread(Numbers):
    def __getitem__(self, index):
        if threading.current_thread() is not threading.main_thread():
            raise RuntimeError("SQLite objects created in a thread can only be used in that same thread")
        return super().__getitem__(index)


class OtherInThreads(Numbers):
    def __getitem__(self, index):
        is_main = threading.current_thread() is threading.main_thread()
        return torch.full((2,), float(index)), index if is_main else 0


def waiting(dataset=None, **fields):
    """Return the facts about a job whose workers wait."""
    return here(table_job(dataset or Numbers(), **fields), workers_wait=True)


# --- samples in threads --------------------------------------------------------------------------------------


def test_a_batch_has_the_same_samples_in_the_same_order():
    given = table_job(Numbers(), shuffle=False)
    setting = CHANGE.propose(waiting(), {})
    changed = build(given, (setting,))
    one, other = (next(iter(each.make_loader())) for each in (given, changed))
    assert all(map(torch.equal, one, other))
    assert type(given.dataset) is Numbers
    assert len(changed.dataset) == 64
    assert changed.dataset[3][1] == 3


def test_samples_of_a_batch_wait_at_the_same_time():
    barrier = threading.Barrier(8)

    class Meeting(Numbers):
        def __getitem__(self, index):
            barrier.wait(10.0)  # until all eight are here
            return super().__getitem__(index)

    made = InThreads(Meeting(), 8).__getitems__(range(8))
    assert [index for _, index in made] == list(range(8))


def test_threads_belong_to_the_process_that_makes_the_batch(monkeypatch):
    dataset = InThreads(Numbers(), 2)
    dataset.__getitems__([0, 1])
    pool = dataset._pool[1]
    monkeypatch.setattr(batches.os, "getpid", lambda: -1)  # as after a fork
    dataset.__getitems__([0, 1])
    assert dataset._pool[1] is not pool
    assert pickle.loads(pickle.dumps(dataset))._pool is None


@pytest.mark.parametrize("dataset", [Numbers(), Drawing(), Subset(Numbers(), range(20))])
def test_what_waits_for_each_sample_is_tried(dataset):
    assert CHANGE.why_not(waiting(dataset)) is None
    assert default_collate(InThreads(dataset, 4).__getitems__([1, 2, 3]))[1].tolist() == [1, 2, 3]


@pytest.mark.parametrize(
    ("dataset", "said"),
    [
        (Stream(), "is a stream"),
        (InBatches(), "has a __getitems__"),
        (InMemory(Numbers(), whole=True), "come from memory"),
        (Counting(), "keeps state"),
        (Opening(), "threads would share what the dataset holds open: self.held (an open file)"),
        (OfOneThread(), "cannot be made in threads"),
        (OtherInThreads(), "in threads its samples differ"),
    ],
)
def test_what_threads_cannot_share_is_refused(dataset, said):
    assert said in CHANGE.why_not(waiting(dataset))


@pytest.mark.parametrize(
    ("here", "said"),
    [
        (waiting(batch_size=None), "the loader does not choose the batches"),
        (waiting(batch_size=1), "a batch has one sample"),
        (here(table_job(Numbers())), "threads do not compute at the same time"),
    ],
)
def test_where_threads_gain_nothing_they_are_not_tried(here, said):
    assert said in CHANGE.why_not(here)


def test_threads_are_doubled_up_to_the_batch():
    def tried(batch_size, threads=None, judged=()):
        dataset = Numbers() if threads is None else InThreads(Numbers(), threads)
        setting = CHANGE.propose(waiting(dataset, batch_size=batch_size), dict.fromkeys(judged, "dropped"))
        return setting and setting.value

    assert [tried(4), tried(16), tried(128)] == [4, 16, 16]
    assert [tried(128, 16), tried(24, 16), tried(16, 16), tried(512, 64)] == [32, 24, None, None]
    assert tried(128, 16, judged=[32]) is None


# --- copies beside the step ----------------------------------------------------------------------------------


class Streams:
    """Notes the calls of CUDA's streams."""

    def __init__(self):
        self.notes, self.number = [], 0

    def Stream(self, device):
        self.notes.append("stream")
        return SimpleNamespace(record_event=self.record_event)

    def stream(self, stream):
        return contextlib.nullcontext()

    def current_stream(self, device):
        return SimpleNamespace(wait_event=lambda event: self.notes.append(f"wait {event}"))

    def record_event(self):
        self.number += 1
        return self.number


class Used(torch.Tensor):
    used = 0

    def record_stream(self, stream):
        Used.used += 1


def test_each_batch_is_given_once_the_next_one_is_on_its_way(monkeypatch):
    streams = Streams()
    monkeypatch.setattr(torch, "cuda", streams)
    monkeypatch.setattr(batches, "move_to_device", lambda batch, device, non_blocking: [part + 1 for part in batch])
    ahead = AheadOnDevice()
    given = [[torch.tensor([float(number)]).as_subclass(Used)] for number in range(4)]
    got = [float(ahead(batch, CUDA)[0]) for batch in given]
    assert got == [1.0, 1.0, 2.0, 3.0]
    assert streams.notes == ["stream", "wait 1", "wait 1", "wait 2", "wait 3"]
    assert Used.used == 4


@pytest.mark.parametrize(
    ("device", "fields", "said"),
    [
        ("cpu", {}, "not on a CUDA device"),
        (CUDA, {}, "batches are not pinned"),
        (CUDA, {"to_device": lambda batch, device: batch}, "moves its batches itself"),
        (CUDA, {"pin_memory": True}, None),
    ],
)
def test_copies_run_beside_the_step_where_batches_are_pinned(device, fields, said):
    why = BY_NAME["copy_ahead"].why_not(here(table_job(Numbers(), **fields), torch.device(device)))
    assert why is None if said is None else said in why


@pytest.mark.gpu
def test_on_a_device_the_step_gets_the_same_batches():
    given = table_job(Numbers(), shuffle=False, pin_memory=True, device="cuda")
    ahead, device = AheadOnDevice(), torch.device("cuda")
    got = [ahead(batch, device)[1].tolist() for batch in given.make_loader()]
    wanted = [batch[1].tolist() for batch in given.make_loader()]
    assert got == [wanted[0], *wanted[:-1]]


def test_the_advice_writes_the_method():
    from tests.analysis.test_advice import _LOAD, spent

    job = spent(_LOAD, "load", 0.020, 0.001, loader={"fetches_batches": False})["wait-less"]
    assert "def __getitems__(self, indices): return list(pool.map(self.__getitem__, indices))" in job.how
    assert "__getitems__" not in spent(_LOAD, "load", 0.020, 0.001, loader={"fetches_batches": True})["wait-less"].how

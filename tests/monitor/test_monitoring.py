"""A process that is monitored: every loader is seen, and afterwards all is as before."""

import json
import threading
import time

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset, _utils
from torch.utils.data.dataloader import _BaseDataLoaderIter, _DatasetKind
from torchdata.stateful_dataloader import StatefulDataLoader, stateful_dataloader

import bottleneck
from bottleneck.errors import UsageError
from bottleneck.job import marks
from bottleneck.monitor import monitoring as module


def lines_of(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def events_of(path, kind):
    return [line for line in lines_of(path) if line["event"] == kind]


def train(loader, epochs=1, between=lambda model: None):
    model = nn.Linear(1, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    given = []
    for _ in range(epochs):
        for (batch,) in loader:
            given.append(batch)
            model(batch[:, None]).sum().backward()
            optimizer.step()
        between(model)
    return given


def loader_of(count=12, **options):
    return DataLoader(TensorDataset(torch.arange(float(count))), batch_size=2, **options)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "events.jsonl"


PATCHED = (
    (_BaseDataLoaderIter, "__init__"),
    (_BaseDataLoaderIter, "__next__"),
    (DataLoader, "__iter__"),
    (_DatasetKind, "create_fetcher"),
    (_utils.worker, "_worker_loop"),
    (stateful_dataloader, "_worker_loop"),
    (torch, "save"),
)


def test_all_is_as_before_afterwards(path):
    before = [vars(owner)[name] for owner, name in PATCHED]
    threads = threading.active_count()
    with bottleneck.monitoring(path):
        assert [vars(owner)[name] for owner, name in PATCHED] != before
        train(loader_of())
    assert [vars(owner)[name] for owner, name in PATCHED] == before
    assert (threading.active_count(), marks.handler) == (threads, None)


def test_the_loop_gets_its_own_batches(path):
    plain = train(loader_of())
    with bottleneck.monitoring(path):
        watched = train(loader_of())
    assert [batch.tolist() for batch in watched] == [batch.tolist() for batch in plain]


def test_epochs_validations_and_checkpoints_are_told(path, tmp_path):
    validation = loader_of(4)

    def between(model):
        for (batch,) in validation:
            model(batch[:, None])
        torch.save(model.state_dict(), tmp_path / "model.pt")  # this line saves

    with bottleneck.monitoring(path):
        train(loader_of(), 2, between)
    assert [one["epoch"] for one in events_of(path, "epoch")] == [1, 2]
    assert [one["batches"] for one in events_of(path, "validation")] == [2, 2]
    saved = events_of(path, "checkpoint")
    assert [one["path"] for one in saved] == [str(tmp_path / "model.pt")] * 2
    assert saved[0]["file"] == __file__
    with open(__file__) as source:
        assert "this line saves" in source.read().splitlines()[saved[0]["line"] - 1]
    (end,) = events_of(path, "summary")
    assert (end["batches"], end["ended"]) == (12, True)


class Sometimes(TensorDataset):
    def __getitem__(self, index):
        if index == 7:
            time.sleep(0.2)  # this sample is slow
        return super().__getitem__(index)


@pytest.mark.integration
def test_a_slow_sample_of_the_main_process_is_named_with_its_line(path):
    with bottleneck.monitoring(path):
        train(DataLoader(Sometimes(torch.arange(12.0)), batch_size=2))
    (slow,) = events_of(path, "slow_batch")
    assert (slow["step"], slow["stage"], slow["indices"], slow["slowest"]) == (4, "fetch", [6, 7], 7)
    with open(__file__) as source:
        assert "this sample is slow" in source.read().splitlines()[slow["line"] - 1]


class SometimesInWorkers(Dataset):
    def __len__(self):
        return 24

    def __getitem__(self, index):
        if index == 13:
            time.sleep(0.5)  # this sample is slow, too
        return (torch.zeros(()),)


@pytest.mark.integration
@pytest.mark.untimed
@pytest.mark.parametrize("method", ["fork", "spawn"])
@pytest.mark.parametrize("kind", [DataLoader, StatefulDataLoader])
def test_a_slow_sample_of_a_worker_is_named_with_its_line(path, kind, method):
    with bottleneck.monitoring(path):
        train(kind(SometimesInWorkers(), batch_size=2, num_workers=2, multiprocessing_context=method))
    slow = max(events_of(path, "slow_batch"), key=lambda one: one["seconds"])
    assert (slow["step"], slow["stage"], slow["indices"], slow["worker"]) == (7, "fetch", [12, 13], 0)
    assert slow["slowest"] == 13
    with open(__file__) as source:
        assert "this sample is slow, too" in source.read().splitlines()[slow["line"] - 1]
    assert {one["worker"] for one in events_of(path, "memory")} == {None, 0, 1}


class Endless(IterableDataset):
    def __iter__(self):
        while True:
            yield torch.zeros(1)


def test_a_pass_that_is_broken_off_and_iterators_that_are_kept_are_seen(path):
    batches = iter(DataLoader(Endless(), batch_size=2))
    with bottleneck.monitoring(path):
        for _ in range(3):
            next(batches)
        for _ in zip(range(4), loader_of(), strict=False):
            pass
    counts = {one["loader"]: one["batches"] for one in events_of(path, "waits")}
    assert counts == {"0 Endless": 3, "1 TensorDataset": 4}


def test_what_watch_has_wrapped_is_seen(path):
    def get_batch():
        return torch.zeros(2)

    batches = bottleneck.watch(get_batch)
    with bottleneck.monitoring(path):
        for _ in range(5):
            next(batches)
        assert list(bottleneck.watch([1, 2, 3])) == [1, 2, 3]
    counts = {one["loader"]: one["batches"] for one in events_of(path, "waits")}
    assert counts == {"0 get_batch": 5, "1 list": 3}


def test_two_at_once_are_refused(path):
    with bottleneck.monitoring(path):
        with pytest.raises(UsageError, match="already"), bottleneck.monitoring(path.with_name("other.jsonl")):
            pass
        train(loader_of())
    assert events_of(path, "waits")


def test_what_the_body_raises_is_raised_and_the_file_is_complete(path):
    with pytest.raises(ZeroDivisionError), bottleneck.monitoring(path):
        train(loader_of())
        raise ZeroDivisionError
    assert events_of(path, "summary")[-1]["ended"]


def test_a_fault_of_ours_ends_the_watching_and_not_the_loop(path, monkeypatch, capsys):
    def fails(*_):
        raise RuntimeError("a fault")

    monkeypatch.setattr(module.Recorder, "gave", fails)
    with bottleneck.monitoring(path):
        assert len(train(loader_of())) == 6
        assert vars(_BaseDataLoaderIter)["__next__"].__module__ != module.__name__
    assert capsys.readouterr().err.count("The job continues.") == 1


def test_a_full_disk_ends_the_writing_and_not_the_loop(path, capsys):
    with bottleneck.monitoring("/dev/full"):
        assert len(train(loader_of())) == 6
    assert "no space left on device. The job continues." in capsys.readouterr().err


@pytest.mark.parametrize("environment", [{"WORLD_SIZE": "2", "RANK": "1"}, {}])
def test_each_rank_has_a_file(path, monkeypatch, environment):
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    with bottleneck.monitoring(path) as events:
        train(loader_of())
    assert events.path.name == ("events.rank1.jsonl" if environment else "events.jsonl")
    assert {line["rank"] for line in lines_of(events.path)} == {1 if environment else 0}


def test_the_report_says_what_there_is(path):
    with bottleneck.monitoring(path) as events:
        train(loader_of(200), 2)
        assert "batch" in events.report()  # also while it runs
    text = events.report()
    assert "Watched, not tried: over 200 batches" in text
    assert "0 TensorDataset" in text
    assert json.loads(events.report("json"))["loaders"][0]["batches"] == 200
    assert events.report("html").startswith("<!")

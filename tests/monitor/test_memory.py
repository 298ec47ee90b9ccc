"""Looks at the memory of the processes of a job: their size, and what grows in them."""

import copy
import functools
import json

import numpy
import pytest
import torch
from torch.utils.data import DataLoader, Dataset

import bottleneck
from bottleneck.monitor import memory
from bottleneck.monitor.channel import Channel
from bottleneck.monitor.memory import LOOK_EVERY_S, MemoryLook, MemoryWatch

SEEN = set()


@functools.lru_cache
def decoded(index):
    return index


class Caching(Dataset):
    """A dataset that keeps its samples: in itself, in its module, and in a function's cache."""

    def __init__(self):
        self.inner = {"kept": []}
        self.names = ["a", "b"]

    def __len__(self):
        return 400

    def __getitem__(self, index):
        self.inner["kept"].append(index)
        SEEN.add(index)
        return torch.tensor(float(decoded(index)))


class Page:
    def __init__(self):
        self.text = "x" * 10_000


@pytest.fixture(autouse=True)
def _empty():
    SEEN.clear()
    decoded.cache_clear()


def watch_at(now_s, worker=None):
    return MemoryWatch(worker, clock=lambda: now_s[0], now=lambda: 1e9 + now_s[0])


def test_a_process_is_looked_at_once_a_minute():
    now_s = [5.0]
    watch = watch_at(now_s, worker=3)
    first = watch.look(None)
    assert (first.at, first.worker, first.grown) == (1e9 + 5.0, 3, {})
    assert 0 < first.private_bytes <= first.resident_bytes
    now_s[0] += LOOK_EVERY_S - 1
    assert watch.look(None) is None
    now_s[0] += 1
    assert watch.look(None) is not None


def test_containers_that_grow_are_named_with_their_entries():
    now_s = [0.0]
    watch, dataset = watch_at(now_s), Caching()
    assert watch.look(dataset).grown == {}
    for index in range(4):
        dataset[index]
        dataset[index]
    now_s[0] += LOOK_EVERY_S
    look = watch.look(dataset)
    assert look.grown == {
        "dataset.inner['kept']": 8,
        f"{__name__}.SEEN": 4,
        f"the cache of {__name__}.decoded": 4,
    }
    assert look.grown_bytes.keys() == {"dataset.inner['kept']", f"{__name__}.SEEN"}


@pytest.mark.parametrize(
    "entry", [bytes(10_000), torch.zeros(2500), numpy.zeros(2500, "f4"), {"image": torch.zeros(2500)}, Page()]
)
def test_the_memory_of_a_container_is_estimated_by_its_entries(entry):
    now_s, dataset = [0.0], Caching()
    watch = watch_at(now_s)
    watch.look(dataset)
    dataset.inner["kept"] += [copy.deepcopy(entry) for _ in range(1000)]
    now_s[0] += LOOK_EVERY_S
    assert watch.look(dataset).grown_bytes["dataset.inner['kept']"] == pytest.approx(10_000_000, rel=0.1)


def test_each_dataset_is_compared_with_itself():
    now_s, training, validation = [0.0], Caching(), Caching()
    watch = watch_at(now_s)
    training.names = ["a"] * 1000
    assert watch.look(validation).grown == {}
    now_s[0] += LOOK_EVERY_S
    assert watch.look(training).grown == {}


def test_only_the_new_entries_of_a_container_count():
    now_s, dataset = [0.0], Caching()
    dataset.names = [str(number) * 100 for number in range(1000)]
    watch = watch_at(now_s)
    watch.look(dataset)
    dataset.names.append("x")
    now_s[0] += LOOK_EVERY_S
    assert watch.look(dataset).grown_bytes["dataset.names"] < 1000


def test_a_system_that_does_not_tell_is_not_looked_at(monkeypatch):
    monkeypatch.setattr("psutil.Process.memory_full_info", lambda _: object())
    assert watch_at([0.0]).look(None) is None


class Unreadable(Dataset):
    @property
    def __dict__(self):
        raise RuntimeError("of the user's")


@pytest.mark.parametrize("dataset", [Unreadable(), [1, 2], None, 7], ids=["unreadable", "list", "none", "number"])
def test_any_object_may_be_the_dataset(dataset):
    assert watch_at([0.0]).look(dataset).grown == {}


def test_a_look_arrives_between_batches():
    channel = Channel()
    try:
        look = MemoryLook(1.0, 7, 2, 10, 20, 30, {"dataset.kept": 4}, {"dataset.kept": 400})
        channel.sender.send_memory(look)
        channel.drain()
        assert list(channel.looks()) == [look]
        assert list(channel.looks()) == []
    finally:
        channel.close()


@pytest.mark.integration
@pytest.mark.untimed
@pytest.mark.parametrize("workers", [0, 2])
def test_the_memory_of_all_processes_is_told(tmp_path, monkeypatch, workers):
    monkeypatch.setattr(memory, "LOOK_EVERY_S", 0.0)
    monkeypatch.setattr("bottleneck.monitor.monitoring.FLUSH_EVERY_S", 0.0)
    path = tmp_path / "events.jsonl"
    with bottleneck.monitoring(path):
        for _ in DataLoader(Caching(), batch_size=4, num_workers=workers):
            pass
    looks = [one for one in map(json.loads, path.read_text().splitlines()) if one["event"] == "memory"]
    assert {one["worker"] for one in looks} == {None, *range(workers)}
    assert len({one["pid"] for one in looks}) == workers + 1
    assert all(one["private_bytes"] > 0 for one in looks)
    assert all((one["available_bytes"] is None) == (one["worker"] is not None) for one in looks)
    assert not workers or any("dataset.inner['kept']" in one["grown"] for one in looks)

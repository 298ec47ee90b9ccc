"""The making of a batch: stages, the slowest sample, the line, and the way to the main process."""

import os
import weakref
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.utils.data import IterableDataset, Subset, TensorDataset
from torch.utils.data.dataloader import _DatasetKind

import bottleneck
from bottleneck.job import marks
from bottleneck.monitor.channel import MAX_MESSAGE, Channel
from bottleneck.monitor.making import LOOK_EVERY_S, MAX_INDICES, BatchClock, Made, timed_fetchers
from tests.support.clock import FakeClock

TIME = FakeClock()


@bottleneck.stage("decode")
def decode(seconds):
    TIME.advance(seconds)


class Photos:
    """Takes a second for sample 7, and marks a part of it."""

    def __len__(self):
        return 100

    def __getitem__(self, index):
        TIME.advance(0.1)
        decode(1.0 if index == 7 else 0.2)
        return torch.tensor(index)


def collate(samples):
    TIME.advance(0.5)
    return torch.stack(samples)


class Maker:
    def __init__(self):
        self.clock = BatchClock(3, clock=TIME)

    def fetcher(self, dataset, collate=collate, kind=_DatasetKind.Map):
        return timed_fetchers(self.clock)(kind, dataset, True, collate, False)

    @property
    def last(self):
        return self.clock.made(self.clock.last)


@pytest.fixture
def maker():
    return Maker()


def test_time_is_charged_to_marks_collation_and_the_rest(maker):
    batch = maker.fetcher(Photos()).fetch([1, 7, 2])
    assert batch.tolist() == [1, 7, 2]
    made = maker.last
    assert (made.worker, made.pid, made.indices) == (3, os.getpid(), [1, 7, 2])
    assert {name: pytest.approx(seconds) for name, seconds in made.stages.items()} == {
        "other": 0.3, "decode": 1.4, "collate": 0.5,
    }  # fmt: skip
    assert made.ended_s - made.began_s == pytest.approx(2.2)


def test_without_marks_all_but_the_collation_is_fetching(maker):
    maker.fetcher(TensorDataset(torch.zeros(4)), lambda samples: TIME.advance(0.5)).fetch([0])
    assert maker.last.stages.keys() == {"fetch", "collate"}


def test_marks_are_as_before_when_the_batch_is_made(maker):
    maker.fetcher(Photos()).fetch([1])
    assert marks.handler is None


def test_what_the_users_code_raises_is_raised_and_the_next_batch_is_timed(maker):
    fetcher = maker.fetcher(TensorDataset(torch.zeros(4)), list)
    with pytest.raises(IndexError):
        fetcher.fetch([9])
    fetcher.fetch([1, 2])
    assert maker.last.indices == [1, 2]


def test_the_dataset_of_a_fetcher_is_still_what_it_was(maker):
    dataset = Subset(TensorDataset(torch.arange(4)), [3, 2])
    fetcher = maker.fetcher(dataset, list)
    assert fetcher.dataset.indices == [3, 2]
    assert [int(value) for (value,) in fetcher.fetch([1, 0])] == [2, 3]  # by its __getitems__


class Stream(IterableDataset):
    def __iter__(self):
        return iter([1, 2, 3])


def test_a_stream_has_no_indices(maker):
    fetcher = maker.fetcher(Stream(), list, _DatasetKind.Iterable)
    assert fetcher.fetch([None, None]) == [1, 2]
    assert maker.last.indices is None


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        ((3, 4), [3, 4]),
        (["photo.jpg"], ["photo.jpg"]),
        (8, [8]),
        (list(range(5_000)), list(range(MAX_INDICES))),
    ],
)
def test_indices_of_any_kind_are_told_as_plain_values(maker, asked, told):
    maker.clock.make(lambda request: request, asked)
    assert maker.last.indices == told


class Looked(Photos):
    """Is looked at, from another thread, as often as a sample takes tenths of a second."""

    def __init__(self, clock):
        self.looker = ThreadPoolExecutor(1)
        self.clock = clock

    def __getitem__(self, index):
        for _ in range(10 if index == 7 else 2):
            self.looker.submit(self.clock.look).result()
        return torch.tensor(index)


def test_the_sample_that_is_seen_most_often_is_the_slowest(maker):
    dataset = Looked(maker.clock)
    batch = maker.fetcher(dataset).fetch([1, 2, 7, 3])
    dataset.looker.shutdown()
    assert batch.tolist() == [1, 2, 7, 3]
    assert (maker.last.slowest, maker.last.slowest_s) == (7, pytest.approx(10 * LOOK_EVERY_S))
    maker.fetcher(Photos()).fetch([1, 2])
    assert maker.last.slowest is None  # of a batch that was not sampled


def test_the_line_at_work_is_seen_from_another_thread(maker):
    def fetch(request):
        with ThreadPoolExecutor(1) as looker:
            looker.submit(maker.clock.look).result()  # this line is at work

    maker.clock.make(fetch, [1])
    file, line, function, _ = maker.last.line
    assert (file, function) == (__file__, "fetch")
    assert "this line is at work" in Path(__file__).read_text().splitlines()[line - 1]


def test_a_look_tells_for_how_long_the_batch_is_made(maker):
    def fetch(_):
        TIME.advance(0.3)
        return maker.clock.look()

    assert maker.clock.look() == 0.0
    assert maker.clock.make(fetch, [1]) == pytest.approx(0.3)
    assert maker.clock.look() == 0.0


def test_a_fetcher_keeps_no_dataset_alive(maker):
    dataset = Photos()
    fetcher, reference = maker.fetcher(dataset), weakref.ref(dataset)
    fetcher.fetch([1])
    del fetcher, dataset
    assert reference() is None


# --- the pipe ----------------------------------------------------------------------------------------------


@pytest.fixture
def channel():
    made = Channel()
    yield made
    made.close()


def made_of(number=0, pid=7, ended_s=1.0, indices=(1, 2)):
    line = ("/job/train.py", 3, "load", None)
    return Made(pid, 0, 0.0, ended_s, {"fetch": 1.0}, 1, 0.9, line, list(indices))


def test_a_batch_is_found_by_its_number_and_one_of_its_workers(channel):
    for pid in (7, 8):
        for number in range(3):
            channel.sender(made_of(number, pid, indices=[pid, number]), number)
    channel.drain()
    assert channel.find([8, 9], 2, until_s=5.0).indices == [8, 2]
    assert channel.find([9], 2, until_s=5.0) is None
    assert channel.find([7], 2, until_s=0.5) is None  # it was not there yet: that of an earlier pass is meant
    assert channel.find([7, 8], None, until_s=5.0) is not None


def test_nobody_waits_where_nobody_reads(channel):
    for number in range(20_000):
        channel.sender(made_of(), number)
    channel.drain()
    assert channel.find([7], 19_999, until_s=5.0) is None  # it is lost, and the worker went on
    channel.sender(made_of(), 20_000)
    channel.drain()
    assert channel.find([7], 20_000, until_s=5.0) is not None


class Odd:
    def __int__(self):
        raise TypeError

    def __str__(self):
        return "odd"


@pytest.mark.parametrize(
    ("asked", "told"),
    [([np.int64(3), torch.tensor(4)], [3, 4]), ([("a", 1)], [("a", 1)]), ([Odd()], ["odd"]), (["a.jpg"], ["a.jpg"])],
)
def test_indices_of_any_kind_arrive_as_plain_values(channel, asked, told):
    channel.sender(made_of(indices=asked), 1)
    channel.drain()
    assert channel.find([7], 1, until_s=5.0).indices == told


def test_many_indices_or_long_names_never_make_a_message_that_others_could_cut(channel):
    written = []
    original, os.write = os.write, lambda descriptor, content: written.append(content) or len(content)
    try:
        channel.sender(made_of(indices=[2**40] * MAX_INDICES), 0)
        channel.sender(made_of(indices=["x" * 40] * MAX_INDICES)._replace(line=("f" * 9_000, 1, "f", None)), 1)
    finally:
        os.write = original
    assert [len(content) <= MAX_MESSAGE for content in written] == [True]


def test_old_batches_are_forgotten(channel):
    for number in range(10_000):
        channel.sender(made_of(), number)
        if number % 500 == 0:
            channel.drain()
    channel.drain()
    assert channel.find([7], 0, until_s=5.0) is None
    assert channel.find([7], 9_999, until_s=5.0) is not None

"""Comparison of the workers of a stream: their first samples, their shares, and the shards."""

import itertools
import sys

import pytest
import torch
from torch.utils.data import IterableDataset

from bottleneck.loader.streams import FIRST, counted, find_repeating, shards_of
from bottleneck.measure.evidence.dataset import describe_workers
from bottleneck.measure.evidence.stages import observe
from tests.loader.staged_datasets import Stream, plain, switched


class Repeated(IterableDataset):
    """Gives every worker the same."""

    def __iter__(self):
        return (torch.full((4,), number) for number in itertools.count())


def decoded(records):
    return (torch.full((4,), number) for number in records)


class Skipping(IterableDataset):
    """Each of two workers makes what both give."""

    def __iter__(self):
        return itertools.islice(decoded(range(1000)), torch.utils.data.get_worker_info().id, None, 2)


class Constant(Repeated):
    def __iter__(self):
        return itertools.repeat(torch.zeros(4))


@pytest.mark.parametrize(
    ("stream", "workers", "expected"),
    [
        (Stream(), 2, (0, 0)),
        (Stream(share_for=1), 2, (1, 0)),
        (Stream(share_for=1), 3, (2, 0)),
        (Repeated(), 2, (0, 2)),
        (Constant(), 2, (0, 0)),
        (Skipping(), 2, (0, 0)),
    ],
)
def test_workers_without_a_share_and_those_that_repeat_one_are_seen(stream, workers, expected):
    with switched(plain(stream, num_workers=workers)) as running:
        observe(running, 0.05, itertools.count(0.0, 0.02).__next__)
        found = describe_workers(stream, running)
        list(itertools.islice(iter(running.next_batch, None), 4 * FIRST))  # past those that are noted

    assert (found["idle_workers"] or 0, found["repeating_workers"] or 0) == expected
    assert found["made_per_sample"] == (2 if isinstance(stream, Skipping) else None)
    shares = found["batches_of_workers"]
    assert sum(shares) == pytest.approx(1)
    assert sum(share == 0 for share in shares) == expected[0]


@pytest.mark.parametrize(
    ("first", "workers"),
    [
        ([(1, 2, 3, 4, 5), (1, 2, 3, 4), (9, 8, 7, 6)], 2),
        ([(1, 2, 3), (1, 2, 3)], 0),
        ([(1, 2, 3, 4)], 0),
        ([(1, 1, 1, 1), (1, 1, 1, 1)], 0),
        ([], 0),
    ],
)
def test_streams_are_the_same_where_several_different_samples_are(first, workers):
    assert find_repeating(first) == workers


def every_third(given):
    return (one for number, one in enumerate(given) if number % 3 == 1)


@pytest.mark.parametrize(
    ("stream", "made"),
    [
        (itertools.islice(decoded(range(1000)), 0, None, 3), 3),
        (every_third(decoded(range(1000))), 3),
        (decoded(every_third(range(1000))), 1),
        (((one, next(given)) for given in [decoded(range(1000))] for one in given), 1),  # pairs
        (decoded(range(5)), 1),  # which ends
    ],
)
def test_samples_that_are_made_and_not_given_are_counted(stream, made):
    seen = list(itertools.islice(counted(stream), FIRST))
    assert {count for count, _ in seen[1:]} == {made}
    assert sys.getprofile() is None


def test_shards_are_those_that_a_library_names():
    streams = type("IterableDataset", (), {"__module__": "datasets.iterable_dataset", "num_shards": 3})
    assert shards_of(streams()) == 3
    assert shards_of(Stream()) is None

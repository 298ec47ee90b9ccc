"""Datasets that cannot be loaded from: refused, or told once with the index."""

import re
import sys

import pytest
import torch

import bottleneck
from bottleneck.cli.main import run
from bottleneck.errors import ExitStatus, MeasurementError
from tests.kinds.slow_parts import BUDGETS_S, Locked, Map, Stream, job_of

pytestmark = pytest.mark.integration


class Breaks(Map):
    """Every fiftieth item is broken: not every item that is asked for is also loaded."""

    def __init__(self, error=ValueError):
        super().__init__()
        self.error = error

    def load(self, index):
        if index % 50 == 49:
            raise self.error(f"truncated file {index}")
        return super().load(index)


class TooLong(Map):
    """Says that it has more samples than there are."""

    def load(self, index):
        return ([torch.zeros(8)] * 10)[index]


class OnceOnly(Stream):
    """A stream that goes on where it was, instead of beginning anew."""

    def __init__(self):
        super().__init__()
        self.left = iter(range(30))

    def numbers(self):
        return self.left


class BreakingStream(Stream):
    def load(self, index):
        if index == 7:
            raise ValueError("truncated")
        return super().load(index)


def failure_of(dataset, **options):
    with pytest.raises(MeasurementError) as caught:
        bottleneck.diagnose(job_of(dataset, **options), budget=BUDGETS_S[0])
    assert caught.value.exit_status == ExitStatus.COULD_NOT_MEASURE
    return caught.value


def told_index(failure):
    return int(re.search(r"raised at index (\d+) in", str(failure))[1])


@pytest.mark.parametrize("num_workers", [0, 2])
@pytest.mark.parametrize("error", [ValueError, StopIteration, KeyError])
def test_an_item_that_raises_is_told_once_with_its_index(error, num_workers):
    failure = failure_of(Breaks(error), num_workers=num_workers)
    assert told_index(failure) % 50 == 49
    assert str(failure).count(f"truncated file {told_index(failure)}") == 1
    assert failure.details.count(f"truncated file {told_index(failure)}") == 1


def test_an_index_that_is_a_tensor_is_told_as_a_number():
    failure = failure_of(Breaks(), sampler=[torch.tensor(number) for number in range(1000)])
    assert told_index(failure) % 50 == 49


def test_a_length_that_promises_too_much():
    failure = failure_of(TooLong(length=20))
    assert "at index 10" in str(failure)
    assert "IndexError" in str(failure)


def test_a_stream_that_raises():
    failure = failure_of(BreakingStream())
    assert "truncated" in str(failure)


@pytest.mark.parametrize("num_workers", [0, 1])
def test_a_stream_that_can_be_gone_through_only_once(num_workers):
    assert "only once" in str(failure_of(OnceOnly(), num_workers=num_workers))


def give_nothing(samples):
    return None


def test_a_collate_function_that_gives_nothing():
    assert "each batch was None" in str(failure_of(Map(), collate_fn=give_nothing))


def test_a_dataset_that_cannot_be_pickled_in_workers_that_do_not_fork():
    failure = failure_of(Locked(None), multiprocessing_context="spawn")
    assert "cannot pickle '_thread.lock' object" in str(failure)


def test_the_exit_status_is_three(tmp_path, capfd, monkeypatch):
    monkeypatch.setattr(sys, "path", list(sys.path))
    path = tmp_path / "broken_job.py"
    path.write_text(BROKEN_JOB)
    assert run(["diagnose", f"{path}:build", "--quick"]) == ExitStatus.COULD_NOT_MEASURE
    assert capfd.readouterr().err.count("at index 7") == 1


BROKEN_JOB = """
class Broken(list):
    def __getitem__(self, index):
        if index == 7:
            raise ValueError("truncated")
        return float(index)

def build():
    return {"dataset": Broken(range(100)), "train_step": lambda batch: None, "device": "cpu", "batch_size": 2}
"""

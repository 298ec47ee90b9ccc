"""Datasets that cannot be loaded from: refused, or told once with the index."""

import pytest
import torch
from slow_parts import Map, Stream, diagnose

from bottleneck.errors import ExitStatus, MeasurementError, PipelineError

pytestmark = pytest.mark.integration


class Breaks(Map):
    def __init__(self, error, at=7):
        super().__init__()
        self.error, self.at = error, at

    def load(self, index):
        if index == self.at:
            raise self.error
        return super().load(index)


class TooLong(Map):
    """Says that it has more samples than there are."""

    def load(self, index):
        return [torch.zeros(8)] * 10 + [] if index < 10 else [][index]


class BreakingStream(Stream):
    def load(self, index):
        if index == 7:
            raise ValueError("truncated")
        return super().load(index)


def failure_of(dataset, **options):
    with pytest.raises(MeasurementError) as caught:
        diagnose(dataset, **options)
    assert caught.value.exit_status == ExitStatus.COULD_NOT_MEASURE
    return caught.value


@pytest.mark.parametrize("num_workers", [0, 2])
@pytest.mark.parametrize("error", [ValueError("truncated"), StopIteration("truncated"), KeyError("truncated")], ids=repr)
def test_an_item_that_raises_is_told_once_with_its_index(error, num_workers):
    failure = failure_of(Breaks(error), num_workers=num_workers)
    assert str(failure).count("at index 7") == 1
    assert str(failure).count("truncated") == 1
    assert failure.details.count("truncated") == 1


def test_a_length_that_promises_too_much():
    failure = failure_of(TooLong(length=20))
    assert "at index 10" in str(failure)
    assert "IndexError" in str(failure)


def test_a_stream_that_raises():
    failure = failure_of(BreakingStream())
    assert "truncated" in str(failure)

"""How quickly batches in which there is nothing arrive."""

import pytest

from bottleneck.loader import modes
from bottleneck.measure.bench import receiving_s_per_batch


class Loader:
    """Takes a millisecond of an invented clock for a batch; its first ones come late."""

    num_workers, queue_length, can_skip_batches = 2, 4, True

    def __init__(self):
        self.now_s, self.mode, self.taken = 0.0, None, 0

    def switch(self, mode):
        self.mode = mode

    def next_batch(self):
        assert self.mode == modes.STOP
        self.taken += 1
        self.now_s += 1e-3 if self.taken > self.queue_length else 0.5

    def rest(self):
        self.mode = "resting"


def test_batches_of_nothing_are_timed_once_the_queue_is_theirs():
    loader = Loader()
    assert receiving_s_per_batch(loader, lambda: loader.now_s) == pytest.approx(1e-3)
    assert loader.mode == "resting"
    assert loader.taken > 100


def test_a_long_queue_is_gone_through_some_times():
    loader = Loader()
    loader.queue_length = 128
    receiving_s_per_batch(loader, lambda: loader.now_s)
    assert loader.taken >= 5 * 128


@pytest.mark.parametrize("lacking", [{"num_workers": 0}, {"can_skip_batches": False}])
def test_where_nothing_can_be_left_out_of_a_batch_there_is_nothing_to_time(lacking):
    loader = Loader()
    vars(loader).update(lacking)
    assert receiving_s_per_batch(loader, lambda: loader.now_s) is None

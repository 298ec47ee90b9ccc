import multiprocessing
import pickle
import threading

import numpy as np
import pytest
import torch
from torch.utils.data import TensorDataset

from bottleneck.measure.facts.pickling import pickle_size
from tests.support.clock import FakeClock


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
    assert size.failure == ""
    assert size.stream_bytes == pytest.approx(len(pickle.dumps(dataset)), rel=0.01)
    assert size.shared_bytes == 0


def test_tensors_stay_where_they_are_and_count_as_shared():
    tensor = torch.zeros(1000, 100)
    size = pickle_size(Numbers([tensor, tensor[:10], torch.nn.Parameter(torch.zeros(10))]))
    assert not tensor.is_shared()
    assert size.complete
    assert size.shared_bytes == 400_000 + 40
    assert size.stream_bytes < 2000


def test_a_tensor_dataset_is_left_as_it_was():
    dataset = TensorDataset(torch.zeros(10, 3), torch.zeros(10))
    assert pickle_size(dataset).shared_bytes == 160
    assert not any(tensor.is_shared() for tensor in dataset.tensors)


def test_sparse_tensors_do_not_disturb():
    assert pickle_size(torch.eye(3).to_sparse()).complete


def test_it_ends_at_the_limit_of_bytes():
    size = pickle_size(Numbers(list(range(1_000_000))), limit_bytes=300_000)
    assert not size.complete
    assert size.failure == ""
    assert 300_000 < size.stream_bytes < 600_000


def test_an_array_over_the_limit_is_not_copied_first():
    array = np.broadcast_to(np.zeros(1), (1 << 40,))  # 8 TiB, if it were written out
    size = pickle_size(Numbers([array]), limit_bytes=1 << 20)
    assert not size.complete
    assert size.failure == ""


def test_it_ends_at_the_limit_of_time():
    size = pickle_size(
        Numbers([Numbers(None) for _ in range(1000)]), limit_s=10.0, read_clock_s=FakeClock(per_reading_s=1.0)
    )
    assert not size.complete
    assert size.failure == ""
    assert 10.0 < size.duration_s < 20.0


@pytest.mark.parametrize(
    ("value", "words"),
    [(lambda: None, "lambda"), (threading.Lock(), "lock"), (Refusing(), "RuntimeError: not me, please")],
)
def test_what_cannot_be_pickled_says_why(value, words):
    size = pickle_size(Numbers(value))
    assert not size.complete
    assert words in size.failure
    assert "\n" not in size.failure


def test_locks_for_processes_can_be_sent_while_one_is_started():
    lock = multiprocessing.get_context("spawn").Lock()
    assert pickle_size(Numbers(lock)).complete
    with pytest.raises(RuntimeError, match="inheritance"):
        pickle.dumps(lock)


def test_afterwards_locks_refuse_again_to_be_pickled():
    pickle_size(Refusing())
    assert multiprocessing.context.get_spawning_popen() is None

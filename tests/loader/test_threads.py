"""One thread for the libraries of a worker, and what they had before."""

import sys
from types import ModuleType, SimpleNamespace

import pytest
import torch
from torch.utils.data import Dataset

from bottleneck.loader import modes
from bottleneck.loader.threads import OneThread, library_threads
from tests.loader.staged_datasets import column, plain, switched, take

ONE = modes.ALL | modes.ONE_THREAD


class Library:
    """Stands for OpenCV and for threadpoolctl, imported by the user's code."""

    def __init__(self, threads):
        self.threads = threads

    def getNumThreads(self):
        return self.threads or 1

    def setNumThreads(self, threads):
        self.threads = threads

    def threadpool_info(self):
        return [{"num_threads": self.threads}]

    def threadpool_limits(self, threads):
        before, self.threads = self.threads, threads
        return SimpleNamespace(restore_original_limits=lambda: setattr(self, "threads", before))


@pytest.mark.parametrize("name", ["cv2", "threadpoolctl"])
def test_a_library_that_is_imported_gets_one_thread_and_has_its_own_again(monkeypatch, name):
    monkeypatch.setitem(sys.modules, name, library := Library(16))
    torch_threads = torch.get_num_threads()
    assert library_threads() == 16
    one = OneThread()
    one.begin()
    assert (library.getNumThreads(), torch.get_num_threads()) == (1, 1)
    one.end()
    one.end()
    assert (library.threads, torch.get_num_threads()) == (16, torch_threads)


def test_no_library_is_imported_for_it_or_asked_in_the_middle_of_its_import(monkeypatch):
    monkeypatch.setitem(sys.modules, "cv2", ModuleType("cv2"))
    monkeypatch.delitem(sys.modules, "threadpoolctl", raising=False)
    one = OneThread()
    one.begin()
    one.end()
    assert library_threads() == torch.get_num_threads()
    assert "threadpoolctl" not in sys.modules


class Threads(Dataset):
    def __len__(self):
        return 1000

    def __getitem__(self, index):
        return torch.tensor([torch.get_num_threads()])


def three_threads(worker):
    torch.set_num_threads(3)


def test_workers_compute_with_one_thread_in_that_mode_alone():
    with switched(plain(Threads(), worker_init_fn=three_threads)) as running:
        found = [column(take(running, mode, 4), 0) for mode in ("raw", ONE, "raw", ONE, "raw")]
    assert found == [{3}, {1}, {3}, {1}, {3}]


def test_no_two_modes_share_a_bit():
    # Guards: a mode that another one's work was done in gave batches of None, in a trial that hides its failures.
    numbers = {name: value for name, value in vars(modes).items() if name.isupper() and isinstance(value, int)}
    bits = [value for name, value in numbers.items() if value.bit_count() == 1 and name != "FIRST_MARK"]
    assert len(bits) == len(set(bits)) > 10

"""The edge between two epochs is measured where it matters: the first start finds everything cold, and ends nothing."""

import time
from multiprocessing.util import Finalize

import pytest
import torch
from torch.utils.data import DataLoader, Dataset

from bottleneck.loader import modes
from bottleneck.loader.switched import SwitchedLoader
from bottleneck.measure.evidence.later_starts import later_start_matters, later_starts_s
from bottleneck.results.evidence import EpochGap

GAP = {"seconds": 0.4, "started_anew": True, "batches": 100.0}


@pytest.mark.parametrize(
    ("gap", "step_s", "matters"),
    [
        (GAP, 0.02, True),
        (GAP, 20.0, False),  # an epoch of half an hour
        (GAP, None, False),
        (None, 0.02, False),
        ({**GAP, "started_anew": None}, 0.02, False),
        ({**GAP, "batches": None}, 0.02, False),
        ({**GAP, "seconds": 10.0}, 0.02, False),  # there is no time to do that again
    ],
)
def test_workers_start_again_where_the_epochs_lose_time_by_it(gap, step_s, matters):
    assert later_start_matters(EpochGap(**(gap or {})), step_s, 45.0) is matters


class ColdAtFirst(Dataset):
    """A worker takes long for its first sample, unless somebody was there before."""

    def __init__(self, folder):
        self.folder = folder

    def __len__(self):
        return 1000

    def __getitem__(self, index):
        warm = self.folder / "warm"
        if not warm.exists():
            time.sleep(1.0)
            warm.touch()
        (self.folder / f"sample-{index}").touch(exist_ok=False)
        return torch.zeros(2)


def started(loader):
    switched = SwitchedLoader(loader, (), 0, 60.0)
    begun = time.perf_counter()
    switched.start()
    switched.next_batch()
    return switched, time.perf_counter() - begun


@pytest.mark.integration
def test_a_later_start_is_quicker_than_the_first_one_where_that_was_cold(tmp_path):
    loader = DataLoader(ColdAtFirst(tmp_path), batch_size=2, num_workers=2)
    switched, first_s = started(loader)
    try:
        later_s = later_starts_s(switched, loader, time.perf_counter)
        assert len(later_s) == 2
        assert max(later_s) < first_s / 2
        # The workers go on, and no sample is asked for twice: the file of each is new.
        switched.switch(modes.ALL)
        assert switched.next_batch()[1] == 2
    finally:
        switched.close()


def end_slowly(_):
    Finalize(None, time.sleep, args=(0.4,), exitpriority=0)


@pytest.mark.integration
def test_the_end_of_the_workers_is_part_of_the_gap(tmp_path):
    loader = DataLoader(ColdAtFirst(tmp_path), batch_size=2, num_workers=2, worker_init_fn=end_slowly)
    switched, _ = started(loader)
    try:
        assert min(later_starts_s(switched, loader, time.perf_counter)) >= 0.4
    finally:
        switched.close()


@pytest.mark.integration
def test_a_start_that_fails_leaves_the_first_one(tmp_path):
    loader = DataLoader(ColdAtFirst(tmp_path), batch_size=2, num_workers=1)
    switched, _ = started(loader)
    try:
        loader.worker_init_fn = lambda number: 1 / 0
        assert later_starts_s(switched, loader, time.perf_counter) == []
        switched.switch(modes.ALL)
        switched.next_batch()
    finally:
        switched.close()

"""The waits of the job: percentiles, stalls and their period, and the gap between two epochs."""

import random
import time
from multiprocessing.util import Finalize
from types import SimpleNamespace

import pytest
import torch
from torch.utils.data import DataLoader, Dataset

from bottleneck.loader import modes
from bottleneck.loader.switched import SwitchedLoader
from bottleneck.measure.evidence.waits import (
    batches_of_epoch,
    describe_epoch_gap,
    find_period,
    find_stalls,
    later_start_matters,
    later_starts_s,
    summarise_waits,
    with_later_orders,
)
from bottleneck.results.evidence import EpochGap
from tests.support.as_json import in_json, said

# --- waits and stalls ----------------------------------------------------------------------------------------


find_stalls = in_json(find_stalls)
summarise_waits = in_json(summarise_waits)


def test_percentiles_of_the_wait():
    waits = summarise_waits([n / 100 for n in range(101)])
    assert waits == {
        "p50": 0.5, "p95": 0.95, "p99": pytest.approx(0.99), "max": 1.0, "count": 101, "mean": pytest.approx(0.5),
    }  # fmt: skip
    assert summarise_waits([0.25]) == {"p50": 0.25, "p95": 0.25, "p99": 0.25, "max": 0.25, "count": 1, "mean": 0.25}


def blocks_of(wait_of, blocks=8, batches=20):
    return [[wait_of(block, batch) for batch in range(batches)] for block in range(blocks)]


def test_a_long_wait_every_fifth_batch_is_a_stall_with_that_period():
    noise = random.Random(1)
    blocks = blocks_of(lambda block, batch: 0.1 if batch % 5 == block % 5 else 0.002 + 0.001 * noise.random())
    stalls = find_stalls(blocks, seconds=8 * 20 * 0.03, workers=1)
    assert stalls["count"] == 32
    assert stalls["period_batches"] == 5
    assert stalls["period_s"] == pytest.approx(5 * 0.03)
    assert stalls["lost_share"] == pytest.approx(32 * 0.0975 / 4.8, rel=0.02)
    assert 0.003 < stalls["threshold_s"] < 0.1


def test_bursts_of_the_workers_are_no_stalls():
    # Guards: with four workers that are the slower part, one batch in four is waited for, and the others come at once.
    noise = random.Random(2)
    blocks = blocks_of(lambda block, batch: 0.080 + 0.004 * noise.random() if batch % 4 == 0 else 0.0001)
    assert find_stalls(blocks, seconds=8 * 20 * 0.02, workers=4)["count"] == 0
    assert find_stalls(blocks, seconds=8 * 20 * 0.02, workers=1)["count"] == 40


def test_stalls_by_chance_have_no_period():
    found = 0
    for seed in range(200):
        noise = random.Random(seed)
        positions = [[n for n in range(20) if noise.random() < 0.15] for _ in range(12)]
        found += find_period(positions, batches=240) is not None
    assert found <= 4  # a hundredth is allowed


def test_stalls_of_less_than_a_part_of_the_step_are_not_told():
    blocks = blocks_of(lambda block, batch: 0.005 if batch % 5 == 0 else 0.001)
    assert find_stalls(blocks, seconds=8 * 20 * 0.1, workers=1)["count"] == 0
    assert find_stalls(blocks, seconds=8 * 20 * 0.01, workers=1)["count"] == 32


# --- a stall that was planted is found with its period, and the edge of an epoch is told for both kinds of workers ---


class FakeLoader:
    """Takes so long for the first batch after a rest."""

    num_workers, iterable = 2, False
    permutation_length = None
    first_choice_s = 0.25

    def __init__(self, seconds=()):
        self.seconds = list(seconds)
        self.now = 0.0
        self.resting = False
        self.order = self

    def rest(self):
        self.resting = True

    def switch(self, mode):
        assert self.resting
        self.resting = False

    def next_batch(self):
        self.now += self.seconds.pop(0)
        return None, 1


def gap_of(loader, persistent, *, asked=True):
    user_loader = SimpleNamespace(persistent_workers=persistent)  # of an unknown length
    return said(describe_epoch_gap(loader, user_loader, lambda: loader.now, [3.0], asked=asked))


def test_workers_that_start_anew_take_what_they_took_at_first():
    assert gap_of(FakeLoader(), False) == {
        "seconds": 3.0, "low_s": 3.0, "high_s": 3.0, "order_s": 0.25, "persistent_workers": False, "started_anew": True,
        "batches": None,
    }  # fmt: skip


def test_workers_that_stay_take_a_batch_of_an_empty_queue_and_the_order_of_the_samples():
    loader = FakeLoader([0.2, 0.5, 0.3])
    gap = gap_of(loader, True)
    assert [gap[key] for key in ("seconds", "low_s", "high_s")] == pytest.approx([0.55, 0.45, 0.75])
    assert loader.resting
    assert gap_of(FakeLoader([4.0]), True)["seconds"] == pytest.approx(4.25)  # not tried again


def test_a_later_order_of_samples_that_takes_less_counts():
    # Guards: at the first one the workers start, on the same cores.
    gap = EpochGap(seconds=0.6, low_s=0.5, high_s=0.9, order_s=0.25)
    loader = FakeLoader()
    assert with_later_orders(gap, loader) == gap
    loader.first_choice_s = 0.05
    later = with_later_orders(gap, loader)
    assert (later.seconds, later.low_s, later.high_s, later.order_s) == pytest.approx((0.4, 0.3, 0.9, 0.05))
    loader.permutation_length = 10  # drawn lazily here: that of the job was tried
    assert with_later_orders(gap, loader) == gap


def test_a_permutation_that_is_not_made_here_is_paid_for_all_the_same(monkeypatch):
    # Guards: the order is drawn lazily here, while the user's own loader permutes all indices before each epoch.
    loader = FakeLoader([0.2, 0.2, 0.2])
    loader.permutation_length = 50_000_000
    state = torch.get_rng_state()
    made = []
    randperm = torch.randperm

    def slow(length, generator):
        made.append(length)
        loader.now += 0.1
        return randperm(4, generator=generator)

    monkeypatch.setattr(torch, "randperm", slow)
    gap = gap_of(loader, True)
    assert made == [1_000_000]  # for any length
    assert gap["order_s"] == pytest.approx(5.0)
    assert gap["seconds"] == pytest.approx(5.2)
    assert gap["high_s"] == pytest.approx(0.2 + 7.5)
    later = gap_of(loader, False)
    assert later["low_s"] == pytest.approx(5.0)  # workers start while it is made
    assert later["seconds"] == pytest.approx(8.0)
    assert torch.equal(torch.get_rng_state(), state)


@pytest.mark.parametrize(
    ("options", "batches"),
    [({}, 25.5), ({"drop_last": True}, 25.0), ({"batch_size": None}, 102.0), ({"batch_size": 200}, 1.0)],
)
def test_a_partial_batch_counts_as_its_part_of_an_epoch(options, batches):
    loader = DataLoader(list(range(102)), **{"batch_size": 4, **options})
    assert batches_of_epoch(loader) == batches


# --- the start of later epochs -------------------------------------------------------------------------------


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

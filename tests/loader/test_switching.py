"""One set of workers serves every experiment, and no batch of one experiment reaches another."""

import gc
import os
import time
import weakref

import psutil
import pytest
import torch

from bottleneck.loader import modes
from bottleneck.loader.switched import LoaderEnded
from tests.loader.staged_datasets import (
    AUGMENT_CALL,
    INDEX,
    LOAD_CALL,
    LOAD_PID,
    SlowAt,
    Stream,
    Traced,
    column,
    plain,
    record_with,
    stack_if_many,
    switched,
    take,
)

pytestmark = pytest.mark.integration

LADDER = ("after_collate", "before_collate", "before_augment", "raw")


def check_ladder(wrapped, recorded=None):
    """Visit all experiments, some twice, and look at where each sample comes from."""
    recorded = recorded or {tuple(row.tolist()) for batch in take(wrapped, "after_collate", 40) for row in batch}
    loads = {row[:3] for row in recorded}
    for experiment in ("raw", "after_collate", "raw", "before_augment", "before_collate", "raw", "before_augment"):
        rows = [tuple(row.tolist()) for batch in take(wrapped, experiment, 6) for row in batch]
        if experiment in ("after_collate", "before_collate"):
            assert set(rows) <= recorded, experiment
        elif experiment == "before_augment":
            assert {row[:3] for row in rows} <= loads
            assert not set(rows) & recorded  # augmented again
            assert len({(row[LOAD_PID], row[AUGMENT_CALL]) for row in rows}) == len(rows)
        else:
            assert not {row[:3] for row in rows} & loads, "a left-over of the experiment before"


@pytest.mark.parametrize(
    "options",
    [
        {"num_workers": 0, "prefetch_factor": None},
        {"num_workers": 3, "prefetch_factor": 4},
        {"num_workers": 1, "in_order": False},
        {"num_workers": 2, "shuffle": True, "drop_last": True},
        {"num_workers": 1, "pin_memory": True},
    ],
    ids=str,
)
@pytest.mark.filterwarnings("ignore:'pin_memory' argument is set as true", "ignore:This DataLoader will create")
def test_no_batch_of_the_experiment_before_arrives_after_a_switch(options):
    # Guards: prefetched batches of the previous experiment, +22 % in a short block.
    with switched(plain(Traced(pause_s=0.001), **options)) as wrapped:
        check_ladder(wrapped)


@pytest.mark.parametrize("in_order", [True, False])
def test_a_slow_batch_of_the_experiment_before_is_waited_for(in_order):
    # Guards: out of order, a new batch of a quick worker may come before an old one of a slow worker.
    dataset = SlowAt(slow_index=601, slow_s=0.6)  # beyond those from which some are recorded
    loader = plain(dataset, batch_size=1, in_order=in_order, sampler=range(1000))
    with switched(loader) as wrapped:
        wrapped.switch(modes.ALL)
        while max(column([wrapped.next_batch()[0]], INDEX)) < 597:
            pass
        time.sleep(0.2)  # the slow batch has been begun
        wrapped.switch(modes.HANDOFF)
        until = time.monotonic() + 1.0
        while time.monotonic() < until:
            assert max(column([wrapped.next_batch()[0]], INDEX)) < 597


def test_the_workers_stay_the_same_through_all_experiments_and_epochs():
    # Guards: workers that restart at an epoch's end, and caches that vanish with them.
    with switched(plain(Traced(length=24))) as wrapped:
        pids = set(wrapped.workers)
        assert len(pids) == 2
        for experiment in (*LADDER, "raw"):
            batches = take(wrapped, experiment, 14)  # more than two epochs of six batches
            assert column(batches, LOAD_PID) <= pids
        assert {child.pid for child in psutil.Process().children()} >= pids
        assert all(psutil.pid_exists(pid) for pid in pids)


def test_resting_leaves_the_workers_with_nothing_to_do():
    with switched(plain(Traced())) as wrapped:
        take(wrapped, "raw", 4)
        wrapped.rest()
        # Not even a copy of a cached batch, which takes memory bandwidth from the block that is timed at that moment.
        assert [wrapped.next_batch()[0] for _ in range(8)] == [None] * 8


@pytest.mark.parametrize("method", ["spawn", "forkserver"])
def test_other_ways_to_start_workers(method):
    # With spawn, tensors are sent by their pickles' names in a fresh interpreter: nothing is inherited.
    with switched(plain(Traced(), num_workers=1, multiprocessing_context=method)) as wrapped:
        assert wrapped.plan.strategy == "template"
        assert wrapped.workers[0] != os.getpid()
        check_ladder(wrapped)


# --- iterable datasets -------------------------------------------------------------------------------------


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("length", [10, None])
def test_streams(workers, length):
    with switched(plain(Stream(length), num_workers=workers)) as wrapped:
        assert wrapped.plan.strategy == "template"
        recorded = {tuple(row.tolist()) for batch in take(wrapped, "after_collate", 12) for row in batch}
        assert {tuple(row.tolist()) for batch in take(wrapped, "before_collate", 8) for row in batch} <= recorded
        raw = take(wrapped, "raw", 12)  # with ten numbers, that is more than an epoch
        assert {len(batch) for batch in raw} == {4}
        assert not {tuple(row.tolist()) for batch in raw for row in batch} & recorded
        assert column(raw, INDEX) <= set(range(length or 10_000))


def test_a_worker_without_a_share_does_no_harm():
    with switched(plain(Stream(50, share_for=1), num_workers=2), record=False) as wrapped:
        batches = [wrapped.next_batch()[0] for _ in range(6)]
        assert {len(batch) for batch in batches} == {4}
        assert len(column(batches, LOAD_PID)) == 1
        wrapped.num_workers = 1  # only one of them reports
        record_with(wrapped)
        recorded = column(take(wrapped, "after_collate", 6), AUGMENT_CALL)
        assert not column(take(wrapped, "raw", 6), AUGMENT_CALL) & recorded


def test_a_worker_without_a_share_is_not_waited_for():
    # Guards: what it was asked for never comes, and as many batches of the others would be thrown away each time.
    with switched(plain(Stream(share_for=1), num_workers=2, prefetch_factor=3), record=False) as wrapped:
        for _ in range(10):
            wrapped.next_batch()
        for _ in range(5):
            asked_for, before = wrapped._worker_iterator()._send_idx, wrapped._received
            wrapped.switch(modes.ALL)
            assert wrapped._received - before <= 6  # two workers and a prefetch factor of three
            assert min(wrapped._worker_iterator()._task_info) >= asked_for


@pytest.mark.parametrize("workers", [0, 1])
def test_a_stream_without_anything_ends(workers):
    with switched(plain(Stream(0), num_workers=workers), record=False) as wrapped, pytest.raises(LoaderEnded):
        wrapped.next_batch()


# --- handing over -------------------------------------------------------------------------------------------


def test_served_batches_arrive_in_fresh_shared_memory_and_leak_no_descriptor():
    # Guards: a tensor that a worker returns twice travels as a descriptor, and one of these is lost each time.
    with switched(plain(Traced(), num_workers=1)) as wrapped:
        worker = psutil.Process(wrapped.workers[0])
        take(wrapped, "after_collate", 20)
        ours, theirs = psutil.Process().num_fds(), worker.num_fds()
        for experiment in ("after_collate", "before_collate", "before_augment", "raw"):
            take(wrapped, experiment, 80)
        assert psutil.Process().num_fds() <= ours + 4
        assert worker.num_fds() <= theirs + 8


def test_a_train_step_in_place_does_not_reach_the_workers_cache():
    # Guards: an in-place op in the train step changes the worker's cache.
    with switched(plain(Traced(), num_workers=1)) as wrapped:
        first = [batch.clone() for batch in take(wrapped, "after_collate", 8)]
        for _ in range(8):
            wrapped.next_batch()[0].fill_(-1)
        again = [wrapped.next_batch()[0] for _ in range(8)]
        assert not any((batch == -1).any() for batch in again)
        assert {tuple(b.flatten().tolist()) for b in again} <= {tuple(b.flatten().tolist()) for b in first}


def test_workers_run_torch_with_one_thread_also_for_what_is_measured():
    # Guards: stages are timed where they really run.
    class Threads(Traced):
        def load(self, index):
            return torch.tensor([index, os.getpid(), torch.get_num_threads(), 0])

    with switched(plain(Threads(), num_workers=1)) as wrapped:
        assert column(take(wrapped, "raw", 2), LOAD_CALL) == {1}


def test_the_users_heap_is_left_to_collections_of_garbage():
    # Guards: a job that these slow was measured too fast.
    gc.unfreeze()  # what the tests have imported

    class Counting(Traced):
        def load(self, index):
            return torch.tensor([index, gc.get_freeze_count(), 0, 0])

    with switched(plain(Counting(), num_workers=1)) as wrapped:
        assert column(take(wrapped, "before_collate", 1) + take(wrapped, "raw", 1), LOAD_PID) == {0}
    assert gc.get_freeze_count() == 0
    gc.freeze()


def test_garbage_that_may_lie_on_a_device_is_collected_before_workers_are_forked(monkeypatch):
    # Guards: on an H100 a forked worker that collected it was aborted by CUDA.
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    cycle = Traced()
    cycle.itself, ended = cycle, weakref.ref(cycle)
    gc.disable()
    try:
        del cycle
        assert ended() is not None
        with switched(plain(Traced(), num_workers=1), record=False):
            assert ended() is None
    finally:
        gc.enable()


@pytest.mark.parametrize("batch_size", [4, None])
def test_what_is_to_be_thrown_away_of_a_stream_is_not_made_any_more(batch_size):
    # Guards: an iterable dataset never sees its requests, nor does a loader without batches send lists of indices.
    class Slow(Stream):
        def augment(self, sample):
            time.sleep(0.01)
            return super().augment(sample)

    loader = plain(Slow(), num_workers=1, prefetch_factor=16, batch_size=batch_size, collate_fn=stack_if_many)
    with switched(loader) as wrapped:
        before = column(take(wrapped, "raw", 3), AUGMENT_CALL)
        assert wrapped.order.sent - wrapped._received >= 16
        after = column(take(wrapped, "raw", 1), AUGMENT_CALL)
        assert min(after) - max(before) - 1 <= 2 * (batch_size or 1)


# --- how far ahead the workers are -------------------------------------------------------------------------


def until_ahead(wrapped):
    deadline = time.monotonic() + 20.0
    while not wrapped.is_ahead() and time.monotonic() < deadline:
        time.sleep(0.005)
    return wrapped.is_ahead()


@pytest.mark.parametrize("in_order", [True, False])
def test_batches_that_have_arrived_are_counted_until_they_are_taken(in_order):
    class Uneven(Traced):
        """Every other batch takes long, so that the one after it arrives before it and has to wait for its turn."""

        def load(self, index):
            time.sleep(0.02 * (index // 4 % 2))
            return super().load(index)

    with switched(plain(Uneven(), num_workers=2, prefetch_factor=3, in_order=in_order), record=False) as wrapped:
        assert until_ahead(wrapped)
        assert wrapped.arrived() == wrapped.queue_length == 6
        for _ in range(8):
            wrapped.next_batch()
        assert until_ahead(wrapped)
        assert wrapped.arrived() == 6


def test_nothing_has_arrived_while_the_workers_are_still_at_it():
    with switched(plain(Traced(pause_s=0.3), num_workers=1), record=False) as wrapped:
        wrapped.switch(modes.ALL)
        assert wrapped.arrived() == 0
        assert not wrapped.is_ahead()


def test_what_batches_took_is_known_while_everything_is_real():
    with switched(plain(Traced()), record=False) as wrapped:
        wrapped.next_batch()
        assert max(tally.first_s for tally in wrapped.tallies()) > 0
        for _ in range(20):
            wrapped.next_batch()
        made = wrapped.tallies()
        assert sum(tally.count for tally in made) >= 20 - len(made)
        assert all(0 < tally.squares <= tally.seconds * tally.seconds for tally in made)
        wrapped.rest()
        wrapped.forget_batches()
        assert [tally.count for tally in wrapped.tallies()] == [0.0] * len(made)
        take(wrapped, "after_collate", 8)
        assert [tally.count for tally in wrapped.tallies()] == [0.0] * len(made)

"""Indices come in the user's order, without end, without repeats and without partial batches."""

import itertools
import threading
import tracemalloc
from types import SimpleNamespace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils.data import DataLoader, DistributedSampler, Sampler, SubsetRandomSampler

from bottleneck.loader import modes
from bottleneck.loader.control import Blank, Control, Single
from bottleneck.loader.order import RequestOrder, lazy_permutation
from bottleneck.loader.switched import SwitchedLoader
from tests.support.datasets import Stream


@pytest.fixture
def control():
    control = Control(1)
    yield control
    control.close()


def order_of(control, loader, iterable=False):
    return RequestOrder(loader, control, iterable=iterable)


def take(order, count):
    return [asked.content if isinstance(asked, Single) else asked for asked in itertools.islice(order, count)]


# --- the permutation ---------------------------------------------------------------------------------------


@settings(max_examples=60)
@given(st.integers(0, 3000), st.integers(0, 2**63 - 1))
def test_every_index_exactly_once(length, seed):
    assert sorted(lazy_permutation(length, seed)) == list(range(length))


def test_neighbours_are_not_neighbours_any_more():
    # A drive's read-ahead must not profit from an order that is nearly sequential.
    order = list(lazy_permutation(10_000, 7))
    steps = [abs(b - a) for a, b in itertools.pairwise(order)]
    assert sum(step < 10 for step in steps) < 100  # 20 expected of a random order
    assert 2900 < sum(steps) / len(steps) < 3700  # a third of the length


def test_a_loader_over_a_hundred_million_samples_gives_its_first_batch_at_once(control):
    tracemalloc.start()
    batches = take(order_of(control, DataLoader(range(10**8), batch_size=8, shuffle=True)), 10)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len({index for batch in batches for index in batch}) == 80
    assert peak < 1_000_000


# --- epochs and batches ------------------------------------------------------------------------------------


@pytest.mark.parametrize("shuffle", [False, True])
def test_no_index_comes_twice_before_all_others_have(control, shuffle):
    # Guards: a second visit to a file in one run is served from the page cache and looks free.
    batches = take(order_of(control, DataLoader(range(24), batch_size=4, shuffle=shuffle)), 18)
    for epoch in range(3):
        indices = [index for batch in batches[epoch * 6 : epoch * 6 + 6] for index in batch]
        assert sorted(indices) == list(range(24))


@pytest.mark.parametrize("drop_last", [False, True])
def test_the_partial_batch_at_the_end_is_left_out(control, drop_last):
    # Guards: in a cache it would be replayed for ever.
    order = order_of(control, DataLoader(range(10), batch_size=4, drop_last=drop_last))
    assert take(order, 5) == [[0, 1, 2, 3], [4, 5, 6, 7]] * 2 + [[0, 1, 2, 3]]
    assert set(order.sizes) == {4}


def test_the_next_epoch_is_begun_early_where_it_is_near_and_not_before(control):
    # Guards: a sampler that sorts for two seconds at the beginning of each epoch, inside a timed block.
    class Sorting(Sampler):
        begun = 0

        def __iter__(self):
            self.begun += 1
            yield from range(40)

        def __len__(self):
            return 40

    sampler = Sorting()
    order = order_of(control, DataLoader(range(40), batch_size=4, sampler=sampler))
    order.begin_epoch_within(100)
    assert sampler.begun == 0  # how long the first takes is measured apart
    batches = take(order, 3)
    order.begin_epoch_within(5)
    assert sampler.begun == 1
    order.begin_epoch_within(8)
    order.begin_epoch_within(8)
    assert sampler.begun == 2
    assert batches + take(order, 17) == [list(range(start, start + 4)) for start in range(0, 40, 4)] * 2
    order.begin_epoch_within(25)  # a block of several epochs
    assert (sampler.begun, len(take(order, 25)), sampler.begun) == (5, 25, 5)


def test_a_generator_of_the_users_decides_the_order(control):
    def order(seed):
        generator = torch.Generator().manual_seed(seed)
        return take(order_of(control, DataLoader(range(50), batch_size=5, shuffle=True, generator=generator)), 8)

    assert order(1) == order(1)
    assert order(1) != order(2)


def test_other_samplers_run_as_they_are(control):
    loader = DataLoader(range(10), batch_size=2, sampler=SubsetRandomSampler([7, 8, 9, 1]))
    assert {i for batch in take(order_of(control, loader), 2) for i in batch} == {7, 8, 9, 1}
    loader = DataLoader(range(4), batch_size=2, sampler=[3, 1, 2, 0])
    assert take(order_of(control, loader), 3) == [[3, 1], [2, 0], [3, 1]]


def test_a_distributed_sampler_gives_this_ranks_share_and_shuffles_each_epoch_again(control):
    sampler = DistributedSampler(range(40), num_replicas=2, rank=0, shuffle=True)
    order = order_of(control, DataLoader(range(40), batch_size=20, sampler=sampler))
    first, second = take(order, 2)
    assert len(set(first)) == 20
    assert first != second


class ByLength(Sampler):
    """Batches of differing sizes, another order each epoch."""

    def __init__(self):
        self.epochs = []

    def set_epoch(self, epoch):
        self.epochs.append(epoch)

    def __iter__(self):
        yield from ([0, 1, 2], [3], [4, 5])

    def __len__(self):
        return 3


def test_a_batch_sampler_of_the_users_gives_all_of_its_batches(control):
    sampler = ByLength()
    order = order_of(control, DataLoader(range(6), batch_sampler=sampler))
    assert take(order, 7) == [[0, 1, 2], [3], [4, 5]] * 2 + [[0, 1, 2]]
    assert order.sizes == [3, 1, 2, 3, 1, 2, 3]
    assert sampler.epochs == [0, 1, 2]
    assert len(order) == 3


def test_without_batching_single_indices_are_asked_for(control):
    order = order_of(control, DataLoader(range(3), batch_size=None))
    assert take(order, 5) == [0, 1, 2, 0, 1]
    assert order.sizes == [1] * 5


def test_a_loader_that_asks_its_sampler_for_the_one_inside_gets_the_users(control):
    # Guards: timm's and ultralytics' loaders, whose length is that of what their batch sampler repeats.
    repeated = SimpleNamespace(sampler=[[0, 1], [2, 3], [4, 5]])
    loader = DataLoader(range(6), batch_sampler=repeated)
    assert len(order_of(control, loader).sampler) == 3


def test_an_empty_sampler_ends_instead_of_turning_for_ever(control):
    order = order_of(control, DataLoader(range(3), batch_size=1, sampler=SubsetRandomSampler([])))
    assert take(order, 3) == []


def test_iterable_datasets_choose_their_samples_themselves(control):
    assert take(order_of(control, DataLoader(Stream(), batch_size=3), iterable=True), 2) == [[None] * 3] * 2
    assert take(order_of(control, DataLoader(Stream(), batch_size=None), iterable=True), 2) == [None] * 2


# --- modes -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", [0, modes.HANDOFF, modes.ALL & ~modes.LOAD])
def test_no_indices_are_used_up_where_nothing_is_loaded(control, mode):
    # Guards: samplers are not consumed, and raw finds unread files.
    order = order_of(control, DataLoader(range(20), batch_size=4))
    assert take(order, 1) == [[0, 1, 2, 3]]
    control.mode = mode
    assert all(isinstance(request, Blank) and len(request) == 4 for request in take(order, 3))
    control.mode = modes.ALL
    assert take(order, 1) == [[4, 5, 6, 7]]
    assert order.sent == 5


def record(control, order, batches):
    control.mode = modes.RECORD
    taken = take(order, batches)
    control.mode = modes.ALL
    return taken


@pytest.mark.parametrize("batches", [5, 10, 40])
def test_batches_are_recorded_from_all_over_those_that_come(control, batches):
    # Guards: of an epoch that is sorted by length, the longest alone were recorded, and stages cost what those cost.
    order = order_of(control, DataLoader(range(10_000), batch_size=20))
    assert take(order, 2) == [list(range(20)), list(range(20, 40))]
    firsts = sorted(batch[0] // 20 for batch in record(control, order, batches))
    assert len(set(firsts)) == batches
    gaps = [after - before for before, after in itertools.pairwise([1, *firsts, 499])]
    assert max(gaps) < 3 * 500 / batches
    assert sum(firsts) / batches == pytest.approx(250, abs=300 / batches + 10)


def test_what_was_not_recorded_comes_in_its_order_and_nothing_twice(control):
    order = order_of(control, DataLoader(range(24), batch_size=2))
    recorded = record(control, order, 5)
    left = take(order, 7)
    assert left == sorted(left)
    assert sorted(index for batch in recorded + left for index in batch) == list(range(24))
    assert take(order, 2) == [[0, 1], [2, 3]]


def test_what_the_sampler_raises_is_raised_at_its_place(control):
    class Breaks(ByLength):
        def __iter__(self):
            yield from ([number] for number in range(4))
            raise RuntimeError("no more")

        def __len__(self):
            return 50

    order = order_of(control, DataLoader(range(50), batch_sampler=Breaks()))
    recorded = record(control, order, 2)
    assert sorted(recorded + take(order, 2)) == [[0], [1], [2], [3]]
    with pytest.raises(RuntimeError, match="no more"):
        next(order)


def test_blanks_stand_for_batches_of_the_recorded_sizes_in_turn(control):
    order = order_of(control, DataLoader(range(6), batch_sampler=ByLength()))
    order.set_blank_sizes((3, 1))
    control.mode = modes.HANDOFF
    assert [len(request) for request in take(order, 4)] == [3, 1, 3, 1]
    order.set_blank_sizes(())
    assert len(next(order)) == 3


def test_the_time_of_the_sampler_is_known_without_that_of_the_first_batch_of_an_epoch(control):
    now_s = 0.0

    class Slow(Sampler):
        def __iter__(self):
            nonlocal now_s
            now_s += 100.0 if now_s else 300.0  # workers start at the same time
            for index in range(8):
                now_s += 0.5
                yield index

        def __len__(self):
            return 8

    loader = DataLoader(range(8), batch_size=2, sampler=Slow())
    order = RequestOrder(loader, control, iterable=False, clock=lambda: now_s)
    assert order.choosing_s_per_batch is None
    take(order, 2)
    assert order.first_choice_s == 301.0
    take(order, 10)  # three epochs; each takes 100 s to begin
    assert order.choosing_s_per_batch == 1.0
    assert order.first_choice_s == 101.0
    assert not [thread for thread in threading.enumerate() if thread.name == "bottleneck-lines"]
    assert order.permutation_length is None


# --- a pool of batches that are asked for again ---------------------------------------------------------------


def test_a_pool_takes_no_sample_twice(control):
    assert order_of(control, DataLoader(range(24), batch_size=4)).fill_pool(20) == 6
    odd = [torch.tensor(1), torch.tensor(1), (1, "a"), {"a": 1}, {"a": 1}, "b"]
    loader = DataLoader(range(6), batch_size=None, sampler=odd)
    order = order_of(control, loader)
    assert order.fill_pool(50) == 4
    assert take(order, 5) == [torch.tensor(1), (1, "a"), {"a": 1}, "b", torch.tensor(1)]


def test_the_order_asks_for_the_pool_where_it_loads_and_for_blanks_elsewhere(control):
    loader = DataLoader(range(40), batch_size=4, shuffle=True)
    order = order_of(control, loader)
    control.mode = modes.ALL
    first = next(order)
    assert order.fill_pool(3) == 3
    asked = [list(next(order)) for _ in range(6)]
    assert asked[:3] == asked[3:]
    assert len({index for request in [first, *asked[:3]] for index in request}) == 16
    control.mode = modes.HANDOFF
    position = order.pool_position
    assert isinstance(next(order), Blank)
    assert order.pool_position == position


def test_a_pool_that_is_released_leaves_the_users_order():
    # Guards: without cold files, raw is to ask for no sample twice.
    loader = SwitchedLoader(DataLoader(range(100), batch_size=4), (), 0, 60.0)
    try:
        loader.switch(modes.ALL)
        assert loader.order.fill_pool(2) == 2
        pooled = {index for _ in range(4) for index in loader.next_batch()[0].tolist()}
        assert pooled == set(range(8))
        loader.order.pool = None
        assert loader.next_batch()[0].tolist() == [8, 9, 10, 11]
    finally:
        loader.close()

"""A pool asks for the same batches again, and for no sample twice as long as the dataset has others."""

import itertools

import pytest
import torch
from torch.utils.data import DataLoader, WeightedRandomSampler

from bottleneck.loader import modes
from bottleneck.loader.control import Blank, Control, Request
from bottleneck.loader.order import RequestOrder
from bottleneck.loader.request_pool import RequestPool, take_distinct
from bottleneck.loader.switched import SwitchedLoader


@pytest.fixture
def control():
    control = Control(1)
    yield control
    control.close()


def test_the_pool_begins_again_where_it_is_told_to():
    pool = RequestPool([([n], 1) for n in range(3)])
    assert [next(pool)[0] for _ in range(4)] == [[0], [1], [2], [0]]
    pool.restart(2)
    assert next(pool)[0] == [2]
    pool.trim(1)
    pool.restart()
    assert [next(pool)[0] for _ in range(2)] == [[0], [0]]


def test_a_dataset_that_is_smaller_gives_each_batch_once():
    endless = (([n % 6, n % 6 + 100], 2) for n in itertools.count())
    assert len(take_distinct(endless, 20)) == 6


def test_samples_are_known_as_tensors_and_other_things_too():
    requests = iter([([torch.tensor(1)], 1), ([torch.tensor(1)], 1), ([{"a": 1}], 1), ([{"a": 1}], 1), (7, 1)])
    assert [request for request, _ in take_distinct(requests, 5)] == [[torch.tensor(1)], [{"a": 1}], 7]


def test_the_order_asks_for_the_pool_where_it_loads_and_for_blanks_elsewhere(control):
    loader = DataLoader(range(40), batch_size=4, shuffle=True)
    order = RequestOrder(loader, control, iterable=False)
    control.mode = modes.ALL
    first = next(order)
    assert order.fill_pool(3) == 3
    asked = [list(next(order)) for _ in range(6)]
    assert asked[:3] == asked[3:]
    assert len({index for request in [first, *asked[:3]] for index in request}) == 16
    control.mode = modes.HANDOFF
    position = order.pool.position
    assert isinstance(next(order), Blank)
    assert order.pool.position == position


def test_a_request_of_the_pool_knows_its_generation(control):
    # Guards: what is asked for anew would pass for stale, and no worker would make it.
    order = RequestOrder(DataLoader(range(8), batch_size=4), control, iterable=False)
    control.mode = modes.ALL
    order.fill_pool(1)
    control.begin_generation()
    request = next(order)
    assert isinstance(request, Request)
    assert request.generation == control.generation


def test_a_sampler_that_draws_with_replacement_fills_a_pool_too(control):
    loader = DataLoader(range(100), batch_size=4, sampler=WeightedRandomSampler([1.0] * 100, 1000))
    order = RequestOrder(loader, control, iterable=False)
    control.mode = modes.ALL
    assert order.fill_pool(5) == 5


def test_a_loader_that_does_not_batch_asks_for_single_items(control):
    order = RequestOrder(DataLoader(range(8), batch_size=None), control, iterable=False)
    control.mode = modes.ALL
    assert order.fill_pool(50) == 8
    assert [next(order).content for _ in range(3)] == [0, 1, 2]


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

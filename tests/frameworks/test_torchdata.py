"""torchdata nodes: a chain that makes batches by itself."""

import pytest
import torch
from torch.utils.data import SequentialSampler
from torchdata import nodes

import bottleneck
from bottleneck.job.cuts import find_sites
from tests.frameworks.planted import (
    BATCH_SIZE,
    check_cost,
    check_is_one_stage,
    check_verdict,
    slow_down,
    train_step,
)

pytestmark = pytest.mark.integration


def load_quickly(index):
    return torch.full((8,), float(index))


def load_slowly(index):
    slow_down()
    return load_quickly(index)


def augment_slowly(sample):
    slow_down()
    return sample + 1


def numbers():
    return nodes.SamplerWrapper(SequentialSampler(range(64)))


def test_a_node_is_taken_as_it_is_and_batches_by_itself():
    node = nodes.Batcher(nodes.Mapper(numbers(), load_quickly), BATCH_SIZE)
    pipeline = bottleneck.Pipeline(dataset=node, train_step=train_step)
    assert pipeline.make_loader().batch_size is None
    assert [len(batch) for batch in pipeline.make_loader()] == [BATCH_SIZE] * 32


def test_a_loader_of_nodes_is_taken_for_a_loader():
    loader = nodes.Loader(nodes.Batcher(nodes.Mapper(numbers(), load_quickly), BATCH_SIZE))
    pipeline = bottleneck.Pipeline.from_loader(loader, train_step=train_step)
    assert pipeline.make_loader().batch_size is None


def test_the_functions_of_mappers_are_found():
    node = nodes.Mapper(nodes.Mapper(numbers(), load_quickly), augment_slowly)
    names = {site.name: site.stage for site in find_sites(bottleneck.Pipeline(dataset=node).dataset)}
    assert names == {"node._it.map_fn": "augment", "node._it.source._it.map_fn": "load"}


@pytest.mark.parametrize("workers", [0, 1])
def test_a_slow_mapper_of_samples_is_augmentation(workers):
    node = nodes.Mapper(nodes.Mapper(numbers(), load_quickly), augment_slowly)
    check_cost(node, "augment", num_workers=workers)


def test_a_slow_mapper_of_indices_is_loading():
    node = nodes.Mapper(nodes.Mapper(numbers(), load_slowly), torch.neg)
    check_cost(node, "load")


def test_the_users_node_stays_as_it_was():
    node = nodes.Mapper(numbers(), augment_slowly)
    seen = iter(node)
    first = next(seen)
    check_cost(node, "augment", num_workers=0, batch_size=BATCH_SIZE)
    assert node.map_fn is augment_slowly
    assert next(seen) == first + 1


def test_what_works_ahead_in_threads_is_one_stage():
    node = nodes.ParallelMapper(numbers(), load_slowly, num_workers=2)
    node = nodes.Prefetcher(nodes.Batcher(node, BATCH_SIZE), prefetch_factor=2)
    check_is_one_stage(node, batch_size=None, num_workers=0)
    assert not find_sites(bottleneck.Pipeline(dataset=node).dataset)


def test_a_slow_mapper_below_a_batcher_is_told_from_a_quick_one():
    node = nodes.Mapper(nodes.Mapper(numbers(), load_quickly), augment_slowly)
    check_cost(nodes.Batcher(node, BATCH_SIZE), "augment", batch_size=None, num_workers=0)


def test_a_marked_function_that_works_ahead_is_refused_with_the_reason():
    @bottleneck.stage("decode")
    def decode(index):
        return load_slowly(index)

    node = nodes.Batcher(nodes.ParallelMapper(numbers(), decode, num_workers=1), BATCH_SIZE)
    diagnosis = check_verdict(node, "fetch", batch_size=None, num_workers=0)
    assert any("decode" in warning.message and "thread" in warning.message for warning in diagnosis.warnings)


def test_a_node_of_ones_own_is_one_stage():
    class Slow(nodes.BaseNode):
        def __init__(self):
            super().__init__()

        def reset(self, initial_state=None):
            super().reset(initial_state)
            self.left = 64

        def next(self):
            if not self.left:
                raise StopIteration
            self.left -= 1
            slow_down()
            return torch.zeros(8)

        def get_state(self):
            return {}

    check_is_one_stage(Slow())

"""The work of an object around a DataLoader on each batch, as a part of the job."""

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from bottleneck.errors import PipelineError
from bottleneck.job.checks import check
from bottleneck.job.pipeline import Pipeline
from bottleneck.job.step import make_onto_device, make_transfer
from bottleneck.job.wrapping import unwrap
from tests.support.wrappers import Keeping, Pairs, Prefetcher

CPU = torch.device("cpu")


def loader_of(batches=4):
    return DataLoader(TensorDataset(torch.arange(2.0 * batches)), batch_size=2)


def pipeline_of(wrapper, **fields):
    return Pipeline.from_loader(wrapper, train_step=print, **{"device": "cpu", **fields})


def test_a_wrapper_is_described_by_its_loader_and_its_work():
    wrapper = Prefetcher(loader_of())
    pipeline = pipeline_of(wrapper)
    check(pipeline)
    assert pipeline.make_loader() is wrapper.loader
    assert pipeline.to_device("batch", CPU) == {"prepared": "batch"}
    assert pipeline.to_device.__qualname__ == "Prefetcher"
    assert next(iter(wrapper))["prepared"][0].tolist() == [0, 1]  # it is as it was


def test_the_work_stays_when_the_loader_is_replaced():
    changed = pipeline_of(Prefetcher(loader_of())).replace(batch_size=4)
    assert changed.make_loader().batch_size == 4
    assert changed.to_device("batch", CPU) == {"prepared": "batch"}


def test_wrappers_and_to_device_work_one_after_the_other():
    inner = Prefetcher(loader_of())
    pipeline = pipeline_of(Prefetcher(inner), to_device=lambda batch, device: (batch, device))
    assert pipeline.make_loader() is inner.loader
    assert pipeline.to_device("batch", CPU) == ({"prepared": {"prepared": "batch"}}, CPU)


def test_in_an_epoch_it_stays_a_batch_ahead_and_a_cache_gets_its_own_batch():
    pipeline = pipeline_of(Prefetcher(loader_of()))
    transfer, onto_device = (make(pipeline, CPU, False) for make in (make_transfer, make_onto_device))
    assert [transfer(number)["prepared"] for number in range(5)] == [0, 0, 1, 2, 3]
    assert [onto_device(number)["prepared"] for number in range(5)] == [0, 1, 2, 3, 4]
    other = make_transfer(pipeline, CPU, False)
    assert other("another consumer")["prepared"] == "another consumer"


def test_a_wrapper_that_counts_its_batches_begins_again():
    class Counting(Prefetcher):
        def __iter__(self):
            batches = iter(self.loader)
            for _ in range(len(self.loader)):
                yield self.prepare(next(batches))

    transfer = make_transfer(pipeline_of(Counting(loader_of(batches=2))), CPU, False)
    assert [transfer(number)["prepared"] for number in range(5)] == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("kind", [Pairs, Keeping])
def test_a_wrapper_that_makes_no_batch_of_each_is_refused(kind):
    wrapper = kind(loader_of())
    list(wrapper)
    transfer = make_transfer(pipeline_of(wrapper), CPU, False)
    with pytest.raises(PipelineError, match=f"{kind.__name__} does not make one batch of each"):
        for number in range(3):
            transfer(number)


def test_the_containers_of_a_wrapper_are_left_alone():
    wrapper = Keeping(loader_of())
    assert pipeline_of(wrapper).to_device("batch", CPU) == "batch"
    assert wrapper.kept == []


class Several(Prefetcher):
    def __init__(self):
        super().__init__(loader_of())
        self.other_loader = loader_of()


@pytest.mark.parametrize("what", [loader_of(), Several(), Prefetcher([1, 2]), Prefetcher, (x for x in "ab"), None])
def test_other_objects_wrap_no_loader(what):
    assert unwrap(what) is None


def test_a_wrapper_that_leaves_batches_on_the_cpu_decides_the_device():
    wrapper = Prefetcher(loader_of())
    wrapper.device = CPU
    assert pipeline_of(wrapper, device=None, model=nn.Linear(1, 1)).device == "cpu"
    assert pipeline_of(wrapper, device=None, model=nn.Linear(1, 1, device="meta")).device is None
    assert pipeline_of(wrapper, device="meta").device == "meta"

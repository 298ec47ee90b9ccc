"""Recorded batches are served as fresh copies, made where the job makes its own."""

from collections.abc import MutableMapping

import numpy as np
import pytest
import torch
from torchvision import tv_tensors

from bottleneck.loader import trees
from bottleneck.loader.store import (
    CopyOnPickle,
    ServedBatch,
    copy_on_pickle,
    find_tensors,
    private_copy,
    shared_copy,
    storages,
)


class Holder:
    def __init__(self):
        self.tensor = torch.ones(2)


@pytest.mark.parametrize("make", [shared_copy, private_copy, trees.copy_leaf])
def test_a_copy_of_a_tensor_that_wants_a_gradient_can_go_to_another_process(make):
    copied = make(torch.ones(3, requires_grad=True))
    assert copied.requires_grad
    assert copied.is_leaf


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.bool, torch.complex64])
def test_a_batch_of_small_samples_is_copied_by_one_thread(dtype, monkeypatch):
    # Guards: two threads waited 6 ms for each other on a busy machine, and no job was faster without its collation.
    batch = torch.rand(16, 3, 32, 32).mul(9).to(dtype)
    monkeypatch.setattr(trees, "copy_tensor", lambda tensor: pytest.fail("PyTorch copies it with several threads"))
    copied = private_copy(batch)
    assert torch.equal(copied, batch)
    assert copied.data_ptr() != batch.data_ptr()


@pytest.mark.parametrize("make", [shared_copy, private_copy])
def test_each_serving_has_storages_of_its_own(make):
    # Guards: the same tensor returned twice by a worker travels as a mere file descriptor.
    batch = {"x": make(torch.arange(6.0).reshape(2, 3)), "y": [make(torch.ones(2, dtype=torch.int64)), 3]}
    served = ServedBatch(batch)
    first, second = served.serve(), served.serve()
    assert trees.equal(first, batch)
    assert trees.equal(second, batch)
    assert not storages(first) & storages(second)
    assert not storages(first) & storages(batch)
    first["x"].zero_()
    assert trees.equal(served.serve(), batch)


def test_a_copy_is_written_into_shared_memory_where_the_users_collate_function_wrote_there_and_only_there():
    # Guards: otherwise the queue would copy once more than with the user's own batches, or once less.
    batch = {"stacked": shared_copy(torch.ones(3)), "own": [torch.zeros(2, 2), shared_copy(torch.ones(2))]}
    first = ServedBatch(batch, travels=True).serve()
    assert [type(part) for part in (first["stacked"], *first["own"])] == [torch.Tensor, CopyOnPickle, torch.Tensor]
    assert first["stacked"].is_shared()
    assert first["own"][1].is_shared()


@pytest.mark.parametrize("tensor", [torch.arange(12).reshape(3, 4).t(), torch.ones(2, requires_grad=True)], ids=str)
def test_a_tensor_in_private_memory_is_copied_once_each_time_that_a_queue_pickles_it(tensor):
    # Guards: a copy before the queue's own was charged to whatever made the tensor: of 39 ms for 38 MB, 20 were left.
    travelling = ServedBatch(tensor, travels=True).serve()
    received = [rebuild(*given) for rebuild, given in (travelling.__reduce__() for _ in range(2))]
    for copied in received:
        assert torch.equal(copied, tensor)
        assert copied.is_shared()
        assert (copied.stride(), copied.requires_grad) == (tensor.stride(), tensor.requires_grad)
    assert len(storages(received)) == 2


class Unpicklable(np.ndarray):
    def __reduce__(self):
        raise TypeError("pickled")


class TensorMap(MutableMapping):
    """As a TensorDict: what is put into it has to be a tensor."""

    def __init__(self, parts):
        self.parts = {key: torch.as_tensor(part) for key, part in parts.items()}

    def __getitem__(self, key):
        return self.parts[key]

    def __setitem__(self, key, value):
        self.parts = {**self.parts, key: torch.as_tensor(value)}

    def __delitem__(self, key):
        self.parts = {name: part for name, part in self.parts.items() if name != key}

    def __iter__(self):
        return iter(self.parts)

    def __len__(self):
        return len(self.parts)


@pytest.mark.parametrize("value", [TensorMap({"x": torch.ones(3)}), Holder(), tv_tensors.Image(torch.ones(3, 2, 2))])
def test_what_may_take_tensors_alone_is_copy_on_pickle_as_a_whole(value):
    # Guards: what stands for a tensor on the way is none; and copies in the worker, charged to the collation.
    batch = {"inputs": value, "labels": torch.zeros(2)}
    travelling = ServedBatch(batch, travels=True).serve()
    assert {type(part) for part in travelling.values()} == {CopyOnPickle}
    first, second = (rebuild(*given) for rebuild, given in (travelling["inputs"].__reduce__() for _ in range(2)))
    copies, kept = [find_tensors(part) for part in (first, second)], find_tensors(value)
    assert type(first) is type(value)
    assert all(tensor.is_shared() for found in copies for tensor in found)
    assert len(storages([copies, kept])) == 3
    assert all(trees.equal(found, kept) for found in copies)


def test_what_the_collation_wrote_into_shared_memory_is_copied_there_by_the_worker():
    holder = Holder()
    holder.tensor = shared_copy(holder.tensor)
    served = ServedBatch([holder], travels=True)
    first, second = served.serve()[0], served.serve()[0]
    assert (type(first), first.tensor.is_shared()) == (Holder, True)
    assert len(storages([first.tensor, second.tensor, holder.tensor])) == 3


def test_a_tensor_with_a_type_of_its_own_arrives_as_that():
    boxes = tv_tensors.BoundingBoxes(torch.ones(2, 4), format="XYWH", canvas_size=(8, 9))
    rebuild, given = copy_on_pickle(boxes).__reduce__()
    arrived = rebuild(*given)
    assert type(arrived) is tv_tensors.BoundingBoxes
    assert (arrived.format, arrived.canvas_size) == (boxes.format, (8, 9))
    assert not storages(arrived) & storages(boxes)


@pytest.mark.parametrize("tensor", [torch.eye(3).to_sparse(), torch.zeros(0, 3), torch.eye(2, device="meta")], ids=str)
def test_tensors_without_memory_of_the_plain_kind_are_served(tensor):
    assert type(ServedBatch([tensor], travels=True).serve()[0].copy()) is type(tensor)


@pytest.mark.parametrize(
    "tensor",
    [
        torch.zeros(0, 3),
        torch.eye(3).to_sparse(),
        torch.ones(4, dtype=torch.bool),
        torch.ones(2, dtype=torch.complex64),
        torch.ones(3, dtype=torch.bfloat16),
        torch.arange(12).reshape(3, 4).t(),
        torch.tensor(5),
        torch.ones(2, 3, 4, 4).contiguous(memory_format=torch.channels_last),
        torch.arange(4).expand(3, 4),
        torch.arange(10)[::2],
        tv_tensors.Image(torch.ones(3, 2, 2)),
    ],
    ids=str,
)
def test_every_kind_of_tensor_can_be_copied_into_shared_memory(tensor):
    copied = shared_copy(tensor)
    assert copied.shape == tensor.shape
    assert copied.dtype == tensor.dtype
    assert copied.layout == tensor.layout
    if tensor.layout == torch.strided:
        assert torch.equal(copied, tensor)
    else:
        assert torch.equal(copied.to_dense(), tensor.to_dense())
    assert copied is not tensor
    assert type(copied) is type(tensor)
    if tensor.layout == torch.strided:  # a step may be faster or slower with another layout
        assert copied.stride() == tensor.clone().stride()


def test_tensors_are_found_without_pickling_arrays_of_numbers():
    # Guards: an array in a batch was written out once more each time that its samples were served.
    holder, tensor = Holder(), torch.ones(3)
    found = find_tensors({"array": np.ones(2).view(Unpicklable), "holder": holder, "tensor": tensor, "name": "x"})
    assert [id(part) for part in found] == [id(holder.tensor), id(tensor)]


def test_objects_of_the_user_that_may_hold_tensors_are_copied_too():
    served = ServedBatch([Holder()])
    assert served.serve()[0].tensor.data_ptr() != served.serve()[0].tensor.data_ptr()


def test_what_was_recorded_does_not_change_with_the_users_object():
    batch = [torch.ones(2)]
    served = ServedBatch(batch)
    batch[0].zero_()
    assert served.serve()[0].tolist() == [1, 1]


def test_its_size_is_known():
    assert ServedBatch(torch.zeros(1000)).nbytes == 4000


def test_storages_are_those_of_tensors_and_arrays():
    base = torch.zeros(4)
    assert storages([base[:2], {"again": base[2:]}]) == storages(base)
    array = np.zeros(3)
    assert storages(array) == storages([array])
    assert storages([1, "x", torch.zeros(0)]) == set()

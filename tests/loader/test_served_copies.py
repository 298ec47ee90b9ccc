"""Recorded batches are served as copies, made where the job makes its own; lazy values stay lazy."""

import io
from collections.abc import MutableMapping

import numpy as np
import pytest
import torch
from PIL import Image
from torchvision import tv_tensors

from bottleneck.loader import objects, trees
from bottleneck.loader.recording.copies import (
    CopyOnPickle,
    ServedBatch,
    find_tensors,
    private_copy,
    shared_copy,
    storages,
)
from bottleneck.loader.trees import is_lazy_image, is_mapped
from bottleneck.measure.prepare import warnings_of_plan
from tests.loader.engine_bench import NothingBehind, engines, work


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
    monkeypatch.setattr(objects, "copy_tensor", lambda tensor: pytest.fail("PyTorch copies it with several threads"))
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
    """Like a TensorDict: its values have to be tensors."""

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


make = pytest.fixture(engines)
held = pytest.mark.leaks("an array over a mapped file keeps its descriptor for as long as pytest keeps the fixture")


@pytest.fixture
def path(tmp_path):
    image = Image.fromarray(np.arange(48, dtype=np.uint8).reshape(4, 4, 3))
    image.save(tmp_path / "photo.png")
    return tmp_path / "photo.png"


@pytest.fixture
def mapped(tmp_path):
    np.save(tmp_path / "data.npy", np.arange(12.0).reshape(3, 4))
    return np.load(tmp_path / "data.npy", mmap_mode="r")


def in_memory(path):
    return Image.open(io.BytesIO(path.read_bytes()))


@pytest.mark.parametrize("open_image", [Image.open, in_memory])
def test_a_copy_of_an_image_that_is_not_decoded_is_not_decoded_either(path, open_image):
    image = open_image(path)
    copied = trees.copy_deep({"image": image})["image"]
    assert is_lazy_image(image)
    assert is_lazy_image(copied)
    assert trees.equal(image, copied)
    again = trees.copy_deep(copied)
    assert copied.getpixel((1, 1)) == again.getpixel((1, 1)) == image.getpixel((1, 1))
    assert type(copied) is type(image)
    assert copied.filename == image.filename
    image.close()


def test_an_image_that_cannot_be_opened_again_is_decoded_and_that_is_noted(path):
    content = io.BufferedReader(io.BytesIO(path.read_bytes()))
    image, copier = Image.open(content), trees.Copier()
    assert not is_lazy_image(copier.copy([image])[0])
    assert copier.read == {"an image that is opened and not decoded (PIL)"}


@held
def test_a_map_that_nobody_can_write_to_is_not_read(mapped):
    row = np.asarray(mapped[1])
    assert is_mapped(row)
    assert trees.copy_deep([row])[0] is row
    assert trees.nbytes(mapped) == 0
    assert trees.equal(mapped, mapped)


class Opened(NothingBehind):
    """Images are opened by the loader and decoded by the augmentation."""

    decoded = 0

    def __init__(self, path):
        super().__init__()
        self.path = path

    def load_image(self, index):
        work(self, "load")
        return Image.open(self.path)

    def augment(self, image):
        work(self, "augment")
        type(self).decoded += is_lazy_image(image)
        return np.array(image)


def told(bench):
    return [one.message for one in warnings_of_plan(bench.plan) if one.id == "lazy-values"]


def test_images_are_decoded_by_the_stage_that_decodes_them_in_the_job(make, path):
    # Guards: a copy decodes them, so that decoding moves to loading, and vanishes from both gains.
    bench = make(Opened(path))
    assert bench.plan.strategy == "template"
    Opened.decoded = 0
    for _ in range(6):
        bench.run("before_augment")
    assert Opened.decoded == 12
    (message,) = told(bench)
    assert "(PIL)" in message
    assert "in `augment`" in message


@held
def test_maps_are_read_by_the_stage_that_reads_them_in_the_job(make, mapped):
    class Mapped(NothingBehind):
        def load_image(self, index):
            work(self, "load")
            return mapped[index % 3]

        def augment(self, row):
            work(self, "augment")
            assert is_mapped(row)
            return row + 1

    bench = make(Mapped())
    assert bench.run("before_augment")[1] >= {"augment"}
    assert "memory-mapped" in told(bench)[0]

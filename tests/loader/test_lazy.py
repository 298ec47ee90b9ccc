"""Values that are read when they are used are read where the job does so, and that is told."""

import io

import numpy as np
import pytest
from PIL import Image
from torch.utils.data import Dataset

import bottleneck
from bottleneck.loader import modes, trees
from bottleneck.loader.trees import is_lazy_image, is_mapped, name_lazy
from tests.loader.engine_bench import NothingBehind, engines, work

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


def test_whether_it_has_been_decoded_makes_a_difference(path):
    image, other = Image.open(path), Image.open(path)
    assert trees.equal(image, other)
    other.load()
    assert not trees.equal(image, other)
    assert is_lazy_image(image)
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


@held
def test_a_map_that_can_be_written_to_is_copied(tmp_path, mapped):
    writable, copier = np.load(tmp_path / "data.npy", mmap_mode="c"), trees.Copier()
    copied = copier.copy(writable)
    assert not is_mapped(copied)
    assert copier.read == {"an array in a memory-mapped file (NumPy)"}


def test_other_lazy_values_are_known_by_their_package():
    lazy = type("Dataset", (), {"__module__": "h5py._hl.dataset"})()
    assert name_lazy(lazy) == "h5py.Dataset"
    assert name_lazy(np.zeros(3)) is None


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
    return [message for id_, message in bench.plan.warnings if id_ == "lazy-values"]


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


def test_images_are_decoded_by_the_collate_function_where_it_does_so(make, path):
    class Given(Opened):
        def __getitem__(self, index):
            return self.load_image(index)

    decoded = []

    def collate(samples):
        decoded.extend(is_lazy_image(image) for image in samples)
        return np.stack([np.array(image) for image in samples])

    bench = make(Given(path), collate_fn=collate)
    decoded.clear()
    for _ in range(3):
        bench.run("before_collate")
    assert decoded == [True] * 6
    assert "in `collate`" in told(bench)[0]


class MarkedOpened(Dataset):
    decoded = 0

    def __init__(self, path):
        self.log, self.now_s, self.path = [], [0.0], path

    def __len__(self):
        return 100

    def __getitem__(self, index):
        return self.decode(self.open(index))

    @bottleneck.stage("open_image")
    def open(self, index):
        return Image.open(self.path)

    @bottleneck.stage("decode_image")
    def decode(self, image):
        type(self).decoded += is_lazy_image(image)
        return np.array(image)


def test_a_marked_stage_gives_images_that_are_not_decoded(make, path):
    bench = make(MarkedOpened(path))
    assert bench.plan.copy_outputs == {"@open_image"}
    MarkedOpened.decoded = 0
    for _ in range(3):
        bench.run(modes.ALL | bench.plan.marks.bit("@open_image"))
    assert MarkedOpened.decoded == 6
    assert "what follows open_image" in told(bench)[0]


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

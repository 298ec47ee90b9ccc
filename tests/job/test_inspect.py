"""Content of a dataset, found by looking: open handles, tokenizers, Python objects, and the paths to them."""

import io
import socket
import sqlite3
import sys
import tarfile
import types
import zipfile
from functools import partial

import numpy as np
import pytest
import torch
from torch.utils.data import Dataset, Subset

from bottleneck.job.inspect import Item, count_objects, find_handles, is_inherited, modules_of, parse_path


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("dataset.transform", ("dataset", "transform")),
        ("steps[0].crop", ("steps", 0, "crop")),
        ("steps.0", ("steps", 0)),
        ("transform.", ("transform",)),
        ("steps[ 2 ]", ("steps", 2)),
        ("a['x.y'][\"z\"]", ("a", Item("x.y"), Item("z"))),
    ],
)
def test_paths_are_read_as_people_write_them(text, path):
    assert parse_path(text) == path


@pytest.mark.parametrize("text", ["", ".", "steps[", "steps[]", "steps]", "a['x", "'x'"])
def test_what_is_no_path_is_refused(text):
    with pytest.raises(ValueError):  # noqa: PT011 - the message does not matter
        parse_path(text)


class Holder(Dataset):
    def __init__(self, **held):
        self.__dict__.update(held)


def found(dataset):
    return {handle.name: handle.kind for handle in find_handles(dataset)}


@pytest.fixture
def archive(tmp_path):
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as file:
        file.writestr("a", b"1")
    with zipfile.ZipFile(tmp_path / "a.zip") as file:
        yield file


def test_an_archive_a_database_a_file_and_a_socket(tmp_path, archive):
    with tarfile.open(tmp_path / "a.tar", "w"):
        pass
    with (
        tarfile.open(tmp_path / "a.tar") as tar,
        (tmp_path / "a.tar").open("rb") as file,
        socket.socket() as connection,
    ):
        database = sqlite3.connect(":memory:")
        dataset = Holder(archive=archive, tar=tar, file=file, database=database, connection=connection)
        assert found(dataset) == {
            "self.archive": "zipfile.ZipFile",
            "self.tar": "tarfile.TarFile",
            "self.file": "an open file",
            "self.database": "sqlite3.Connection",
            "self.connection": "socket.socket",
        }
        database.close()


def test_inside_nested_datasets_containers_and_objects(archive):
    inner = Holder(reader=types.SimpleNamespace(parts=[None, archive]))
    assert found(Subset(inner, [0])) == {"self.dataset.reader.parts[1]": "zipfile.ZipFile"}


def test_what_is_closed_written_to_or_in_memory_does_no_harm(tmp_path, archive):
    archive.close()
    with (
        (tmp_path / "log").open("w") as log,
        (tmp_path / "log").open() as closed,
        tarfile.open(tmp_path / "a.tar", "w") as tar,
        socket.socket() as connection,
    ):
        for each in (closed, tar, connection):
            each.close()
        parts = {"closed": closed, "tar": tar, "connection": connection, "memory": io.BytesIO(b"1")}
        dataset = Holder(archive=archive, log=log, data=torch.zeros(3), **parts)
        assert found(dataset) == {}


def test_a_worker_that_opened_its_own_has_inherited_nothing(archive, tmp_path):
    dataset = Holder(archive=archive)
    (handle,) = find_handles(dataset)
    assert is_inherited(handle, dataset)
    with zipfile.ZipFile(tmp_path / "a.zip") as own:
        assert not is_inherited(handle, Holder(archive=own))
    assert not is_inherited(handle, Holder())
    assert not is_inherited(handle, Holder(archive=None))


N = 20_000


@pytest.mark.parametrize(
    ("value", "objects"),
    [
        ([f"image-{i}.jpg" for i in range(N)], N),
        ([(f"image-{i}.jpg", i % 10) for i in range(N)], 2 * N),  # the tuple and the name; class numbers are shared
        ({f"key-{i}": float(i) for i in range(N)}, 2 * N),
        ({f"key-{i}" for i in range(N)}, N),
        ([{"text": str(i), "label": i + 1000.5} for i in range(N)], 3 * N),
        (np.array([f"image-{i}.jpg" for i in range(N)], dtype=object), N),
    ],
    ids=["list", "pairs", "dict", "set", "records", "object array"],
)
def test_lists_of_a_dataset(value, objects):
    found = count_objects(Holder(samples=value))
    assert found.objects == pytest.approx(objects, rel=0.1)
    assert found.largest == "self.samples"
    assert found.nbytes > objects * 20


@pytest.mark.parametrize(
    "value",
    [
        torch.zeros(N),
        np.zeros(N),
        np.array([f"{i}" for i in range(N)]),
        list(range(10)),
        [index % 10 for index in range(N)],
        [None] * N,
        [["cat", "dog"][index % 2] for index in range(N)],
    ],
    ids=["tensor", "array", "array of text", "short", "small numbers", "nothing", "two names"],
)
def test_what_is_in_one_piece_or_shared_does_not_count(value):
    assert count_objects(Holder(samples=value)).objects < 100


def test_nothing_is_asked_of_a_list_with_code_of_its_own():
    class Lazy(list):
        def __getitem__(self, index):
            raise AssertionError("loads a file")

    assert count_objects(Holder(samples=Lazy(str(i) for i in range(N)))).objects == pytest.approx(N, rel=0.1)


# --- the modules that a dataset's code is in ----------------------------------------------------------------


@pytest.fixture
def package(monkeypatch):
    """Makes modules by name, of what they import and define."""

    def make(name, code=""):
        module = types.ModuleType(name)
        module.__package__ = name.rpartition(".")[0]
        monkeypatch.setitem(sys.modules, name, module)
        exec(code, vars(module))
        return module

    return make


def test_the_modules_of_a_dataset_are_those_of_its_parts_and_what_they_import_of_their_package(package):
    package("shop", "")
    package("shop.decoding", "def decode(): pass")
    package("shop.other", "def unlike(): pass")
    package("elsewhere", "def far(): pass")
    package("shop.flips", "class Flip:\n    def __call__(self, x): return x")
    package("shop.padding", "def pad(samples, to): return samples")
    data = package(
        "shop.data",
        "from torch.utils.data import Dataset\nfrom shop.decoding import decode\nfrom elsewhere import far\n"
        "class Photos(Dataset):\n    pass",
    )
    dataset = data.Photos()
    dataset.steps = [sys.modules["shop.flips"].Flip()]
    found = modules_of(Subset(dataset, [0]), partial(sys.modules["shop.padding"].pad, to=3))
    assert {"shop.data", "shop.decoding", "shop.flips", "shop.padding"} <= found
    assert not {"shop.other", "elsewhere"} & found


def test_modules_of_no_package_are_neighbours(package):
    package("helpers", "def decode(): pass")
    script = package("train", "import helpers\nclass Photos: pass\ndef collate(samples): return samples")
    assert {"train", "helpers"} <= modules_of(script.Photos())
    assert {"train", "helpers"} <= modules_of(None, script.collate)

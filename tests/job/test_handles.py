"""What a dataset holds open is found by looking, wherever it is, and nothing harmless is reported."""

import functools
import io
import socket
import sqlite3
import sys
import tarfile
import types
import zipfile

import pytest
import torch
from torch.utils.data import Dataset, Subset

from bottleneck.job.inspect import find_handles, find_tokenizers, is_inherited


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


def test_classes_that_are_known_by_name_only(monkeypatch):
    module = types.ModuleType("h5py._hl.files")
    kind = type("File", (), {"__module__": "h5py._hl.files", "__bool__": lambda self: self.open})
    module.File = kind
    monkeypatch.setitem(sys.modules, "h5py._hl.files", module)
    file = kind()
    file.open = True
    assert found(Holder(file=file)) == {"self.file": "h5py.File"}
    file.open = False  # as one is after close()
    assert found(Holder(file=file)) == {}


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


def test_a_dataset_that_goes_round_in_circles_or_is_huge_is_looked_at_in_no_time(archive):
    dataset = Holder(samples=[[archive]] * 1000)
    dataset.itself = dataset
    assert found(dataset) == {}  # data, not a holder of a few things


def test_an_object_that_refuses_to_be_looked_into():
    class Shy:
        @property
        def __dict__(self):
            raise RuntimeError("no")

    assert found(Holder(shy=Shy())) == {}


class Tokenizer:
    """Stands for the one of the package `tokenizers`, which is known by its name."""

    __module__ = "tokenizers"


TOKENIZER = Tokenizer()


def collate_with_global(samples):
    return tokenise(samples)


def tokenise(samples):
    return TOKENIZER.encode_batch(samples)


def with_closure(text):
    def collate(samples):
        return text.encode_batch(samples)

    return collate


def plain(samples):
    return torch.stack(samples)


def test_a_tokenizer_that_the_dataset_holds():
    assert find_tokenizers(Holder(tokenizer=TOKENIZER), plain) == ("self.tokenizer",)


@pytest.mark.parametrize(
    ("collate_fn", "name"),
    [
        (collate_with_global, "TOKENIZER"),
        (with_closure(TOKENIZER), "text"),
        (functools.partial(plain, tokenizer=TOKENIZER), "tokenizer"),
        (types.MethodType(plain, types.SimpleNamespace(words=TOKENIZER)), "collate_fn.words"),
    ],
    ids=["a global, two calls away", "a closure", "a partial", "a method's object"],
)
def test_a_tokenizer_that_the_collate_function_uses(collate_fn, name):
    assert find_tokenizers(Holder(), collate_fn) == (name,)


def test_a_fast_tokenizer_of_transformers():
    fast = type("PreTrainedTokenizerFast", (), {"__module__": "transformers.tokenization_utils_fast"})
    slow = type("PreTrainedTokenizer", (), {"__module__": "transformers.tokenization_utils"})
    assert find_tokenizers(Holder(tokenizer=type("BertTokenizerFast", (fast,), {})()), plain) == ("self.tokenizer",)
    assert find_tokenizers(Holder(tokenizer=slow()), plain) == ()


def test_one_tokenizer_is_told_once():
    assert find_tokenizers(Holder(tokenizer=TOKENIZER), collate_with_global) == ("self.tokenizer",)


def test_no_tokenizer_where_there_is_none():
    assert find_tokenizers(Holder(words={"a": 1}), plain) == ()

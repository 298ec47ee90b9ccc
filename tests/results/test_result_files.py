"""Results are read within limits, and written whole or not at all."""

from __future__ import annotations

import os
import stat
import subprocess
import sys

import pytest

from bottleneck.errors import ResultFileError, UsageError
from bottleneck.results import files
from bottleneck.results.files import make_folder, write_files
from bottleneck.results.json import load, save
from tests.support.results_factory import make_empty_result, make_result


def test_what_is_saved_is_loaded(tmp_path):
    path = tmp_path / "result.json"
    save(make_result(), path)
    assert load(path) == make_result()
    assert load(str(path)) == make_result()
    assert os.listdir(tmp_path) == ["result.json"]
    assert path.read_bytes().endswith(b"}\n")


def test_a_failed_write_keeps_the_old_file_and_leaves_no_other(tmp_path, monkeypatch):
    path = tmp_path / "result.json"
    save(make_result(), path)

    def no_space(descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(files.os, "fsync", no_space)
    with pytest.raises(UsageError, match=r"Cannot write .*: no space left on device"):
        save(make_empty_result(), path)
    assert load(path) == make_result()
    assert os.listdir(tmp_path) == ["result.json"]


@pytest.mark.parametrize("last", ["fsync", "replace"])
def test_a_process_that_dies_while_it_writes_leaves_the_old_file_whole(tmp_path, last):
    path = tmp_path / "result.json"
    save(make_result(), path)
    code = (
        "import os, sys; from bottleneck.results import files;"
        f"os.{last} = lambda *_: os._exit(9);"  # as if it were killed: nothing is cleaned up
        "files.write_file(sys.argv[1], '{' * 100_000)"
    )
    assert subprocess.run([sys.executable, "-c", code, str(path)], timeout=60, check=False).returncode == 9
    assert load(path) == make_result()
    save(make_empty_result(), path)  # and its remains are in no way
    assert load(path) == make_empty_result()


def test_a_link_is_followed(tmp_path):
    target, link = tmp_path / "target.json", tmp_path / "link.json"
    save(make_empty_result(), target)
    link.symlink_to(target)
    save(make_result(), link)
    assert link.is_symlink()
    assert load(target) == make_result()


def test_permissions_are_those_of_any_new_file_or_of_the_old_one(tmp_path):
    (tmp_path / "other").touch()
    path = tmp_path / "result.json"
    save(make_result(), path)
    assert stat.S_IMODE(path.stat().st_mode) == stat.S_IMODE((tmp_path / "other").stat().st_mode)
    path.chmod(0o640)
    save(make_result(), path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o640


@pytest.mark.parametrize(
    "place", ["missing/result.json", ".", "a\0b", "file/result.json"], ids=["folder", "is one", "nul", "not one"]
)
def test_a_path_that_cannot_be_written_is_refused_in_one_sentence(tmp_path, place):
    (tmp_path / "file").touch()
    with pytest.raises(UsageError) as caught:
        save(make_result(), f"{tmp_path}/{place}")
    assert caught.value.message.startswith("Cannot write ")
    assert caught.value.remedy
    assert os.listdir(tmp_path) == ["file"]


def test_what_cannot_be_read_is_refused_in_one_sentence(tmp_path):
    binary = tmp_path / "model.pt"
    binary.write_bytes(b"\x80\x02}q\x00")
    for path, said in [
        (tmp_path / "missing.json", "There is no file"),
        (tmp_path, "is a directory"),
        (binary, "not UTF-8"),
    ]:
        with pytest.raises(ResultFileError, match=said) as caught:
            load(path)
        assert caught.value.remedy


def test_no_more_is_read_than_a_result_may_take(tmp_path):
    path = tmp_path / "large.json"
    with open(path, "wb") as stream:
        stream.truncate(files.MAX_RESULT_BYTES + 1)  # sparse: takes no space
    with pytest.raises(ResultFileError, match="is larger than 64 MiB"):
        load(path)


# --- folders of profiles ------------------------------------------------------------------------------------

FILES = {"worker-0.svg": "<svg/>", "worker-0.speedscope.json": "{}"}


def test_all_files_are_written_as_they_are(tmp_path):
    folder = tmp_path / "new" / "folder"
    assert [path.name for path in write_files(FILES, folder)] == list(FILES)
    assert {path.name: path.read_text() for path in folder.iterdir()} == FILES


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("file", "it is a file"),
        ("file/sub", "not a directory"),
        ("", "name is empty"),
        ("x" * 300, "too long"),
        ("a\0b", "null"),
    ],
)
def test_a_bad_folder_is_refused(tmp_path, monkeypatch, name, words):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").touch()
    with pytest.raises(UsageError, match=words):
        write_files(FILES, name)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_without_permission_is_refused(tmp_path):
    (tmp_path / "closed").mkdir(mode=0o500)
    with pytest.raises(UsageError, match="permission denied"):
        make_folder(tmp_path / "closed" / "sub")

"""The files of a profile are written as py-spy made them; a bad folder is refused early."""

import os

import pytest

from bottleneck.errors import UsageError
from bottleneck.results.files import check_folder, write_profile

FILES = {"worker-0.svg": "<svg/>", "worker-0.speedscope.json": "{}"}


def test_all_files_are_written_as_they_are(tmp_path):
    folder = tmp_path / "new" / "folder"
    assert [path.name for path in write_profile(FILES, folder)] == list(FILES)
    assert {path.name: path.read_text() for path in folder.iterdir()} == FILES


def test_a_folder_that_can_be_made_is_accepted_and_not_made_yet(tmp_path):
    check_folder(tmp_path / "a" / "b")
    check_folder(tmp_path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("file", "it is a file"),
        ("file/sub", "is a file"),
        ("", "name is empty"),
        ("x" * 300, "too long"),
        ("a\0b", "null"),
    ],
)
def test_a_bad_folder_is_refused(tmp_path, monkeypatch, name, words):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").touch()
    with pytest.raises(UsageError, match=words):
        check_folder(name)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_without_permission_is_refused(tmp_path):
    (tmp_path / "closed").mkdir(mode=0o500)
    with pytest.raises(UsageError, match="permission denied"):
        check_folder(tmp_path / "closed" / "sub")


def test_a_folder_that_went_away_is_told(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(UsageError, match="Cannot write the flamegraphs"):
        write_profile(FILES, tmp_path / "file")

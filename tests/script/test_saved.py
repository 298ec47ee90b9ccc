"""What a script saves while it is measured."""

from pathlib import Path

import pytest
import torch

from bottleneck.script.seen import Saved


@pytest.fixture
def saved(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    found = Saved()
    found.begin()
    yield found
    found.end()


def said(found):
    [warning] = found.warnings()
    assert warning.id == "saved-while-measured"
    return warning.message


@pytest.mark.parametrize("path", [lambda name: name, Path, lambda name: str(Path(name).absolute())])
def test_a_saved_file_is_named_once_from_the_working_directory(saved, path):
    for _ in range(2):
        torch.save({}, path("model.pt"))
    assert "saved model.pt. Weights" in said(saved)
    assert Path("model.pt").exists()


def test_of_many_files_three_are_named(saved):
    for number in range(5):
        torch.save({}, f"{number}.pt")
    assert "saved 5 files, such as 0.pt, 1.pt and 2.pt. Weights" in said(saved)

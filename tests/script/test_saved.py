"""What a script saves while it is measured."""

import io
import os
import sys
from pathlib import Path
from types import ModuleType

import pytest
import torch

from bottleneck.script.saved import Saved


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


def test_nothing_is_said_where_nothing_was_saved(saved):
    torch.save({}, io.BytesIO())
    assert not list(saved.warnings())


@pytest.mark.parametrize("path", [lambda name: name, Path, lambda name: str(Path(name).absolute())])
def test_a_saved_file_is_named_once_from_the_working_directory(saved, path):
    for _ in range(2):
        torch.save({}, path("model.pt"))
    assert "saved model.pt. Weights" in said(saved)
    assert Path("model.pt").exists()


def test_the_path_may_be_given_by_its_name_and_the_directory_be_another(saved, tmp_path, monkeypatch):
    (tmp_path / "out").mkdir()
    monkeypatch.chdir("out")
    torch.save(obj={}, f="model.pt")
    assert "saved out/model.pt. Weights" in said(saved)


def test_of_many_files_three_are_named(saved):
    for number in range(5):
        torch.save({}, f"{number}.pt")
    assert "saved 5 files, such as 0.pt, 1.pt and 2.pt. Weights" in said(saved)


def test_no_home_directory_is_named(tmp_path, monkeypatch):
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    monkeypatch.setenv("HOME", str(tmp_path))
    found = Saved()
    found.begin()
    try:
        torch.save({}, tmp_path / "model.pt")
    finally:
        found.end()
    assert str(tmp_path) not in said(found)
    assert "~/model.pt" in said(found)


def test_what_could_not_be_saved_is_not_named(saved):
    with pytest.raises(RuntimeError, match="does not exist"):
        torch.save({}, "nowhere/model.pt")
    assert not list(saved.warnings())


def test_nothing_is_noted_before_or_after(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    original, found = torch.save, Saved()
    torch.save({}, "before.pt")
    found.begin()
    found.end()
    assert torch.save is original
    torch.save({}, "after.pt")
    assert not list(found.warnings())


def test_what_others_have_put_in_its_place_stays(monkeypatch):
    monkeypatch.setattr(torch, "save", torch.save)  # put back at the end
    found = Saved()
    found.begin()
    other = torch.save = lambda *_: None
    found.end()
    assert torch.save is other


def test_a_working_directory_that_was_removed_does_no_harm(saved, tmp_path, monkeypatch):
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir("gone")
    os.rmdir(tmp_path / "gone")
    torch.save({}, tmp_path / "model.pt")
    assert "saved model.pt. Weights" in said(saved)


def test_what_safetensors_saves_is_seen_under_any_name_that_it_was_imported_by(tmp_path, monkeypatch):
    module = ModuleType("safetensors.torch")
    module.serialize_file = lambda _tensors, _filename, metadata=None: None

    def save_file(tensors, filename, metadata=None):
        module.serialize_file(tensors, filename, metadata=metadata)

    monkeypatch.setitem(sys.modules, "safetensors.torch", module)
    monkeypatch.chdir(tmp_path)
    found = Saved()
    found.begin()
    save_file({}, tmp_path / "model.safetensors")
    found.end()
    assert "saved model.safetensors. Weights" in said(found)


def test_a_file_elsewhere_than_on_disk_is_named_as_it_is(monkeypatch):
    class TorchCheckpointIO:
        def save_checkpoint(self, checkpoint, path, storage_options=None):
            torch.save(checkpoint, io.BytesIO())

    module = ModuleType("lightning.fabric.plugins.io.torch_io")
    module.TorchCheckpointIO = TorchCheckpointIO
    monkeypatch.setitem(sys.modules, module.__name__, module)
    original = TorchCheckpointIO.save_checkpoint
    found = Saved()
    found.begin()
    TorchCheckpointIO().save_checkpoint({}, path="s3://bucket/last.ckpt")
    found.end()
    assert "saved s3://bucket/last.ckpt. Weights" in said(found)
    assert TorchCheckpointIO.save_checkpoint is original

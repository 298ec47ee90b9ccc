"""What a script saves while it is measured."""

import io
import sys
from pathlib import Path
from types import ModuleType

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

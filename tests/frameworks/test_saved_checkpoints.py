"""Files that frameworks save while they are measured, with their own functions."""

import safetensors.torch
import torch
from lightning.fabric.plugins.io.torch_io import TorchCheckpointIO
from safetensors.torch import save_file, save_model

from bottleneck.script.seen import Saved


def test_files_of_safetensors_and_lightning_are_listed(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    original, saved = safetensors.torch.serialize_file, Saved()
    saved.begin()
    save_file({"weight": torch.zeros(2)}, "tensors.safetensors")
    save_model(torch.nn.Linear(1, 1), "model.safetensors")
    TorchCheckpointIO().save_checkpoint({"epoch": 1}, tmp_path / "out" / "last.ckpt")
    saved.end()
    [warning] = saved.warnings()
    assert "saved tensors.safetensors, model.safetensors and out/last.ckpt. These weights" in warning.message
    assert safetensors.torch.serialize_file is original

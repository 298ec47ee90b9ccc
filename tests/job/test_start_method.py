"""How workers start: as the loader says, or as Python does by itself."""

import pytest
import torch
from torch.utils.data import DataLoader

from bottleneck.job.loader_args import default_start_method, start_method_of


@pytest.mark.parametrize("context", ["spawn", torch.multiprocessing.get_context("spawn")])
def test_it_is_the_loaders_own(context):
    assert start_method_of(DataLoader([1], num_workers=1, multiprocessing_context=context)) == "spawn"


def test_else_it_is_the_default_which_asking_does_not_fix(monkeypatch):
    def ask(allow_none=False):
        assert allow_none

    monkeypatch.setattr("multiprocessing.get_start_method", ask)
    assert start_method_of(DataLoader([1], num_workers=1)) == default_start_method()

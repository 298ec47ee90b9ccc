"""What the page about other tools says that we ran ourselves."""

import cProfile
import io
import pstats
from pathlib import Path

import pytest
import torch
from torch.utils.data import DataLoader, Dataset

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "comparison.md").read_text(encoding="utf-8")
WAIT = "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__"


class Sorted(Dataset):
    def __len__(self):
        return 8

    def __getitem__(self, index):
        return torch.rand(100).sort()[0]


def go_through(workers):
    for batch in DataLoader(Sorted(), batch_size=4, num_workers=workers):
        batch.sum()


def functions_seen(workers):
    profile = cProfile.Profile()
    profile.runcall(go_through, workers)
    printed = io.StringIO()
    pstats.Stats(profile, stream=printed).print_stats(Path(__file__).name)
    return printed.getvalue()


def operators_seen(workers):
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        go_through(workers)
    return {event.key for event in profile.key_averages()}


@pytest.mark.integration
def test_cprofile_sees_a_dataset_in_the_main_process_and_not_in_workers():
    assert "(__getitem__)" in functions_seen(0)
    assert "(__getitem__)" not in functions_seen(1)


@pytest.mark.integration
def test_the_torch_profiler_sees_a_dataset_in_the_main_process_and_not_in_workers():
    assert WAIT in PAGE
    assert "aten::sort" in operators_seen(0)
    seen = operators_seen(1)
    assert WAIT in seen
    assert "aten::sort" not in seen

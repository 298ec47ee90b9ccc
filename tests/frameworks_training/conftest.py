"""Train steps of these tests compute on one core: where others want the cores too, two threads wait for each other."""

from pathlib import Path

import pytest
import torch


@pytest.fixture(autouse=True)
def one_thread():
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What is in this folder runs in a target of its own: `make test-frameworks`."""
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker("frameworks")

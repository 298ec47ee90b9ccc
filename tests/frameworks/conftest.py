"""What the tests of every framework share."""

from pathlib import Path

import pytest

from bottleneck.job import marks


@pytest.fixture(autouse=True)
def no_mark_stays(monkeypatch):
    """A stage that one test marks is not looked for in the next."""
    monkeypatch.setattr(marks, "names", set())


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What is in this folder runs in a target of its own: `make test-frameworks`."""
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker("frameworks")

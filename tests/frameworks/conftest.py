"""Fixtures for the tests of every framework."""

import pytest

from bottleneck.job import marks


@pytest.fixture(autouse=True)
def no_mark_stays(monkeypatch):
    """A stage that one test marks is not looked for in the next."""
    monkeypatch.setattr(marks, "names", {})

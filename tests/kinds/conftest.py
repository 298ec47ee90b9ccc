"""The diagnoses of this folder are asked for a name, and not how precise their numbers are."""

import pytest

from bottleneck.measure.rounds import schedule
from tests.support.sessions import MIN_BLOCK_S


@pytest.fixture(autouse=True)
def short_blocks(monkeypatch):
    """More rounds fit into a budget: beside other tests they tell more than longer blocks do."""
    monkeypatch.setattr(schedule, "MIN_BLOCK_S", MIN_BLOCK_S)

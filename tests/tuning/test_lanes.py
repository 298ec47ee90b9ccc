"""Variants of a job that take turns: in what order they begin, what they leave behind, and what memory is theirs."""

import pytest

from bottleneck.tuning.lane import open_lane
from tests.tuning.test_changes import Pictures, pictures_job


class Noted(Pictures):
    """Notes each sample that is made."""

    def __init__(self, transform, notes):
        super().__init__(transform)
        self.notes = notes

    def __getitem__(self, index):
        self.notes.append("load")
        return super().__getitem__(index)


@pytest.mark.parametrize("whole_epochs", [False, True], ids=["running", "whole epochs"])
def test_nothing_is_loaded_while_the_first_steps_run(whole_epochs):
    # Guards: the first step may record CUDA graphs, and to pin a batch meanwhile is an error of both.
    notes, given = [], pictures_job(num_workers=0)

    def step(batch):
        return notes.append("step")

    given = given.replace(dataset=Noted(given.dataset.transform, notes), train_step=step)
    open_lane(given, 60.0, whole_epochs=whole_epochs).close()
    assert notes[-3:] == ["step"] * 3
    assert "load" in notes[:-3]
    assert "step" not in notes[:-3]

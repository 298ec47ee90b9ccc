"""Variants of a job that take turns: in what order they begin, what they leave behind, and what memory is theirs."""

import gc
import weakref

import pytest

from bottleneck.tuning.change import Setting, build
from bottleneck.tuning.changes import BUILT_IN
from bottleneck.tuning.lane import open_lane
from bottleneck.tuning.lanes import Lanes
from tests.tuning.test_changes import Pictures, pictures_job

BY_NAME = {change.name: change for change in BUILT_IN}


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


@pytest.mark.parametrize("whole_epochs", [False, True], ids=["running", "whole epochs"])
def test_a_closed_variant_gives_the_memory_of_its_model_back_at_once(whole_epochs):
    given = pictures_job(num_workers=0)
    changed = build(given, (Setting(BY_NAME["channels_last"]),))
    weight = weakref.ref(next(changed.model.parameters()))
    lane = open_lane(changed, 60.0, whole_epochs=whole_epochs)
    del changed
    gc.disable()
    try:
        lane.close()
        assert weight() is None
    finally:
        gc.enable()


def test_all_lanes_are_closed_also_where_one_of_them_fails():
    closed = []

    class Failing:
        setup_s = 0.0

        def __init__(self, pipeline, budget_s, *, whole_epochs):
            pass

        def close(self):
            closed.append(self)
            raise RuntimeError("CUDA error: an illegal memory access was encountered")

    lanes = Lanes(pictures_job(), Failing, 60.0)
    for whole_epochs in (False, True):
        lanes.open((), whole_epochs=whole_epochs)
    with pytest.raises(RuntimeError, match="illegal memory access"):
        lanes.close()
    assert len(closed) == 2

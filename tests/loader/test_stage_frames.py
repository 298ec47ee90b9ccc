"""The user's code runs under frames that are named after its stages, and comes out the same."""

import sys

import pytest
import torch
from torch.utils.data import Dataset, default_collate

from bottleneck.job import marks
from bottleneck.job.cuts import find_sites
from bottleneck.loader.calls import Tape
from bottleneck.loader.cut import install
from bottleneck.loader.observe import StageFrames, run_in_stage, stage_of_frame
from bottleneck.loader.plan import MarkPlan, Plan
from bottleneck.loader.user_code import UserCode, UserCodeError

seen = []


def note(what):
    """Keep what runs and the stages around it, outermost first."""
    frame, stages = sys._getframe(1), []
    while frame is not None:
        stage = stage_of_frame(frame.f_code.co_name, frame.f_code.co_filename)
        if stage is not None:
            stages.insert(0, stage)
        frame = frame.f_back
    seen.append((what, tuple(stages)))


class Augment:
    def __call__(self, image):
        note("augment")
        return image + 1


@marks.stage("my decode")
def decode(index):
    note("decode")
    return torch.tensor([float(index)])


class Photos(Dataset):
    def __init__(self):
        self.transform = Augment()

    def __len__(self):
        return 10

    def __getitem__(self, index):
        if index > 5:
            raise ValueError("no such photo")
        image = decode(index)
        note("load")
        image = self.transform(image)
        note("finish")
        return image


def collate(samples):
    note("collate")
    return default_collate(samples)


CUT = Plan("template", sites=("transform",), within_sample=("augment", "load"))


def make(plan=CUT):
    seen.clear()
    dataset, tape = Photos(), Tape()
    install(dataset, find_sites(dataset), tape)
    frames = StageFrames(UserCode(dataset, collate, 0, batched=True), tape)
    frames.plan = plan
    return frames


def test_a_cut_runs_under_its_stage_inside_that_of_the_code_around_it():
    samples = make().fetch([3])
    assert samples == [torch.tensor([4.0])]
    assert seen == [
        ("decode", ("load",)),
        ("load", ("load",)),
        ("augment", ("load", "augment")),
        ("finish", ("load",)),
    ]


def test_marked_stages_have_frames_of_their_own():
    make(Plan("marks", within_sample=("other",), marks=MarkPlan(sample=("@my decode",)))).fetch([3])
    assert ("decode", ("other", "my decode")) in seen
    assert ("augment", ("other",)) in seen


def test_collation_has_a_frame():
    frames = make()
    batch = frames.collate(frames.fetch([1, 2]))
    assert batch.tolist() == [[2.0], [3.0]]
    assert seen[-1] == ("collate", ("collate",))


def test_failures_of_the_users_code_are_told_and_handlers_taken_away():
    frames = make()
    with pytest.raises(UserCodeError):
        frames.fetch([7])
    assert marks.handler is None
    assert frames._tape.handler is None


@pytest.mark.parametrize("stage", ["load", "a b", "50 %; (x)", "stage:load", "äöü"])
def test_any_name_of_a_stage_can_be_read_back(stage):
    def look():
        code = sys._getframe(1).f_code
        return code.co_name, code.co_filename

    name, file = run_in_stage(stage, look, (), {})
    assert ";" not in name
    assert " " not in name
    assert stage_of_frame(name, file) == stage


def test_a_function_of_the_users_with_such_a_name_is_no_stage():
    assert stage_of_frame("stage:load", "/jobs/data.py") is None
    assert stage_of_frame("load", "/jobs/data.py") is None

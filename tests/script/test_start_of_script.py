"""Observations of a script from its beginning to its first step; clock and samples are invented."""

import builtins
import os
import sys
from types import SimpleNamespace

import pytest
from torch.utils.data import DataLoader, Dataset, Subset

from bottleneck.loader.observing.meter import Spent
from bottleneck.script.around import Place, is_guarded
from bottleneck.script.iterators import Source
from bottleneck.script.starting import StartUp, _imported
from tests.support.clock import FakeClock


class Sampler:
    """Samples when the test says so."""

    def __init__(self, see):
        self.see, self.is_on = see, False

    def start(self):
        self.is_on = True

    def stop(self):
        self.is_on = False


class Photos(Dataset):
    def __init__(self, sample, seconds):
        sample(seconds)

    def __len__(self):
        return 4

    def __getitem__(self, index):
        return index


@pytest.fixture
def script():
    """A script under watch, with what passes time in it."""
    clock, samplers = FakeClock(), []

    def sampler(see):
        samplers.append(Sampler(see))
        return samplers[0]

    start_up = StartUp(imported_s=1.5, clock=clock, sampler=sampler)

    def spend(seconds):
        clock.advance(seconds)
        if samplers[0].is_on:
            samplers[0].see(sys._getframe(1), Spent(seconds, seconds))

    return SimpleNamespace(start_up=start_up, clock=clock, spend=spend, sampler=samplers[0])


def parts_of(starting):
    return {part.name: pytest.approx(part.seconds) for part in starting.parts}


def train(script, source, waits_s=2.0, step_s=0.25):
    """The first pass over a loader, up to the second batch."""
    script.start_up.pass_begins(source)
    script.spend(waits_s)
    script.start_up.gives(source, waits_s)
    script.spend(step_s)
    script.spend(0.125)
    script.start_up.gives(source, 0.125)


def test_each_part_has_its_time(script):
    script.start_up.begin()
    dataset = Photos(script.spend, 3.0)
    script.spend(1.0)
    source = Source(DataLoader(dataset))
    train(script, source)
    found = script.start_up.evidence(source)
    assert parts_of(found) == {
        "imports": 1.5, "making the dataset": 3.0, "other code before the loop": 1.0, "starting workers": 2.0,
        "first step": 0.25,
    }  # fmt: skip
    assert found.seconds == pytest.approx(7.75)


def test_the_costliest_lines_come_with_their_code(script):
    script.start_up.begin()
    dataset = Photos(script.spend, 3.0)
    script.spend(1.0)
    source = Source(DataLoader(dataset))
    train(script, source)
    first, second = script.start_up.evidence(source).lines
    assert (first.part, first.code, first.seconds) == ("making the dataset", "sample(seconds)", pytest.approx(3.0))
    assert (second.part, second.code) == ("other code before the loop", "script.spend(1.0)")
    assert first.path.endswith("test_start_of_script.py")


def test_a_dataset_within_others_is_found(script):
    script.start_up.begin()
    source = Source(DataLoader(Subset(Photos(script.spend, 3.0), [0])))
    train(script, source)
    assert parts_of(script.start_up.evidence(source))["making the dataset"] == 3.0


def test_an_import_is_told_by_the_statement_of_the_script(script, tmp_path, monkeypatch):
    # Also where a module that it imports imports another one, which takes the time.
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(builtins, "spend_in_test", script.spend, raising=False)
    (tmp_path / "outer_of_test.py").write_text("import inner_of_test\n")
    (tmp_path / "inner_of_test.py").write_text("spend_in_test(4.0)\n")
    script.start_up.begin()
    import outer_of_test  # noqa: F401 - its import is measured

    source = Source(DataLoader(Photos(lambda _: None, 0.0)))
    train(script, source)
    found = script.start_up.evidence(source)
    assert parts_of(found)["imports"] == 5.5
    assert found.lines[0].code.startswith("import outer_of_test")


NEEDED = """\
from torch.utils.data import Dataset
spend_in_test(4.0)
class Sounds(Dataset):
    def __len__(self):
        return 4
    def run(self, evidence):
        return evidence()
"""


def test_an_import_of_what_the_training_consists_of_is_known_as_needed(script, tmp_path, monkeypatch):
    # Guards: users were told to import later what runs their loop, such as Lightning.
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(builtins, "spend_in_test", script.spend, raising=False)
    (tmp_path / "sounds_of_test.py").write_text(NEEDED)
    script.start_up.begin()
    import sounds_of_test as sounds

    def needed_by(dataset, *trained, run=lambda evidence: evidence()):
        source = Source(DataLoader(dataset))
        train(script, source)
        (line,) = run(lambda: script.start_up.evidence(source, *trained)).lines
        return line.code.startswith("import sounds_of_test"), line.needed

    other = Photos(lambda _: None, 0.0)
    assert needed_by(other) == (True, None)
    assert needed_by(sounds.Sounds()) == (True, True)
    assert needed_by(other, sounds.Sounds()) == (True, True)
    assert needed_by(other, run=sounds.Sounds().run) == (True, True)


@pytest.mark.parametrize(
    ("code", "packages"),
    [
        ("import lightning.pytorch as pl, pandas", ["lightning", "pandas"]),
        ("from transformers import (", ["transformers"]),
        ("from .models import Net", [""]),
        ("import slow  # for plots, later", ["slow"]),
        ("model = build()", []),
    ],
)
def test_the_packages_of_a_line_are_read_from_its_code(code, packages):
    assert list(_imported(code)) == packages


def test_other_loaders_before_the_loop_are_a_part_of_their_own(script):
    script.start_up.begin()
    other, source = Source(DataLoader(Photos(script.spend, 1.0))), Source(DataLoader(Photos(script.spend, 1.0)))
    train(script, other, waits_s=3.0)
    assert not script.sampler.is_on
    train(script, source)
    found = parts_of(script.start_up.evidence(source))
    assert found["other loaders before the loop"] == 3.375
    assert found["starting workers"] == 2.0


def test_a_loop_that_is_fed_from_its_second_batch_on_has_a_first_step(script):
    script.start_up.begin()
    source = Source(DataLoader(Photos(script.spend, 1.0)))
    script.start_up.pass_begins(source)
    script.spend(2.0)
    script.start_up.gives(source, 2.0)
    script.spend(0.5)
    assert parts_of(script.start_up.evidence(source))["first step"] == 0.5


def test_without_samples_the_time_before_the_loop_is_one_part(script):
    # Guards: Python without a GIL, where no thread can be sampled.
    script.start_up.begin()
    script.clock.advance(5.0)
    source = Source(DataLoader(Photos(lambda _: None, 0.0)))
    train(script, source)
    found = script.start_up.evidence(source)
    assert parts_of(found)["other code before the loop"] == 5.0
    assert found.lines == ()


def test_what_was_never_begun_knows_nothing(script):
    source = Source(DataLoader(Photos(script.spend, 1.0)))
    train(script, source)
    assert script.start_up.evidence(source) is None


GUARDED = """
import argparse
if __name__ == "__main__":
    import pandas
    if argparse:
        train()
else:
    import numpy
if argparse:
    import scipy
def main():
    import torch
"""


@pytest.mark.parametrize(("line", "guarded"), [(2, False), (4, True), (6, True), (10, False), (12, False)])
def test_what_is_under_the_guard_of_main_is_not_run_by_workers(tmp_path, line, guarded):
    path = tmp_path / "train.py"
    path.write_text(GUARDED)
    assert is_guarded(Place(os.fspath(path), line)) is guarded


def test_a_line_of_the_module_itself_is_run_again_by_workers(script, tmp_path):
    path = tmp_path / "train.py"
    path.write_text('spend(2.0)\nif __name__ == "__main__":\n    spend(1.0)\n')
    script.start_up.begin()
    exec(compile(path.read_text(), path, "exec"), {"__name__": "__main__", "spend": script.spend})
    source = Source(DataLoader(Photos(lambda _: None, 0.0)))
    train(script, source)
    again = {line.line: line.again for line in script.start_up.evidence(source).lines}
    assert again == {1: True, 3: False}

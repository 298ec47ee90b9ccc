"""Places in the user's source: found where only one fits, and nothing said where several might."""

from __future__ import annotations

import importlib.util
import sys

import pytest
from torch.utils.data import BatchSampler, DataLoader

from bottleneck.analysis.edits.edits import edit_of
from bottleneck.measure.evidence import source
from bottleneck.results.evidence import Evidence, TransformSeen
from bottleneck.results.records import Advice

SCRIPT = """\
from torch.utils.data import DataLoader, Dataset


WORKERS = 0


class Photos(Dataset):
    def __len__(self):
        return 8

    def __getitem__(self, index):
        return index


def build():
    augment = Compose([  # µ
        ColorJitter(0.4, 0.4), Flip(),
        Crop(
            160,
        ),
    ])
    test = DataLoader(Photos(), batch_size=4, num_workers=0)
    return DataLoader(
        Photos(), batch_size=4,
        shuffle=True, num_workers=WORKERS,
    )
"""
SEEN = tuple(
    TransformSeen(stage="augment", path=f"transform.transforms[{at}]", name=name)
    for at, name in enumerate(["ColorJitter", "Flip", "Crop"])
)


@pytest.fixture
def training(tmp_path, monkeypatch):
    """Make a module of the user's, imported from the working directory, out of a text."""
    monkeypatch.chdir(tmp_path)
    # The modules of the tests are the user's too, and there are many.
    monkeypatch.setattr(source, "is_users", lambda file: file == str(tmp_path / "train.py"))

    def make(text):
        (tmp_path / "train.py").write_text(text, encoding="utf-8")
        spec = importlib.util.spec_from_file_location("train_of_test", tmp_path / "train.py")
        module = importlib.util.module_from_spec(spec)
        monkeypatch.setitem(sys.modules, "train_of_test", module)
        spec.loader.exec_module(module)
        return module

    return make


def places(module, transforms=SEEN, **order):
    loader = DataLoader(module.Photos(), batch_size=4, **(order or {"shuffle": True}))
    return {place.name: place for place in source.find_places(loader, transforms)}


def advised(proposed):
    return Advice("an-id", None, "", "", "", {"proposed": proposed})


def edit(found, proposed):
    evidence = Evidence(transforms=SEEN, source=tuple(found.values()))
    return edit_of(advised(proposed), {"num_workers": 0}, evidence)


def test_the_training_loader_is_told_from_others_and_its_arguments_are_changed_or_added(training):
    found = places(training(SCRIPT))
    workers = edit(found, {"num_workers": 2})
    assert workers.place == "train.py:25"
    assert workers.lines == "-        shuffle=True, num_workers=WORKERS,\n+        shuffle=True, num_workers=2,"
    kept = edit(found, {"persistent_workers": True})
    assert kept.lines.splitlines()[1] == "+        shuffle=True, num_workers=WORKERS, persistent_workers=True,"


def test_transforms_change_places_whatever_lines_they_stand_on(training):
    found = places(training(SCRIPT))
    moved = edit(found, {"order": [SEEN[at].path for at in (2, 0, 1)]})
    assert moved.place == "train.py:17"
    assert [line[1:].strip() for line in moved.lines.splitlines() if line[0] != "-"] == [
        *("Crop(", "160,", "), ColorJitter(0.4, 0.4),", "Flip(),")
    ]


def test_the_method_that_loads_is_found(training):
    assert (found := places(training(SCRIPT))["__getitem__"]).line == 11
    assert found.text == ""


@pytest.mark.parametrize(
    "change",
    [
        ("num_workers=WORKERS,\n    )", "num_workers=WORKERS, **more)\n"),
        ("DataLoader(Photos(), batch_size=4,", "DataLoader(Photos(), shuffle=True, batch_size=4,"),
        ("batch_size=4", "batch_size=8"),
    ],
    ids=["a mapping", "two that shuffle", "other values"],
)
def test_what_may_be_another_loader_is_left_out(training, change):
    found = places(training(SCRIPT.replace("def build():", "more = {}\n\n\ndef build():").replace(*change)))
    assert "num_workers" not in found


def test_of_a_loader_with_a_sampler_no_call_that_shuffles_is_taken(training):
    sampled = SCRIPT.replace("shuffle=True, num_workers=WORKERS", "sampler=[0, 1, 2, 3], num_workers=WORKERS")
    found = places(training(sampled.replace("num_workers=0)", "num_workers=0, shuffle=True)")), sampler=[0, 1, 2, 3])
    assert found["num_workers"].line == 25


@pytest.mark.parametrize(
    ("given", "after"),
    [
        ("shuffle=(1 > 0), num_workers=(WORKERS or 0)", "shuffle=(1 > 0), num_workers=2"),
        ("num_workers=WORKERS, shuffle=((1 > 0))", "num_workers=2, shuffle=((1 > 0))"),
        ("shuffle=(1 > 0)", "shuffle=(1 > 0), num_workers=2"),
    ],
)
def test_brackets_around_a_value_are_a_part_of_it(training, given, after):
    script = SCRIPT.replace("shuffle=True, num_workers=WORKERS", given).replace(
        "batch_size=4, num", "batch_size=2, num"
    )
    assert f"+        {after}," in edit(places(training(script)), {"num_workers": 2}).lines.splitlines()


def test_what_is_given_without_a_name_is_not_given_again(training):
    found = places(training(SCRIPT.replace("Photos(), batch_size=4,\n", "Photos(), 4,\n")))
    assert "num_workers" in found
    assert "batch_size" not in found


def test_the_call_that_made_another_loader_is_found_where_it_is_the_only_one(training):
    module = training(SCRIPT.replace("batch_size=4, num_workers=0", "batch_size=2, num_workers=0"))
    assert source.maker_of(DataLoader(module.Photos(), batch_size=2)) == ("train.py", 22)
    assert source.maker_of(DataLoader(training(SCRIPT).Photos(), batch_size=4)) is None  # two may have


class Share(BatchSampler):
    """As accelerate has it around a batch sampler of PyTorch's."""

    def __init__(self, batch_sampler):
        self.batch_sampler = batch_sampler


@pytest.mark.parametrize("share", [lambda batches: batches, Share, lambda batches: Share(Share(batches))])
@pytest.mark.parametrize(("shuffle", "lines"), [("True", {25}), ("False", set())])
def test_a_loader_made_again_around_its_batches_is_not_taken_for_that_of_the_validation(
    training, share, shuffle, lines
):
    script = SCRIPT.replace("batch_size=4, num_workers=0", "batch_size=WORKERS, num_workers=0")
    module = training(script.replace("shuffle=True", f"shuffle={shuffle}"))
    made = DataLoader(module.Photos(), batch_size=4, shuffle=shuffle == "True").batch_sampler
    found = source.find_places(DataLoader(module.Photos(), batch_sampler=share(made)), ())
    assert {place.line for place in found if place.name == "num_workers"} == lines
    own = DataLoader(module.Photos(), batch_sampler=[[0, 1], [2]])
    assert {place.name for place in source.find_places(own, ())} == {"__getitem__"}


def test_without_a_place_an_edit_is_written_with_dots():
    evidence = Evidence(transforms=SEEN)
    assert edit_of(advised({"num_workers": 2}), {"num_workers": 0}, evidence).lines == (
        "-DataLoader(..., num_workers=0)\n+DataLoader(..., num_workers=2)"
    )
    moved = edit_of(advised({"order": [SEEN[at].path for at in (2, 0, 1)]}), {}, evidence)
    assert moved.lines == "+Crop(...),\n ColorJitter(...),\n Flip(...),\n-Crop(...),"
    assert moved.place == ""

"""The patch of a tuning: git takes it, it says what the lines say, and it changes nothing that is in doubt."""

import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from torch.utils.data import DataLoader

from bottleneck.analysis.edits.patch import in_one_call, patch_of, shown
from bottleneck.measure.evidence import source
from bottleneck.results.evidence import SourcePlace
from tests.measure.test_source import training  # noqa: F401 - a fixture
from tests.support.tuning_factory import make_tuning

WORKERS, KEPT = "DataLoader(..., num_workers=4)", "DataLoader(..., persistent_workers=True)"


def read(name):
    return Path(name).read_bytes().decode()


def tuned(loader, *lines):
    tuning = make_tuning()
    places = source.find_places(loader, ())
    before = replace(tuning.before, evidence=replace(tuning.before.evidence, source=places))
    return replace(tuning, lines=lines, before=before)


def patched(patch):
    Path("tuned.diff").write_bytes(patch.text.encode())
    subprocess.run(["git", "apply", "tuned.diff"], check=True, capture_output=True)
    return read("train.py")


SCRIPT = """\
from torch.utils.data import DataLoader
Photos = lambda: [0] * 8  # µ
test = DataLoader(Photos(), batch_size=2)
train = {call}
last = 1"""


@pytest.mark.parametrize(
    ("call", "lines", "then"),
    [
        ("DataLoader(Photos(), batch_size=4)", (WORKERS,), "DataLoader(Photos(), batch_size=4, num_workers=4)"),
        (
            "DataLoader(Photos(), 4, True)",
            (WORKERS, KEPT),
            "DataLoader(Photos(), 4, True, num_workers=4, persistent_workers=True)",
        ),
        (
            "DataLoader(\n    Photos(), batch_size=4,  # many\n    num_workers=1, in_order=True,\n)",
            (WORKERS, "DataLoader(..., in_order=False)", KEPT),
            "DataLoader(\n    Photos(), batch_size=4,  # many\n"
            "    num_workers=4, in_order=False, persistent_workers=True,\n)",
        ),
        (
            "DataLoader(Photos(), num_workers=1, batch_size=4, prefetch_factor=4)",
            ("DataLoader(..., num_workers=0)",),
            "DataLoader(Photos(), num_workers=0, batch_size=4, prefetch_factor=None)",
        ),
    ],
)
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_git_takes_it_and_only_the_call_is_changed(training, call, lines, then, end):  # noqa: F811
    if "in_order" in call:
        pytest.importorskip("torch", minversion="2.6")
    script = SCRIPT.format(call=call)
    module = training(script)
    Path("train.py").write_bytes(script.replace("\n", end).encode())
    made = patch_of(tuned(module.train, *lines), read)
    assert made.left == ()
    assert patched(made) == SCRIPT.format(call=then).replace("\n", end)


def test_what_has_no_sure_place_is_left(training):  # noqa: F811
    module = training(SCRIPT.format(call="DataLoader(Photos(), batch_size=4)"))
    others = ("torch.set_num_threads(1)", "DataLoader(dataset, sampler=BatchSampler(...), batch_size=None)")
    tuning = tuned(module.train, *others, WORKERS)
    assert patch_of(tuning, read).left == others
    Path("train.py").write_text("# edited\n" + read("train.py"))
    assert (patch_of(tuning, read).text, patch_of(tuning, read).left) == ("", (*others, WORKERS))
    Path("train.py").unlink()
    assert patch_of(tuning, read).text == ""
    assert patch_of(replace(tuning, before=None), read).left == (*others, WORKERS)


@pytest.mark.parametrize(
    "call",
    [
        "DataLoader(Photos(), **{'batch_size': 4})",
        "[DataLoader(Photos(), batch_size=4) for _ in (1, 2)][0] or DataLoader(Photos(), batch_size=4)",
    ],
)
def test_of_a_call_that_is_filled_from_a_mapping_and_of_two_alike_nothing_is_changed(training, call):  # noqa: F811
    module = training(SCRIPT.format(call=call))
    assert isinstance(module.train, DataLoader)
    assert patch_of(tuned(module.train, WORKERS), read).text == ""


def test_what_is_set_of_a_loader_is_one_call():
    # Guards: two lines to paste for one call.
    threads, pinned = "torch.set_num_threads(1)", "DataLoader(..., pin_memory=True)\nbatch = batch.to(device)"
    assert in_one_call([WORKERS, threads, KEPT, pinned]) == [
        "DataLoader(..., num_workers=4, persistent_workers=True)", threads, pinned,
    ]  # fmt: skip
    assert in_one_call([threads]) == [threads]


def test_settings_of_another_class_of_loader_keep_its_name():
    rarer = "StatefulDataLoader(..., snapshot_every_n_steps=100)"
    assert in_one_call(["DataLoader(..., num_workers=2)", rarer]) == [
        "StatefulDataLoader(..., num_workers=2, snapshot_every_n_steps=100)"
    ]


STEPS = ("Brightness()", "Blur()", "Clahe()", "Shadow()", "Resize()", "Normalize()")


def moved(texts, order, line=lambda row: 60 + row):
    """Return the diff of steps, one on each line, that are reordered."""
    places = [
        SourcePlace(name=text, file="steer.py", line=line(row), text=f"    {text},", begin=4, end=4 + len(text))
        for row, text in enumerate(texts)
    ]
    return shown([(place, texts[at]) for place, at in zip(places, order, strict=True)])


def test_a_diff_on_the_screen_marks_the_lines_that_it_leaves_out():
    # Guards: two parts glued together, between which two transforms seemed to be taken away.
    assert moved(STEPS, (4, 0, 1, 2, 3, 5)) == [
        "+    Resize(),", "     Brightness(),", " …", "     Shadow(),", "-    Resize(),", "     Normalize(),",
    ]  # fmt: skip
    assert moved(STEPS[:2], (1, 0)) == ["+    Blur(),", "     Brightness(),", "-    Blur(),"]
    apart = moved(("Blur()", "Resize()"), (1, 0), line=lambda row: 60 + 10 * row)
    assert apart == ["-    Blur(),", "+    Resize(),", " …", "-    Resize(),", "+    Blur(),"]

"""The table of changes: the lines to paste, the reference, and the choice among them."""

import ast
import re
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.utils.data import TensorDataset

from bottleneck.errors import UsageError
from bottleneck.job.pipeline import Pipeline
from bottleneck.tuner.change import Change, Setting, build
from bottleneck.tuner.changes import BUILT_IN, choose
from bottleneck.tuner.changes.payload import LowerPrecision, OneHotRows, Unread
from bottleneck.tuner.changes.samples import Moved
from tests.tuning.jobs import BY_NAME, here

ROOT = Path(__file__).parent.parent.parent


VALUES = {
    "fetch_in_threads": 16,
    "num_workers": 2, "prefetch_factor": 4, "start_method": "fork", "worker_threads": 2, "threads": 1, "batch_size": 16,
    "compile": "default", "decode_small": 257, "in_memory": "inputs", "crop_first": Moved(1, 2, ("Crop", "Flip")),
    "smaller_floats": LowerPrecision(("[0]",), "float64", "float32"),
    "one_hot": OneHotRows(("[1]",), 2, 4, "float32"), "leave_out": Unread(("[1]",)),
    "snapshot_every_n_steps": 100,
}  # fmt: skip
"""A value of each change that has values."""


def test_each_change_with_values_has_one_here():
    assert set(VALUES) == {change.name for change in BUILT_IN if change.next_value is not None}


@pytest.mark.parametrize("name", BY_NAME)
def test_the_lines_to_paste_are_python(name):
    lines = Setting(BY_NAME[name], VALUES.get(name)).line("Adam")
    ast.parse(lines)
    assert not re.search(r"\{\w+\}", lines)


def test_no_line_replaces_what_is_the_users_own():
    assert not [change.name for change in BUILT_IN if re.search(r"\b(sampler|worker_init_fn)=", change.line)]


def test_the_reference_has_a_row_for_each_change():
    page = (ROOT / "docs/reference/cli.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `(\w+)` \|(.*)\|$", page.partition("## What `tune` tries")[2].partition("\n## ")[0], re.M)
    told = {name: [cell.strip() for cell in rest.split(" | ")] for name, rest in rows}
    assert list(told) == list(BY_NAME)
    for name, (_, _, alters, source) in told.items():
        assert alters == BY_NAME[name].alters
        assert re.search(r"\((.*)\)", source).group(1) == BY_NAME[name].source
        assert BY_NAME[name].line
    safe = re.search(r"`--safe` \|[^|]*\| (.*) \|", page).group(1)
    assert set(re.findall(r"`(\w+)`", safe)) == {c.name for c in BUILT_IN if c.alters == "numbers"}


# --- the choice -------------------------------------------------------------------------------------------


def test_changes_are_chosen_by_name_and_of_ones_own():
    own = Change("half", apply=lambda pipeline: pipeline)
    assert [change.name for change in choose(["num_workers", own])] == ["num_workers", "half"]
    assert "batch_size" not in [change.name for change in choose(None, ["batch_size"])]
    safe = choose(None, safe=True)
    assert {"autocast", "batch_size"}.isdisjoint(change.name for change in safe)
    assert choose([own], safe=True) == (own,)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((["num_worker"],), "Did you mean 'num_workers'"),
        ((["nonsense"],), "Known changes: num_workers,"),
        ((None, ["batchsize"]), "Did you mean 'batch_size'"),
        ((["compile"], ["compile"]), "No change is left"),
        ((["compile", "compile"],), "occurs twice"),
        (([Change("compile", apply=print), "compile"],), "occurs twice"),
    ],
)
def test_a_bad_choice_is_one_sentence(arguments, said):
    with pytest.raises(UsageError, match=said):
        choose(*arguments)


def test_a_change_has_a_name_and_something_to_apply():
    with pytest.raises(UsageError, match="needs a name"):
        Change("", apply=print)
    with pytest.raises(UsageError, match="cannot be called"):
        Change("half", apply=0.5)
    pipeline = Pipeline(dataset=TensorDataset(torch.zeros(4)), model=nn.Linear(1, 1))
    with pytest.raises(UsageError, match="returned a NoneType, not a Pipeline"):
        build(pipeline, (Change("half", apply=lambda pipeline: None).propose(here(pipeline), {}),))

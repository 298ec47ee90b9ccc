"""The stories: each variant trains, the fix gives the batches that the reported job gives, each script has its page."""

import importlib
from pathlib import Path

import pytest
import torch

from benchmarks import causes

STORIES = Path(__file__).resolve().parents[2] / "examples" / "stories"
NAMES = sorted(path.stem for path in STORIES.glob("*.py"))


def story(name):
    return importlib.import_module(f"examples.stories.{name}")


@pytest.fixture(autouse=True)
def few_rows(monkeypatch):
    monkeypatch.setattr(story("rows_of_a_tensor"), "ROWS", 40_000)


def test_every_story_has_its_page():
    pages = {path.stem for path in STORIES.glob("*.md")} - {"README"}
    assert pages == {*NAMES, "loader_ladder"}  # whose script is one of the bench


def test_the_bench_runs_each():
    assert set(causes.STORIES) == set(NAMES)


def test_rows_come_as_they_did():
    reported, fixed = (next(iter(story("rows_of_a_tensor").make_loader(v))) for v in ("reported", "fixed"))
    assert [part.shape for part in reported] == [part.shape for part in fixed]
    table = story("rows_of_a_tensor").make_loader("reported").dataset.tensors[0]
    rows = {tuple(row) for row in table.tolist()}
    assert all(tuple(row) in rows for row in fixed[0][:100].tolist())


def test_packed_targets_come_out_as_they_went_in():
    module = story("many_small_tensors")
    samples = [module.Pictures()[index] for index in range(module.BATCH)]
    pictures, targets = module.packed(samples)
    whole, each = module.as_they_are(samples)
    assert torch.equal(pictures, whole)
    assert len(targets[0]) == 7
    for found, wanted in zip(module.unpacked(targets), each, strict=True):
        assert found.keys() == wanted.keys()
        assert all(torch.equal(found[name], wanted[name]) for name in wanted)


@pytest.mark.integration
@pytest.mark.untimed
@pytest.mark.parametrize("variant", ["reported", "fixed", "control"])
@pytest.mark.parametrize("name", NAMES)
def test_each_variant_trains_until_it_is_told_to_stop(name, variant):
    module = story(name)
    loader = module.make_loader(variant)
    assert module.train(loader, variant, "cpu", 0.2) > 0

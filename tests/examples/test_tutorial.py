"""The tutorial is true: its page says what this version says of the kept results, and its job can be diagnosed."""

import importlib
import re
import sys
from pathlib import Path

import pytest

from bottleneck.results.json import load
from docs.make import pictures, tutorial

PAGE = tutorial.PAGE.read_text(encoding="utf-8")
AGAIN = "write it again with `make pictures`, and read the difference"
SMALL = {"images": 48, "batch_size": 4, "num_workers": 1}


def test_the_page_is_what_this_version_says_of_the_kept_results():
    assert tutorial.from_kept_results() == PAGE, AGAIN


def test_the_pictures_are_those_of_the_kept_result():
    drawn = pictures.draw(load(pictures.FOLDER / pictures.BASE))
    kept = {name: (pictures.FOLDER / name).read_text(encoding="utf-8") for name in drawn}
    assert set(drawn) == {"terminal.svg", "blocks-light.svg", "blocks-dark.svg"}
    # How rich writes an SVG changes from one of its versions to the next.
    different = [name for name in drawn if drawn[name] != kept[name] and name != "terminal.svg"]
    assert not different, AGAIN
    assert words_of(drawn["terminal.svg"]) == words_of(kept["terminal.svg"]), AGAIN


def words_of(svg):
    return re.findall(r">([^<>]+)</text>", svg)


# --- the job ----------------------------------------------------------------------------------------------


@pytest.fixture(params=["train", "train_fixed"])
def training(request, monkeypatch, tmp_path_factory):
    """A training script of the tutorial, with few photographs, which are drawn once."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.getbasetemp() / "photographs"))
    monkeypatch.syspath_prepend(str(tutorial.EXAMPLE))
    for name in ("train", "train_fixed", "job"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    module = importlib.import_module(request.param)
    monkeypatch.setitem(sys.modules, "train", module)
    make_loader = module.make_loader
    monkeypatch.setattr(module, "make_loader", lambda: make_loader(**SMALL))
    yield module
    for name in ("train", "train_fixed", "job"):
        sys.modules.pop(name, None)


@pytest.mark.integration
@pytest.mark.parametrize("training", ["train"], indirect=True)
def test_the_job_of_the_script_can_be_diagnosed(training, monkeypatch):
    import torch

    from bottleneck.api import diagnose

    threads = torch.get_num_threads()
    try:
        diagnosis = diagnose(importlib.import_module("job").build(), budget="4s", quick=True)
    finally:
        torch.set_num_threads(threads)
    assert [stage.name for stage in diagnosis.stages] == ["compute", "handoff", "collate", "augment", "load"]
    first = diagnosis.evidence.transforms[0]
    assert Path(str(first.path)).name.endswith("transforms[0]")

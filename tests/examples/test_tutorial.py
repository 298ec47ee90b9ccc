"""The tutorial is true: its page says what this version says of the kept results, and its job can be diagnosed."""

import importlib
import re
import sys
from pathlib import Path

import pytest

from bottleneck.results.json import load
from docs.make import pictures, tutorial
from docs.make.page import write_anew

PAGE = tutorial.PAGE.read_text(encoding="utf-8")
ANEW = "write it anew with `make pictures`, and read the difference"
SMALL = {"images": 48, "batch_size": 4, "num_workers": 1}


def test_the_page_is_what_this_version_says_of_the_kept_results():
    assert tutorial.from_kept_results() == PAGE, ANEW


def test_the_pictures_are_those_of_the_kept_result():
    drawn = pictures.draw(load(pictures.FOLDER / pictures.BASE))
    kept = {name: (pictures.FOLDER / name).read_text(encoding="utf-8") for name in drawn}
    assert set(drawn) == {"terminal.svg", "blocks-light.svg", "blocks-dark.svg"}
    # How rich writes an SVG changes from one of its versions to the next.
    different = [name for name in drawn if drawn[name] != kept[name] and name != "terminal.svg"]
    assert not different, ANEW
    assert words_of(drawn["terminal.svg"]) == words_of(kept["terminal.svg"]), ANEW


def words_of(svg):
    return re.findall(r">([^<>]+)</text>", svg)


# --- the pages' machinery ---------------------------------------------------------------------------------


def test_outputs_files_and_differences_are_written_anew(tmp_path):
    (tmp_path / "a.py").write_text("one\ntwo\n")
    (tmp_path / "b.py").write_text("one\n2\n")
    page = (
        "<!-- run -->\n```\nfirst\nsecond\n```\n<!-- shown: x | b -->\n```\nold\n```\n<!-- run quietly: third -->\n"
        "<!-- shown -->\n````markdown\nold\n````\n<!-- file: a.py -->\n```python\nold\n```\n"
        "<!-- diff: a.py b.py -->\n```diff\nold\n```\n"
    )
    printed = {"first": "a\n\n  b 1\n  b 2\n", "second": "\nx\n", "third": "third's\n```\n"}
    assert write_anew(page, tmp_path, printed.get) == (
        "<!-- run -->\n```\nfirst\nsecond\n```\n<!-- shown: x | b -->\n```\nx\n\n  b 1\n  b 2\n```\n"
        "<!-- run quietly: third -->\n<!-- shown -->\n````markdown\nthird's\n```\n````\n"
        "<!-- file: a.py -->\n```python\none\ntwo\n```\n<!-- diff: a.py b.py -->\n"
        "```diff\n@@ -1,2 +1,2 @@\n one\n-two\n+2\n```\n"
    )


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

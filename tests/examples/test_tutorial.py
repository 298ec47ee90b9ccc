"""The tutorial is true: its page says what this version says of the kept results, and its job can be diagnosed."""

import importlib
import platform
import re
import sys
from pathlib import Path

import pytest

from bottleneck.results.json import load
from docs.make import pictures, tutorial
from docs.make.page import Part, parts, shown, write_anew

PAGE = tutorial.PAGE.read_text(encoding="utf-8")
ANEW = "write it anew with `make pictures`, and read the difference"
SMALL = {"images": 48, "batch_size": 4, "num_workers": 1}


def test_the_page_is_what_this_version_says_of_the_kept_results():
    assert tutorial.from_kept_results() == PAGE, ANEW


def test_the_kept_results_tell_the_story_of_the_page():
    # Must not raise: the next test shows that it would.
    tutorial.refuse_another_story(tutorial.PICTURES / "base.json", tutorial.PICTURES / "head.json")


def test_another_story_is_refused():
    base = tutorial.PICTURES / "base.json"
    with pytest.raises(SystemExit, match="the change makes it faster"):
        tutorial.refuse_another_story(base, base)


def test_a_run_keeps_its_results_and_writes_the_page(monkeypatch, tmp_path):
    kept = tutorial.PICTURES

    def run(command, folder):
        for name in ("base.json", "head.json"):
            text = (kept / name).read_text()
            (folder / name).write_text(text.replace('"Linux ', f'"Linux {platform.release()} '))
        (folder / "profile").mkdir(exist_ok=True)
        (folder / "profile" / "worker-0.svg").write_text("<svg/>")
        return tutorial.report_kept(command, folder) or "printed anew\n"

    monkeypatch.setattr(tutorial, "PICTURES", tmp_path)
    page = tutorial.from_a_run(run)
    assert page.count("printed anew") == 2  # what the script printed, before and after
    assert without_what_scripts_print(page) == without_what_scripts_print(PAGE)
    for name in ("base.json", "head.json"):
        assert (tmp_path / name).read_text() == (kept / name).read_text()
    assert (tmp_path / "flamegraph.svg").read_text() == "<svg/>"


def without_what_scripts_print(page):
    return re.sub(r"^(epoch .*\n)+|^printed anew\n", "", page, flags=re.MULTILINE)


def test_every_part_of_the_page_shows_something():
    found = parts(PAGE)
    assert len(found) > 10
    for part in found:
        assert part.body.strip() or part.what == "run quietly", part


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


def test_what_cannot_be_known_stays_as_it_is(tmp_path):
    page = "<!-- run -->\n```\ntrain\n```\n<!-- shown -->\n```\n17 samples/s\n```\n"
    assert write_anew(page, tmp_path, lambda command: None) == page


def test_a_paragraph_that_was_not_printed_is_an_error():
    with pytest.raises(ValueError, match="'stage'"):
        shown(Part("shown", "stage", "", ""), "the ladder\n\nthe stages\n")


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
def test_the_script_trains(training, capsys):
    training.main(epochs=1)
    assert re.fullmatch(r"epoch 1: loss [\d.]+, \d+ samples/s\n", capsys.readouterr().out)


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

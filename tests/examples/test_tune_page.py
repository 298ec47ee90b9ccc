"""The page about tuning is true: it says what this version says of the kept result, and its job can be tuned."""

import importlib
import sys
from dataclasses import replace

import pytest

from docs.make import tuning
from docs.make.page import parts
from docs.make.tutorial import report_kept

PAGE = tuning.PAGE.read_text(encoding="utf-8")
ANEW = "write it anew with `make pictures`, and read the difference"


def test_the_page_is_what_this_version_says_of_the_kept_result():
    assert tuning.from_kept_result() == PAGE, ANEW
    assert all(part.body.strip() for part in parts(PAGE))


def test_the_kept_result_tells_the_story_of_the_page_and_another_is_refused():
    kept = tuning.read(tuning.KEPT)
    tuning.refuse_another_story(kept)
    with pytest.raises(SystemExit, match="workers are kept"):
        tuning.refuse_another_story(replace(kept, ladder=kept.ladder[:1]))


def test_a_run_keeps_its_result_and_writes_the_page(monkeypatch, tmp_path):
    kept = {name: (tuning.KEPT / name).read_text(encoding="utf-8") for name in tuning.RESULTS}

    def run(command, folder):
        assert (folder / "examples/seed_ladder.py").exists()
        for name, text in kept.items():
            (folder / name).write_text(text, encoding="utf-8")
        return report_kept(command, folder) or "printed anew\n"

    monkeypatch.setattr(tuning, "KEPT", tmp_path)
    page = tuning.from_a_run(run)
    assert page.count("printed anew") == 1  # what the script of the last section printed
    assert page.partition("## 7.")[0] == PAGE.partition("## 7.")[0]
    assert {name: (tmp_path / name).read_text(encoding="utf-8") for name in kept} == kept


def test_the_job_and_the_change_of_the_page_can_be_run(monkeypatch):
    import torch

    from bottleneck.job.checks import check

    monkeypatch.syspath_prepend(str(tuning.EXAMPLE))
    for name in ("job", "compare_transforms"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    threads = torch.get_num_threads()
    try:
        compared = importlib.import_module("compare_transforms")
        given = compared.build()
        changed = compared.with_v2(given)
        check(given)
        check(changed)
    finally:
        torch.set_num_threads(threads)
        for name in ("job", "compare_transforms"):
            sys.modules.pop(name, None)
    assert given.dataset.transform is not changed.dataset.transform
    images = [pipeline.dataset[0][0] for pipeline in (given, changed)]
    assert images[0].shape == images[1].shape
    assert images[0].dtype is images[1].dtype is torch.float32

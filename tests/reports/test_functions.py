"""Reports show the functions of a profile: the terminal those of the bottleneck, the others all."""

from dataclasses import replace

import pytest

from tests.support.in_full import render_in_full
from tests.support.results_factory import EVIDENCE, evidence_of, make_result


def row(function, stage, own_share, **more):
    return {"function": function, "file": "data.py", "line": 7, "own_share": own_share,
            "stage": stage, **more}  # fmt: skip


def report(form, *rows, sampler="py-spy", **more):
    profile = {"sampler": sampler, "rate_hz": 100, "seconds": 2.0, "samples": 400, "functions": list(rows)}
    result = make_result()
    return render_in_full(replace(result, evidence=evidence_of({**EVIDENCE, "profile": profile}), **more), form)


ROWS = [row(f"crop_{n}", "augment", 0.1) for n in range(7)] + [row("read", "load", 0.2), row("glue", None, 0.04)]


def test_the_terminal_shows_the_top_functions_of_the_bottleneck():
    text = report("text", *ROWS)
    assert "functions in augment" in text
    assert text.count("crop_") == 5
    assert "read " not in text.partition("functions in augment")[2].partition("Own time")[0]
    assert "data.py:7" in text
    assert "taken by py-spy" in text


def test_the_terminal_shows_all_where_the_bottleneck_has_none():
    text = report("text", row("read", "load", 0.9))
    assert "functions in" not in text
    assert "read" in text


def test_the_sampler_inside_the_workers_is_told():
    assert "a sampler inside the workers" in report("markdown", *ROWS, sampler="in-process")


@pytest.mark.parametrize("form", ["markdown", "html"])
def test_other_formats_show_all(form):
    text = report(form, *ROWS, row("tiny", "load", 0.001))
    assert "Functions with the most own time" in text
    assert all(name in text for name in ("crop_6", "read", "glue", "data.py:7"))
    assert "tiny" not in text

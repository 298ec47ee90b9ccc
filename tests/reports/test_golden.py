"""Reports of fixed results are, to the letter, the files in tests/golden.

After a change of a report that is meant, write them anew, and read the difference before committing it:

    UPDATE_GOLDEN=1 python -m pytest tests/reports/test_golden.py; git diff tests/golden
"""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest
from results_factory import (
    make_device_bound_result,
    make_empty_result,
    make_interrupted_result,
    make_result,
)

from bottleneck.analysis.comparison import compare, sweep
from bottleneck.reports.comparison import render_comparison
from bottleneck.reports.render import FORMATS, render
from bottleneck.results.codec import load
from bottleneck.results.records import Tool

GOLDEN = Path(__file__).parent.parent / "golden"
SUFFIXES = {"text": "txt", "markdown": "md", "html": "html", "json": "json"}
RESULTS = {
    "input_bound": make_result,
    "device_bound": make_device_bound_result,
    "interrupted": make_interrupted_result,
    "empty": make_empty_result,
}
COMPARISONS = {
    "comparison": lambda: compare(make_result(), make_device_bound_result(), labels=("main", "pr"), force=True),
    "sweep": lambda: sweep(
        [make_result(), make_device_bound_result(), make_empty_result()], labels=["2", "4", "8"], force=True
    ),
}
CASES = [(name, format) for name in [*RESULTS, *COMPARISONS] for format in FORMATS]


@pytest.mark.parametrize(("name", "format"), CASES, ids=["-".join(case) for case in CASES])
def test_report_is_the_golden_file(name, format):
    path = GOLDEN / f"{name}.{SUFFIXES[format]}"
    if name in RESULTS:
        rendered = render(RESULTS[name](), format)
    else:
        # The version of what is installed here belongs to no report that is to stay the same.
        rendered = render_comparison(replace(COMPARISONS[name](), tool=Tool("torch-bottleneck", "0.1.0")), format)
    if os.environ.get("UPDATE_GOLDEN"):
        path.write_text(rendered, encoding="utf-8")
        pytest.skip(f"{path.name} was written anew")
    assert rendered == path.read_text(encoding="utf-8")


def test_every_golden_file_is_one_of_a_case():
    wanted = {f"{name}.{SUFFIXES[format]}" for name, format in CASES}
    assert {path.name for path in GOLDEN.iterdir() if path.is_file()} == wanted


@pytest.mark.parametrize("name", RESULTS)
def test_results_that_were_saved_before_can_be_read(name):
    assert load(GOLDEN / f"{name}.json") == RESULTS[name]()

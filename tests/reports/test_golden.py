"""Reports of fixed results are, to the letter, the files in tests/golden.

After a change of a report that is meant, write them again, and read the difference before committing it:

    UPDATE_GOLDEN=1 python -m pytest tests/reports/test_golden.py; git diff tests/golden
"""

from __future__ import annotations

import os
import re
import tempfile
from dataclasses import replace
from pathlib import Path

import pytest

from bottleneck.analysis.comparison import compare
from bottleneck.cli.main import run
from bottleneck.reports.document import Link
from bottleneck.reports.render import for_terminal, render
from bottleneck.results.json import load, save, saved_from_json
from bottleneck.results.records import Tool
from tests.support.rank_results import make_ranks_result, make_sync_bound_result
from tests.support.results_factory import (
    make_device_bound_result,
    make_empty_result,
    make_interrupted_result,
    make_result,
)
from tests.support.tuning_factory import make_tuning, make_tuning_without_a_gain
from tests.support.watched_factory import make_watched_result

GOLDEN = Path(__file__).parent.parent / "golden"
SUFFIXES = {"text": "txt", "markdown": "md", "html": "html", "json": "json"}
RESULTS = {
    "input_bound": make_result,
    "device_bound": make_device_bound_result,
    "interrupted": make_interrupted_result,
    "empty": make_empty_result,
}
COMPARISONS = {
    "comparison": lambda: compare(make_result(), make_device_bound_result(), labels=("main", "pr"), force=True)
}
TUNINGS = {"tuning": make_tuning}
WATCHED = {"watched": make_watched_result}
SAVED = GOLDEN.parent / "saved" / "v1-6-traces-and-profile.json"
"""A result with every kind of evidence."""


def pull_request() -> str:
    """Return the report for a reviewer: against the base, with links."""
    compared = compare(make_device_bound_result(), make_result(), force=True)
    links = (Link("Report with charts", "https://example.org/42/report.html"),)
    return render(make_result(), "markdown", compared, links)


def github_summary() -> str:
    """Return the summary that `--github-summary` appends to that of other steps."""
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        result, summary = Path(folder, "result.json"), Path(folder, "summary.md")
        save(make_result(), result)
        summary.write_text("of another step\n", encoding="utf-8")
        patch.setenv("GITHUB_STEP_SUMMARY", str(summary))
        assert run(["report", str(result), "--github-summary", "-o", os.devnull]) == 0
        return summary.read_text(encoding="utf-8")


OTHERS = {
    "input_bound-verbose.txt": lambda: for_terminal(make_result(), verbose=True).plain(),
    "input_bound-40_columns.txt": lambda: for_terminal(make_result()).plain(40),
    "input_bound-100_columns.txt": lambda: for_terminal(make_result()).plain(100),
    "comparison-40_columns.txt": lambda: for_terminal(COMPARISONS["comparison"]()).plain(40),
    "tuning-verbose.txt": lambda: for_terminal(make_tuning(), verbose=True).plain(),
    "tuning-40_columns.txt": lambda: for_terminal(make_tuning()).plain(40),
    "tuning_without_a_gain.txt": lambda: render(make_tuning_without_a_gain(), "text"),
    "tuning_without_a_gain.md": lambda: render(make_tuning_without_a_gain(), "markdown"),
    "watched-40_columns.txt": lambda: for_terminal(make_watched_result()).plain(40),
    "everything.txt": lambda: for_terminal(load(SAVED), verbose=True).plain(),
    "everything-40_columns.txt": lambda: for_terminal(load(SAVED), verbose=True).plain(40),
    "everything.md": lambda: render(load(SAVED), "markdown"),
    "ranks.txt": lambda: render(make_ranks_result(4, slow=3), "text"),
    "ranks-40_columns.txt": lambda: for_terminal(make_ranks_result(4, slow=3)).plain(40),
    "ranks.md": lambda: render(make_ranks_result(4, slow=3), "markdown"),
    "sync_bound.txt": lambda: render(make_sync_bound_result(), "text"),
    "pull_request.md": pull_request,
    "github_summary.md": github_summary,
}
FORMATS = ("text", "markdown", "json")
"""A page is tested by its structure, in `test_page.py`: as a golden it repeats its style sheet."""
CASES = [(name, format) for name in [*RESULTS, *COMPARISONS, *TUNINGS, *WATCHED] for format in FORMATS]


@pytest.mark.parametrize(("name", "format"), CASES, ids=["-".join(case) for case in CASES])
def test_report_is_the_golden_file(name, format):
    path = GOLDEN / f"{name}.{SUFFIXES[format]}"
    if name in (fixed := {**RESULTS, **TUNINGS, **WATCHED}):
        rendered = render(fixed[name](), format)
    else:
        # The installed version belongs to no report that is to stay the same.
        rendered = render(replace(COMPARISONS[name](), tool=Tool("torch-bottleneck", "0.1.0")), format)
    is_golden(rendered, path)


@pytest.mark.parametrize("name", OTHERS)
def test_further_report_is_the_golden_file(name):
    is_golden(OTHERS[name](), GOLDEN / name)


def is_golden(rendered: str, path: Path) -> None:
    if os.environ.get("UPDATE_GOLDEN"):
        path.write_text(rendered, encoding="utf-8")
        pytest.skip(f"{path.name} was written")
    kept = path.read_text(encoding="utf-8")
    if path.suffix == ".json":  # its last digits depend on the version of scipy
        rendered, kept = _nine_digits(rendered), _nine_digits(kept)
    assert rendered == kept


def _nine_digits(text: str) -> str:
    return re.sub(r"\d+\.\d+(e-?\d+)?", lambda number: f"{float(number[0]):.9g}", text)


def test_every_golden_file_is_one_of_a_case():
    wanted = {f"{name}.{SUFFIXES[format]}" for name, format in CASES} | set(OTHERS)
    assert {path.name for path in GOLDEN.iterdir() if path.is_file()} == wanted


@pytest.mark.parametrize("name", RESULTS)
def test_results_that_were_saved_before_can_be_read(name):
    assert load(GOLDEN / f"{name}.json") == RESULTS[name]()


def test_a_tuning_that_was_saved_before_can_be_read():
    assert saved_from_json((GOLDEN / "tuning.json").read_text(encoding="utf-8")) == make_tuning()

"""The report for a pull request: one screen, then folds; never too long."""

from __future__ import annotations

import re
from dataclasses import replace

from hypothesis import given, settings

from bottleneck.reports.markdown import LIMIT
from bottleneck.reports.render import render
from bottleneck.results.records import Warning
from tests.support.result_strategies import RESULTS
from tests.support.results_factory import make_advice, make_result


def render_markdown(result):
    return render(result, "markdown")


def test_at_most_a_screen_before_the_folds():
    before = render_markdown(make_result()).split("<details>")[0]
    assert before.startswith("### 🔴 ImageFolder waits for its data\n")
    assert len(before.splitlines()) <= 30
    assert before.count("\n|:--") == 1


def test_a_small_table_has_a_row_for_each_stage_and_their_sum():
    before = render_markdown(make_result()).split("<details>")[0]
    rows = [line for line in before.splitlines() if line.startswith("| `")]
    assert rows[4] == "| `augment` | 13.0 ms | 2.49x |"
    assert [re.findall(r"`(\w+)`", row)[0] for row in rows] == [
        *("compute", "copy", "handoff", "collate", "augment", "load", "step")
    ]
    assert max(map(len, rows)) < 40  # a telephone shows it whole


def test_the_first_fix_is_there_without_a_click_as_what_can_be_pasted():
    before = render_markdown(make_result()).split("<details>")[0]
    assert "**Use more workers, up to 2.6x**\n\n```python\nDataLoader(..., num_workers=6)\n```" in before
    assert "> [!WARNING]\n> Other processes used 1.3 cores" in before


def test_two_folds_hold_the_rest():
    report = render_markdown(make_result())
    assert report.count("<details>") == report.count("</details>") == 2
    assert re.findall(r"<summary>(.*)</summary>", report) == ["What to do next", "All measurements"]
    headings = re.findall(r"^#### (.*)$", report, flags=re.MULTILINE)
    assert headings == [
        *("Ladder", "Cost, exposure and gain of each stage", "Time on the device", "Single transforms"),
        *("Costliest lines", "What one batch holds", "Waiting and reading", "Not measured", "Environment", "Pipeline"),
    ]


def test_a_fold_without_room_is_named():
    advice = replace(make_advice()[0], why="@" * 2000, how="x\n" + "y" * 1990)
    many = make_result(advice=(advice,) * 40, warnings=tuple(Warning("w", "@" * 2000) for _ in range(40)))
    report = render_markdown(many)
    assert len(report) < LIMIT
    for title in ("What to do next", "All measurements"):
        assert title in report


@settings(max_examples=60, deadline=None)
@given(RESULTS)
def test_any_result_makes_a_report_within_the_limit(result):
    report = render_markdown(result)
    assert len(report) < LIMIT
    assert report.endswith("\n")
    assert report.count("\n<details>\n") == report.count("\n</details>\n")

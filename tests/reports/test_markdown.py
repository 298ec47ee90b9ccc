"""The report for a pull request: one screen, then folds; never too long."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from hypothesis import given, settings

from bottleneck.reports.render import render
from bottleneck.reports.writers.markdown import LIMIT
from bottleneck.results.records import Warning
from tests.support.result_strategies import RESULTS
from tests.support.results_factory import make_advice, make_empty_result, make_experiments, make_result, make_stages

FOLDS = [
    "Warnings",
    "What to do next",
    "Cost, exposure and gain of each stage",
    "Single transforms",
    "What one batch holds",
    "Waiting and reading",
    "Not measured",
    "Throughput by cache point",
    "Environment",
    "Pipeline",
    "Raw blocks",
]


def render_markdown(result):
    return render(result, "markdown")


def test_at_most_a_screen_before_the_folds():
    before = render_markdown(make_result()).split("<details>")[0]
    assert before.startswith("**The input pipeline holds this job at 38 % (36–40 %)")
    assert len(before.splitlines()) <= 30
    assert before.count("\n|:--") == 1


def test_the_table_has_a_row_for_each_stage():
    before = render_markdown(make_result()).split("<details>")[0]
    rows = [line for line in before.splitlines() if line.startswith("| `")]
    assert rows[4] == "| `augment` | 702 ± 5 | ██████▋ | 57 % | 53 % | real | 2.49x (2.44–2.54) |"
    assert [re.findall(r"`(\w+)`", row)[0] for row in rows] == [
        *("compute", "copy", "handoff", "collate", "augment", "load")
    ]
    assert {row.count("|") for row in rows} == {8}


def test_folds_are_closed_and_named():
    report = render_markdown(make_result())
    assert re.findall(r"<summary>(.*)</summary>", report) == FOLDS
    assert report.count("<details>") == report.count("</details>") == len(FOLDS)


def test_what_is_not_there_has_no_fold():
    assert "<details>" not in render_markdown(make_empty_result())


def test_the_chart_is_one_that_mermaid_takes():
    chart = mermaid_of(render_markdown(make_result()))
    assert chart[0] == "xychart-beta horizontal"
    labels, values = re.findall(r"\[(.*)\]", "\n".join(chart))
    assert len(labels.split(", ")) == len(values.split(", ")) == 6
    assert all(re.fullmatch(r'"[\w ./:+-]+"', label) for label in labels.split(", "))
    assert all(re.fullmatch(r"\d+(\.\d+)?", value) for value in values.split(", "))
    highest = float(re.search(r"0 --> (\S+)", "\n".join(chart)).group(1))
    assert highest >= max(map(float, values.split(", ")))


@pytest.mark.parametrize("name", ['a"b', "a]b", "``` x", "%% x", "", "a\nb", "x" * 500])
def test_a_name_cannot_leave_its_label(name):
    experiment = replace(make_experiments()[0], name=name)
    chart = mermaid_of(render_markdown(make_result(experiments=(experiment, *make_experiments()[1:]))))
    labels = re.search(r"x-axis \[(.*)\]$", "\n".join(chart), re.MULTILINE).group(1)
    assert re.fullmatch(r'("[\w ./:+-]+"(, |$)){6}', labels)
    assert len(chart) == 5


def test_a_long_report_is_cut_and_says_so():
    message = "@everyone <b>| `" * 100
    warnings = tuple(Warning("w", f"{index} {message}") for index in range(500))
    report = render_markdown(make_result(warnings=warnings))
    assert len(report) < LIMIT
    assert re.search(r"\n_\d+ of 500 left out for want of room\. `bottleneck report ", report)
    assert report.count("<details>") == report.count("</details>") == len(FOLDS)
    assert "<summary>Raw blocks</summary>" in report


def test_every_part_can_be_long():
    stage = replace(make_stages()[4], name="@<`|" * 500, finding="real")
    advice = replace(make_advice()[0], title="@" * 9000, why="<" * 9000, how="|`@" * 9000)
    report = render_markdown(
        make_result(
            stages=tuple(replace(stage, outer=f"{i}{'<' * 3000}") for i in range(300)),
            experiments=tuple(
                replace(make_experiments()[i % 2 * 4], name=f"{i}{'<' * 3000}", reason="@" * 9000) for i in range(300)
            ),
            advice=(advice,) * 50,
            warnings=tuple(Warning("w", "@" * 9000) for _ in range(50)),
            environment={f"{i}": "<" * 9000 for i in range(200)},
            verdict=replace(make_result().verdict, sentence="\n".join(["@" * 9000] * 9)),
        )
    )
    assert len(report) < LIMIT
    assert report.count("<details>") == report.count("</details>")


def test_a_fold_without_room_is_named():
    advice = replace(make_advice()[0], why="@" * 2000, how="x\n" + "y" * 1990)
    many = make_result(advice=(advice,) * 40, warnings=tuple(Warning("w", "@" * 2000) for _ in range(40)))
    report = render_markdown(many)
    assert len(report) < LIMIT
    for title in ("Warnings", "What to do next", "Raw blocks"):
        assert title in report


@settings(max_examples=60, deadline=None)
@given(RESULTS)
def test_any_result_makes_a_report_within_the_limit(result):
    report = render_markdown(result)
    assert len(report) < LIMIT
    assert report.endswith("\n")
    assert report.count("\n<details>\n") == report.count("\n</details>\n")


def mermaid_of(report: str) -> list[str]:
    return re.search(r"```mermaid\n(.*?)\n```\n", report, re.DOTALL).group(1).splitlines()

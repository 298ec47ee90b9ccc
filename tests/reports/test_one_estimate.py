"""No report contradicts itself, whatever numbers a result holds: times, gains and findings come from one estimate."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings

from bottleneck.analysis.gains import gain_of, step_s
from bottleneck.reports.content.ladder import ladder, step_bars, step_table
from bottleneck.reports.content.stages import stages
from bottleneck.reports.content.step import COSTS_TIME, FIX_FIRST, IMPRECISE, NO_EFFECT, parts
from bottleneck.reports.document import Table
from bottleneck.reports.render import render
from bottleneck.results.json import load
from bottleneck.results.names import RAW
from bottleneck.results.records import Interval
from tests.support.result_strategies import ladders
from tests.support.results_factory import make_interrupted_result, make_result

ROOT = Path(__file__).parents[2]
SAVED = sorted([*(ROOT / "tests/saved").glob("*.json"), *(ROOT / "docs/pictures").glob("*.json")])
UNITS = {"s": 1.0, "ms": 1e-3, "µs": 1e-6}
TIME = re.compile(r"(< )?(−?[\d,.]+) (s|ms|µs)")
DIGITS = 6e-3
"""How far a number of three digits may be from the one that it stands for."""


def seconds(cell: str) -> tuple[float, float]:
    """The least and the most that a cell with a time says."""
    below, value, unit = TIME.fullmatch(cell).groups()
    found = float(value.replace(",", "").replace("−", "-")) * UNITS[unit]
    last_digit = 10.0 ** -len(value.partition(".")[2]) * UNITS[unit]
    slack = max(found * DIGITS, last_digit / 2) + 1e-8  # 0.06 ms stands for anything from 0.055 ms on
    return (0.0 if below else found - slack), found + slack


def table_of(sections) -> Table:
    return next(block for section in sections for block in section.blocks if isinstance(block, Table))


def column(table: Table, title: str, form: str) -> list[str]:
    columns, rows = table.shown(form)
    at = [one.title for one in columns].index(title)
    return [row[at] for row in rows]


def adds_up(cells, whole_s: float) -> bool:
    spans = [seconds(cell) for cell in cells if cell != "–"]
    return sum(least for least, _ in spans) <= whole_s * (1 + DIGITS) and whole_s <= sum(m for _, m in spans) + 1e-8


def check_times(result) -> None:
    whole_s, found = step_s(result), parts(result)
    assert math.isclose(sum(part.seconds for part in found), whole_s, rel_tol=1e-9)
    assert all(part.seconds >= 0 and (part.most_s is None or part.most_s >= part.seconds) for part in found)
    assert adds_up([part.time for part in found], whole_s)
    assert adds_up(column(table_of(step_bars(result)), column_title(result), "text"), whole_s)
    *cells, last = column(table_of(step_table(result)), "of each step", "markdown")
    assert adds_up(cells, whole_s)
    assert adds_up([last], whole_s)
    measured = {e.name for e in result.experiments if e.coupled}
    rungs = table_of(ladder(result))
    names, added = column(rungs, "cached at", "verbose"), column(rungs, "adds", "verbose")
    assert adds_up([cell for name, cell in zip(names, added, strict=True) if name in measured], whole_s)


def column_title(result) -> str:
    return table_of(step_bars(result)).columns[1].title


def check_gains(result) -> None:
    table = table_of(stages(result))
    words, gains = column(table, "finding", "html"), column(table, "gain if free", "html")
    for word, gain in zip(words, gains, strict=True):
        assert word in ("", "holds the job", FIX_FIRST, COSTS_TIME, NO_EFFECT, IMPRECISE)
        assert gain == "–" or (word in (FIX_FIRST, COSTS_TIME) and float(gain.partition("x")[0]) > 1)
    raw = next(e for e in result.experiments if e.name == RAW)
    for stage in result.stages:
        gain, cost, headroom = gain_of(result, stage), stage.cost_s_per_batch, result.verdict.headroom
        if gain is None:
            continue
        assert 1 <= gain.low <= gain.estimate <= gain.high
        assert headroom is None or gain.high <= max(1.0, headroom.high)
        left_s = raw.coupled.seconds_per_batch - max(0.0, cost.high) if cost is not None else 0.0
        if left_s > 0 and raw.drained is None:
            assert gain.high <= raw.coupled.seconds_per_batch / left_s * (1 + 1e-9)


def check_words(result) -> None:
    for form in ("text", "markdown"):
        report = render(result, form)
        assert not re.search(r"−[\d.,]+(?: to [\d.,−]+)?\)? (?:s|ms|µs)\b|(?:s|ms|µs) \(−", report)
        assert "real" not in re.findall(r"\w+", report)
        for value, error in re.findall(r"([\d,.]+) ± ([\d,.]+)", report):
            assert float(error.replace(",", "")) < float(value.replace(",", ""))


@settings(max_examples=60, deadline=None)
@given(ladders())
def test_times_add_up_to_the_step_and_gains_fit_their_costs(result):
    check_times(result)
    if any(s.cost_s_per_batch or s.exposed_s_per_batch or s.gain_if_free for s in result.stages):
        check_gains(result)


@settings(max_examples=30, deadline=None)
@given(ladders())
def test_nothing_negative_and_no_error_over_its_value_is_shown(result):
    check_words(result)


@pytest.mark.parametrize("path", SAVED, ids=lambda path: path.stem)
def test_results_that_once_contradicted_themselves_do_no_more(path):
    result = load(path)
    check_times(result)
    check_gains(result)
    check_words(result)


def test_what_was_not_measured_apart_is_one_part():
    names = [part.name for part in parts(make_interrupted_result())]
    assert names == ["compute", "copy+handoff+collate+augment+load"]


def test_a_stage_that_may_cost_nothing_shows_what_it_stays_under():
    by_name = {part.name: part.time for part in parts(make_result())}
    assert by_name == {
        "compute": "9.40 ms", "copy": "< 0.27 ms", "handoff": "< 0.40 ms", "collate": "< 0.29 ms",
        "augment": "13.0 ms", "load": "1.90 ms",
    }  # fmt: skip


def test_a_gain_is_no_more_than_the_cost_allows():
    result = make_result()
    collate = replace(result.stages[3], gain_if_free=Interval(1.28, 1.13, 1.45))
    gain = gain_of(result, collate)  # 0.9 ms at most of 24.3 ms
    assert gain.high == pytest.approx(24.3 / 23.4)
    assert gain_of(replace(result, verdict=replace(result.verdict, headroom=None)), collate) == gain

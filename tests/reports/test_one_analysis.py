"""Reports print the numbers of the JSON: times add up, gains fit their costs, and nothing is calculated by a writer."""

from __future__ import annotations

import json
import math
import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest
from hypothesis import given, settings

from bottleneck.analysis.parts import completed, with_parts
from bottleneck.reports.answer import sentences
from bottleneck.reports.document import Table
from bottleneck.reports.render import for_terminal, render
from bottleneck.reports.step import COSTS_TIME, FIX_FIRST, IMPRECISE, NO_EFFECT, ladder, stages, step_bars, step_table
from bottleneck.results import format as numbers
from bottleneck.results.json import from_json, load, to_json
from bottleneck.results.names import RAW
from bottleneck.results.records import Interval
from tests.support.result_strategies import ladders
from tests.support.results_factory import (
    make_device_bound_result,
    make_empty_result,
    make_interrupted_result,
    make_interval,
    make_rate,
    make_result,
)

ROOT = Path(__file__).parents[2]
SAVED = sorted([*(ROOT / "tests/saved").glob("*.json"), *(ROOT / "docs/pictures").glob("*.json")])
UNITS = {"s": 1.0, "ms": 1e-3, "µs": 1e-6}
TIME = re.compile(r"(< )?(−?[\d,.]+) (s|ms|µs)(?: \(.*\))?")
DIGITS = 6e-3
"""Relative error of a number with three digits."""


# --- the parts of a step ----------------------------------------------------------------------------------


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
    whole_s = result.coupled(RAW).seconds_per_batch
    assert math.isclose(sum(part.s_per_batch for part in result.step), whole_s, rel_tol=1e-9)
    assert all(part.at_most_s is None or part.at_most_s >= part.s_per_batch >= 0 for part in result.step)
    bars = table_of(step_bars(result))
    assert adds_up(column(bars, bars.columns[1].title, "text"), whole_s)
    *cells, last = column(table_of(step_table(result)), "of each step", "markdown")
    assert adds_up(cells, whole_s)
    assert adds_up([last], whole_s)
    measured = {e.name for e in result.experiments if e.coupled}
    rungs = table_of(ladder(result))
    names, added = column(rungs, "cached at", "verbose"), column(rungs, "adds", "verbose")
    assert adds_up([cell for name, cell in zip(names, added, strict=True) if name in measured], whole_s)


def check_gains(result) -> None:
    table = table_of(stages(result))
    words, gains = column(table, "finding", "html"), column(table, "gain if free", "html")
    for word, gain in zip(words, gains, strict=True):
        assert word in ("", "limits the job", FIX_FIRST, COSTS_TIME, NO_EFFECT, IMPRECISE)
        assert gain == "–" or (word in (FIX_FIRST, COSTS_TIME) and float(gain.partition("x")[0]) > 1)
    for stage in result.stages:
        gain, headroom = stage.possible_gain, result.verdict.headroom
        if gain is not None:
            assert 1 <= gain.low <= gain.estimate <= gain.high
            assert headroom is None or gain.high <= max(1.0, headroom.high)


def check_words(result) -> None:
    for form in ("text", "markdown"):
        report = render(result, form)
        assert not re.search(r"−[\d.,]+(?: to [\d.,−]+)?\)? (?:s|ms|µs)\b|(?:s|ms|µs) \(−", report)
        for value, error in re.findall(r"([\d,.]+) ± ([\d,.]+)", report):
            assert float(error.replace(",", "")) < float(value.replace(",", ""))


@settings(max_examples=60, deadline=None)
@given(ladders())
def test_times_add_up_to_the_step_and_gains_fit_their_costs(result):
    result = completed(result)
    check_times(result)
    check_words(result)
    if any(s.cost_s_per_batch or s.exposed_s_per_batch or s.gain_if_free for s in result.stages):
        check_gains(result)


@pytest.mark.parametrize("path", SAVED, ids=lambda path: path.stem)
def test_results_that_once_contradicted_themselves_do_no_more(path):
    result = completed(load(path))
    check_times(result)
    check_gains(result)
    check_words(result)


def test_a_gain_is_no_more_than_the_cost_allows():
    result = make_result()
    collate = replace(result.stages[3], gain_if_free=Interval(1.28, 1.13, 1.45))
    found = completed(replace(result, stages=(*result.stages[:3], collate, *result.stages[4:])))
    assert found.stages[3].possible_gain.high == pytest.approx(24.3 / 23.4)  # 0.9 ms at most of 24.3 ms


# --- several stages together ------------------------------------------------------------------------------


def held_by_two():
    """Augment and load take half of the loader each: neither gains anything alone, both together do."""
    steps = {"before_collate": 0.0100, "before_augment": 0.0240, "raw": 0.0247}
    result = make_result()
    experiments = tuple(
        replace(e, coupled=make_rate(steps[e.name])) if e.name in steps else e for e in result.experiments
    )
    stages = tuple(
        replace(s, gain_if_free=make_interval(1.02, 0.05), cost_s_per_batch=make_interval(0.012, 0.0003))
        if s.name in ("augment", "load")
        else s
        for s in result.stages
    )
    return replace(result, experiments=experiments, stages=stages)


def gains(result):
    return {found.stages: found.gain.estimate for found in with_parts(result).what_if}


def test_stages_that_clearly_gain_come_first_and_all_of_the_input_last():
    found = gains(make_result())
    assert list(found) == [("augment",), ("load",), ()]
    assert found == pytest.approx({("augment",): 2.489, ("load",): 1.0834, (): 2.62}, rel=1e-3)


def test_stages_together_are_those_of_the_experiment_that_serves_them():
    assert gains(held_by_two()) == {("load", "augment"): pytest.approx(2.47, rel=0.01), (): 2.62}


def test_no_stage_gains_more_than_all_of_the_input():
    result = make_result()
    headroom = Interval(1.5, 1.4, 1.6)
    found = with_parts(replace(result, verdict=replace(result.verdict, headroom=headroom))).what_if
    # Augment alone is said to gain 2.49x: of two numbers that cannot both be true, neither has a row.
    assert [one.stages for one in found] == [("load",), ("load", "augment"), ()]
    assert all(one.gain.estimate <= 1.5 and one.gain.high <= 1.6 for one in found)


def test_a_gain_that_is_not_sure_or_makes_no_sense_is_left_out():
    for gain in (Interval(1.3, 0.9, 1.8), Interval(float("inf"), 1.0, 2.0), Interval(-1.0, 1.1, 2.0), None):
        result = make_result()
        stages = tuple(replace(stage, gain_if_free=gain) for stage in result.stages)
        assert list(gains(replace(result, stages=stages))) in ([()], [("load", "augment"), ()])
    assert completed(make_empty_result()).what_if == ()


# --- printed numbers are in the JSON ----------------------------------------------------------------------

RESULTS = {
    "input_bound": make_result,
    "device_bound": make_device_bound_result,
    "interrupted": make_interrupted_result,
    "everything": lambda: load(ROOT / "tests/saved/v1-6-traces-and-profile.json"),
}
FACTOR_OR_SPAN = re.compile(
    r"(?<![\dx.,])\d[\d.,]*x(?![\dA-Za-z])(?: \([^)]*\))?|[−\d][\d.,]* (?:ms|s|µs|%) \([−\d][^()]*\)"
)
"""A factor of throughput, with its interval or without, or another number with its interval."""


class Words(HTMLParser):
    """The text of a page."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.text = ""
        self.feed(page)

    def handle_data(self, data):
        self.text += f" {data}"


def shown(result, form: str) -> str:
    """Return the text that a reader sees, with single spaces."""
    if form == "verbose":
        text = for_terminal(result, verbose=True).plain(200)  # wide enough for every interval
    elif form == "html":
        text = Words(render(result, "html")).text
    else:
        text = re.sub(r"[*`|]", " ", render(result, "markdown"))
    return " ".join(text.split())


def intervals_in(part):
    """Every interval of a document of JSON."""
    if isinstance(part, dict) and part.keys() == {"estimate", "low", "high"}:
        yield Interval(**part)
    elif isinstance(part, (dict, list)):
        for inner in part.values() if isinstance(part, dict) else part:
            yield from intervals_in(inner)


@pytest.mark.parametrize("form", ["verbose", "markdown", "html"])
@pytest.mark.parametrize("name", RESULTS)
def test_every_interval_and_gain_that_a_report_shows_stands_in_the_json(name, form):
    result = completed(RESULTS[name]())
    document = json.loads(to_json(result))
    forms = (numbers.duration_interval, numbers.time_interval, numbers.percent_interval, numbers.gain_interval)
    told = {form(interval) for form in forms for interval in intervals_in(document)}
    told |= {text.partition(" ")[0] for text in told if "x (" in text}
    said = " ".join([*sentences(result), *(f"{a.title} {a.why} {a.how}" for a in result.advice)])
    assert set(FACTOR_OR_SPAN.findall(shown(result, form))) - told - set(FACTOR_OR_SPAN.findall(said)) == set()


@pytest.mark.parametrize("name", RESULTS)
def test_a_file_without_these_numbers_reads_as_one_that_has_them(name):
    without = RESULTS[name]()
    saved = from_json(to_json(completed(without)))
    assert saved == completed(saved) == with_parts(without)
    for form in ("text", "markdown", "html"):
        assert render(saved, form) == render(without, form)

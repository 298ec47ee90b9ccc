"""A number reads the same wherever it is shown: terminal, markdown and HTML round in one place."""

from __future__ import annotations

import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest

from bottleneck.analysis.gains import gain_of
from bottleneck.analysis.stopping import loss
from bottleneck.analysis.what_if import what_if
from bottleneck.reports.content.io import reading
from bottleneck.reports.content.ladder import rungs
from bottleneck.reports.content.stages import exposed_around
from bottleneck.reports.content.step import gain_text, parts
from bottleneck.reports.content.verdict import headline, sentences
from bottleneck.reports.render import for_terminal, render
from bottleneck.results import format as numbers
from bottleneck.results.json import load
from bottleneck.results.records import Interval, Verdict
from tests.support.results_factory import make_device_bound_result, make_interrupted_result, make_result

SAVED = Path(__file__).parent.parent / "saved" / "v1-6-traces-and-profile.json"
RESULTS = {
    "input_bound": make_result,
    "device_bound": make_device_bound_result,
    "interrupted": make_interrupted_result,
    "everything": lambda: load(SAVED),
}


class Words(HTMLParser):
    """The text of a page."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.text = ""
        self.feed(page)

    def handle_data(self, data):
        self.text += f" {data}"


def shown(result, form: str) -> str:
    """What a reader sees, with single spaces."""
    if form == "verbose":
        text = for_terminal(result, verbose=True).plain(200)  # wide enough for every interval
    elif form == "html":
        text = Words(render(result, "html")).text
    else:
        text = re.sub(r"[*`|]", " ", render(result, "markdown"))
    return " ".join(text.split())


def numbers_of(result, form: str) -> list[str]:
    """What has to be read in a format, rounded by the one module that rounds."""
    told = [numbers.rate_with_half_width(rung.experiment.coupled) for rung in rungs(result)]
    told += [text for part in parts(result) for text in (part.time, numbers.duration(part.end_s))]
    for stage in result.stages:
        told.append(gain_text(result, stage))
        if form == "verbose":
            told.append(numbers.duration_interval(stage.cost_s_per_batch))
            told.append(numbers.gain_interval(stage.gain_if_free))
        else:
            told.append(numbers.time_interval(stage.cost_s_per_batch))
    for found in result.evidence.transforms:
        told += [numbers.duration(found.wall_s_per_call), numbers.percent(found.share)]
    told += [text for section in reading(result) for items in section.blocks for text in items.texts]
    told += sentences(result) if form == "html" else headline(result)
    return [text for text in told if text]


FACTOR_OR_SPAN = re.compile(
    r"(?<![\dx.,])\d[\d.,]*x(?![\dA-Za-z])(?: \([^)]*\))?|[−\d][\d.,]* (?:ms|s|µs|%) \([−\d][^()]*\)"
)
"""A factor of throughput, with its interval or without, or another number with its interval."""


def intervals_of(result) -> set[str]:
    """Every interval of a result as it may be read, and what is read of it alone."""
    known = [result.verdict.efficiency, result.verdict.headroom, *(advice.gain for advice in result.advice)]
    for stage in result.stages:
        part = next((part for part in parts(result) if part.stages == (stage,)), None)
        known += [stage.cost_s_per_batch, stage.exposed_s_per_batch, stage.exposed_share, stage.gain_if_free]
        known += [exposed_around(stage, part), gain_of(result, stage)]
    if result.verdict.efficiency is not None:
        known.append(loss(result.verdict.efficiency))
    forms = (numbers.duration_interval, numbers.time_interval, numbers.percent_interval, numbers.gain_interval)
    known += [possible.gain for possible in what_if(result)]
    told = {form(interval) for form in forms for interval in known}
    alone = {numbers.gain_interval(interval).partition(" ")[0] for interval in known}
    said = " ".join([*sentences(result), *(f"{a.title} {a.why} {a.how}" for a in result.advice)])
    return told | alone | set(FACTOR_OR_SPAN.findall(said))


@pytest.mark.parametrize("form", ["verbose", "markdown", "html"])
@pytest.mark.parametrize("name", RESULTS)
def test_no_format_has_another_rounding_of_its_own(name, form):
    result = RESULTS[name]()
    assert set(FACTOR_OR_SPAN.findall(shown(result, form))) - intervals_of(result) == set()


@pytest.mark.parametrize("form", ["verbose", "markdown", "html"])
def test_what_the_edges_of_epochs_cost_and_what_contradicts_itself_is_in_every_format(form):
    for sentence in (
        "The input pipeline holds this job at 66 % (65–67 %) of what its device can do, over a whole epoch. "
        "Between epochs the job stands for 10.0 s of each 30.3 s: its workers start anew.",
        "Undecided: two numbers contradict each other. raw got 3,228 samples/s, and device, which does less, 1,063.",
    ):
        verdict = Verdict("undecided", None, (), None, None, sentence)
        assert sentence in shown(make_result(verdict=verdict), form).replace("\\", "").replace("**", "")


def test_the_page_tells_both_efficiencies_apart():
    whole = replace(make_result().verdict, epoch_efficiency=Interval(0.3, 0.29, 0.31))
    assert "over a whole one" not in shown(make_result(verdict=whole), "html")
    judged = replace(whole, judged_by="epoch_efficiency")
    assert "38 % (36–40 %) within an epoch, 30 % (29–31 %) over a whole one" in shown(
        make_result(verdict=judged), "html"
    )

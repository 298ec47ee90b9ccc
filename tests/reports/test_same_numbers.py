"""A number reads the same wherever it is shown: terminal, markdown and HTML round in one place."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path

import pytest
from results_factory import make_device_bound_result, make_interrupted_result, make_result

from bottleneck.reports import numbers, view
from bottleneck.reports.render import render
from bottleneck.reports.text import render_text
from bottleneck.results.codec import load

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
    if form == "text":
        text = render_text(result, width=200)  # wide enough for every interval
    elif form == "html":
        text = Words(render(result, "html")).text
    else:
        text = re.sub(r"[*`|]", " ", render(result, "markdown"))
    return " ".join(text.split())


def numbers_of(result, form: str) -> list[str]:
    """What has to be read in a format, rounded by the one module that rounds."""
    told = []
    for rung in view.ladder(result):
        rate = rung.experiment.coupled
        told.append(numbers.rate_with_half_width(rate))
        if form != "markdown":  # whose table has no room for the step
            told.append(numbers.duration(rate.seconds_per_batch if rate else None))
    for stage in result.stages:
        told += [
            numbers.duration_interval(stage.cost_s_per_batch),
            numbers.duration_interval(stage.exposed_s_per_batch),
            numbers.gain_interval(stage.gain_if_free),
        ]
    for rows in view.transforms(result).values():
        told += [text for row in rows for text in (numbers.duration(row.wall_s_per_call), numbers.percent(row.share))]
    told += [view.waits(result.evidence), *view.sentences(result)]
    return [text for text in told if text]


@pytest.mark.parametrize("form", ["text", "markdown", "html"])
@pytest.mark.parametrize("name", RESULTS)
def test_every_number_reads_the_same_in_every_format(name, form):
    result = RESULTS[name]()
    report = shown(result, form)
    wanted = numbers_of(result, form)
    assert len(wanted) >= 5
    assert [text for text in wanted if " ".join(text.split()) not in report] == []

"""The HTML report holds every part of a result in one file, and its policy lets nothing run but our own script."""

from __future__ import annotations

import base64
import hashlib
import re
from dataclasses import replace
from html import escape

import pytest

from bottleneck.analysis.comparison import compare
from bottleneck.reports.render import render
from bottleneck.results.records import Interval
from tests.support.page_results import make_page_result
from tests.support.results_factory import make_device_bound_result, make_result


def page_of(result=None):
    return render(result or make_page_result(), "html")


def test_the_policy_names_the_script_by_its_hash():
    for page in (page_of(), page_of(make_result())):
        [script] = re.findall(r"<script>(.*?)</script>", page, re.DOTALL)
        digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
        [policy] = re.findall(r'http-equiv="Content-Security-Policy" content="([^"]*)"', page)
        assert policy == (
            f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'; base-uri 'none'; "
            "form-action 'none'"
        )


def test_nothing_leads_out_of_the_page():
    page = page_of()
    assert not re.search(r'https?://|\bsrc=|href="(?!#)|url\(|@import', page)


def test_a_comparison_begins_with_its_answer():
    compared = compare(make_device_bound_result(), make_result(), labels=("main", "pr"), force=True)
    page = render(compared, "html")
    assert page.count(escape(compared.sentence)) == 1
    assert page.index(f"<h1>{escape(compared.sentence)}</h1>") < page.index("<h2")


@pytest.mark.parametrize(
    ("changes", "heading"),
    [
        ({}, "Input-bound: augment takes 13.0 ms of each 24.7 ms; without it 2.49x (2.44–2.54)."),
        (
            {"judged_by": "epoch_efficiency", "epoch_efficiency": Interval(0.381, 0.362, 0.4), "bottleneck": None},
            "Input-bound: the input costs 62 % (60–64 %) of the throughput over a whole epoch.",
        ),
        ({"state": "undecided", "bottleneck": None}, "Undecided: the input costs 62 % (60–64 %) of the throughput."),
        ({"state": "undecided", "bottleneck": None, "efficiency": None, "headroom": None}, "Undecided."),
    ],
)
@pytest.mark.parametrize("device", ["cpu", "cuda:0"])
def test_the_heading_of_a_page_is_the_answer_in_one_line(changes, heading, device):
    # Guards: a heading of six sentences, of which the first said that the job trains on a CPU.
    result = make_result(environment={"device": device})
    page = page_of(replace(result, verdict=replace(result.verdict, **changes)))
    assert re.findall(r"<h1[^>]*>(.*?)</h1>", page) == [heading]

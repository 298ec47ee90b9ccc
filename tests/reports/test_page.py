"""The HTML report holds every part of a result in one file, and its policy lets nothing run but our own script."""

from __future__ import annotations

import base64
import hashlib
import re
from html import escape

from bottleneck.analysis.comparison import compare
from bottleneck.reports.render import render
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

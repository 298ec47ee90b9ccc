"""The HTML report holds every part of a result in one file, and its policy lets nothing run but our own script."""

from __future__ import annotations

import base64
import hashlib
import re
from html import escape

import pytest

from bottleneck.analysis.comparison import compare
from bottleneck.reports.render import render
from tests.support.page_results import make_page_result
from tests.support.results_factory import make_device_bound_result, make_result


def page_of(result=None):
    return render(result or make_page_result(), "html")


@pytest.mark.parametrize(
    "part",
    [
        "The input pipeline holds this job at 38 % (36–40 %)",
        "<td>before_augment</td><td>augment</td><td class=\"number\">702 ± 5</td>",
        "<td class=\"number\">702 ± 5</td><td class=\"bar\"><span style=\"width: 41.2%\">",
        "<td>RandomResizedCrop</td><td class=\"path\">transform.transforms[1]</td>",
        "<td class=\"path\">blend</td><td>augment</td><td class=\"number\">45 %</td>",
        "<td class=\"number\">16x3x224x224</td><td>float32</td><td class=\"number\">9.19 MiB</td>",
        "<strong>Use more workers</strong>: The loader alone needs 24.3 ms",
        "torch.set_num_threads(1)  # in worker_init_fn",
        "<td>device_name</td><td class=\"path\">NVIDIA H100</td>",
        "<td>dataset_length</td><td class=\"path\">1,281,167</td>",
        "Own time is the share of 800 samples of the loader&#39;s code, taken by py-spy.",
        "Measured in 47 s: 4,120 batches",
    ],
)  # fmt: skip
def test_every_part_of_the_result_is_in_the_page(part):
    assert part in page_of()


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
